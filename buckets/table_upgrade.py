"""Delta tables that an earlier release has made, brought up to the columns and constraints of this one."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema

_CONSTRAINT = "delta.constraints."


def upgrade_table(path: Path, columns: pa.Schema, constraints: Mapping[str, str] | None = None) -> None:
    """Add the columns that a table lacks, null in the rows that are there, and renew constraints that have changed.

    Args:
        path: the table.
        columns: all columns that it is to have; those that it lacks must be nullable.
        constraints: by name, the SQL of those that it is to have; None to leave them alone.
    """
    table = DeltaTable(path)
    there = {field.name for field in table.schema().fields}
    missing = [field for field in columns if field.name not in there]
    if missing:
        table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
    configuration = table.metadata().configuration
    for name, sql in (constraints or {}).items():
        held = configuration.get(_CONSTRAINT + name)
        if held == sql:
            continue
        if held is not None:
            table.alter.drop_constraint(name)
        table.alter.add_constraint({name: sql})
