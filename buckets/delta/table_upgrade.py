"""Delta tables of earlier releases: what they have, and the columns that they lack."""

from pathlib import Path

import pyarrow as pa
from deltalake import Schema

from buckets.delta.whole_table import open_table, tried

_CONSTRAINT = "delta.constraints."


def add_missing_columns(path: Path, columns: pa.Schema) -> None:
    """Add the columns that a table lacks; they are null in the rows that are there.

    Args:
        path: the table.
        columns: all columns that it should have; those that it lacks must be nullable.
    """
    tried(path, lambda: _add_missing_columns(path, columns))


def _add_missing_columns(path: Path, columns: pa.Schema) -> None:
    table = open_table(path)
    there = {field.name for field in table.schema().fields}
    missing = [field for field in columns if field.name not in there]
    if missing:
        table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)


def strict_columns(path: Path, columns: pa.Schema) -> list[str]:
    """Return the columns of a table that take no null, and should."""
    nullable = {field.name for field in columns if field.nullable}
    return [field.name for field in open_table(path).schema().fields if not field.nullable and field.name in nullable]


def constraints_of(path: Path) -> dict[str, str]:
    """Return the constraints of a table: SQL by name."""
    configuration = open_table(path).metadata().configuration
    return {key.removeprefix(_CONSTRAINT): sql for key, sql in configuration.items() if key.startswith(_CONSTRAINT)}


def is_same_sql(one: str | None, other: str) -> bool:
    """Return whether two texts of SQL differ at most in blanks: Spark writes a constraint with blanks of its own."""
    return one is not None and "".join(one.split()) == "".join(other.split())
