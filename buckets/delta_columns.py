"""Columns of a Delta table that a release has added since the table was made."""

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema


def add_missing_columns(table: DeltaTable, columns: pa.Schema) -> None:
    """Give a table the columns that it does not have yet; in the rows that are there they are null.

    Args:
        table: the table.
        columns: all that it is to have.
    """
    there = {field.name for field in table.schema().fields}
    missing = pa.schema([field.with_nullable(True) for field in columns if field.name not in there])
    if len(missing):
        table.alter.add_columns(DeltaSchema.from_arrow(missing).fields)
