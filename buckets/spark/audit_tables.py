"""An audit's tables, as Spark makes them: with constraints, and upgraded where an earlier release made them."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from buckets.audit.folder import AuditFolder
from buckets.audit.tables import DAY, Table
from buckets.audit.writer import AT_ONCE, retention
from buckets.config.settings import AuditSettings
from buckets.delta.table_upgrade import add_missing_columns, constraints_of, is_same_sql, strict_columns


def make_tables(spark: SparkSession, folder: AuditFolder, settings: AuditSettings, tables: Iterable[Table]) -> None:
    """Make tables that are not there yet, constraints in the same commit, and upgrade the others.

    Args:
        spark: the session.
        folder: where they are.
        settings: of the audit; they say for how long old versions are kept.
        tables: the tables.
    """
    missing: list[Table] = []
    for table in tables:
        if folder.has_table(table.name):
            _upgrade_table(spark, table, _location(folder, table))
        else:
            missing.append(table)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda table: _make_table(spark, table, _location(folder, table), settings), missing))


def _location(folder: AuditFolder, table: Table) -> Path:
    """Where a table is; Delta compares the location with its own form of it, which has no `..` in it."""
    return (folder.tables / table.name).resolve()


def _make_table(spark: SparkSession, table: Table, location: Path, settings: AuditSettings) -> None:
    builder = DeltaTable.createIfNotExists(spark).location(str(location))
    builder = builder.comment(table.comment).partitionedBy(DAY)
    for column in table.columns:
        kind = from_arrow_type(column.type)
        builder = builder.addColumn(column.name, kind, nullable=column.nullable, comment=column.comment)
    properties = {f"delta.constraints.{check.name}": check.sql for check in table.checks}
    for key, value in (properties | retention(settings)).items():
        builder = builder.property(key, value)
    builder.execute()


def _upgrade_table(spark: SparkSession, table: Table, location: Path) -> None:
    """Bring a table that an earlier release has made to the columns and constraints of this one."""
    columns = [pa.field(column.name, column.type, column.nullable) for column in table.columns]
    add_missing_columns(location, pa.schema(columns))
    there, quoted = constraints_of(location), str(location).replace("`", "``")
    for name in strict_columns(location, pa.schema(columns)):
        spark.sql(f"ALTER TABLE delta.`{quoted}` ALTER COLUMN {name} DROP NOT NULL")
    for check in table.checks:
        if is_same_sql(there.get(check.name), check.sql):
            continue
        if check.name in there:
            spark.sql(f"ALTER TABLE delta.`{quoted}` DROP CONSTRAINT {check.name}")
        # By Spark, which keeps the text but for blanks: delta-rs rewrites it, so that it would differ at every start.
        spark.sql(f"ALTER TABLE delta.`{quoted}` ADD CONSTRAINT {check.name} CHECK ({check.sql})")
