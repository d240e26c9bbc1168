"""An audit's tables, as Spark makes them: with constraints."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from buckets.audit.folder import AuditFolder
from buckets.audit.tables import DAY, Column, Table
from buckets.audit.writer import AT_ONCE
from buckets.config.settings import AuditSettings
from buckets.delta.upkeep import retention


def make_tables(spark: SparkSession, folder: AuditFolder, settings: AuditSettings, tables: Iterable[Table]) -> None:
    """Make tables that are not there yet, constraints in the same commit.

    Args:
        spark: the session.
        folder: where they are.
        settings: of the audit; they say for how long old versions are kept.
        tables: the tables.
    """
    missing = [table for table in tables if not folder.has_table(table.name)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda table: _make_table(spark, table, _location(folder, table), settings), missing))


def _location(folder: AuditFolder, table: Table) -> Path:
    """Return where a table is; Delta compares the location with its own form of it, which has no `..` in it."""
    return (folder.tables / table.name).resolve()


def _make_table(spark: SparkSession, table: Table, location: Path, settings: AuditSettings) -> None:
    properties = {f"delta.constraints.{check.name}": check.sql for check in table.checks}
    properties |= retention(settings.keep_versions)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {_quoted(location)} ({', '.join(map(_column_sql, table.columns))}) USING delta "
        f"PARTITIONED BY ({DAY}) COMMENT {_literal(table.comment)} "
        f"TBLPROPERTIES ({', '.join(f'{_literal(key)} = {_literal(value)}' for key, value in properties.items())})"
    )


def _column_sql(column: Column) -> str:
    strictness = "" if column.nullable else " NOT NULL"
    kind = from_arrow_type(column.type).simpleString()
    return f"`{column.name}` {kind}{strictness} COMMENT {_literal(column.comment)}"


def _quoted(location: Path) -> str:
    escaped = str(location).replace("`", "``")
    return f"delta.`{escaped}`"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
