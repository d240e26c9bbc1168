"""Reads whole outputs from disk, Delta tables or JSON lines, without Spark; see `recorded_outputs`."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from buckets.delta.query import is_table
from buckets.errors import BucketsError
from buckets.outputs.columns import OBJECTS, TIME, names_of
from buckets.outputs.output import VALUE
from buckets.outputs.recorded_outputs import ALL, Row, Selection, has_output, output_rows, output_table
from buckets.outputs.typed_columns import with_structs
from buckets.stores.location import location


def read_output(folder: str | Path, name: str, columns: list[str] | None = None) -> pa.Table:
    """Read an output as a table, as `evaluate` gives it.

    Args:
        folder: the output folder of a job (Delta tables), or of `buckets evaluate` (JSON lines).
        name: the output, such as `alerts`.
        columns: which columns are wanted; None for all.

    Returns:
        One row a row, times as timestamps in UTC, values as decimals, keys, events and terms as structs. Amounts in
        events are text, as they are in the files: how many digits they have is in the event schema.

    Raises:
        BucketsError: there is no such output, it cannot be read, or it lacks a column.
    """
    folder = _checked(folder, name)
    if is_table(folder / name):
        return with_structs(_timed(output_table(folder / name, columns)))
    shown = [{field: _as_read(field, row[field]) for field in row} for row in output_rows(folder, name, columns)]
    return with_structs(_timed(pa.Table.from_pylist(shown)))


def read_rows(
    folder: str | Path,
    name: str,
    columns: list[str] | None = None,
    optional: tuple[str, ...] = (),
    selection: Selection = ALL,
) -> list[Row]:
    """Read rows of an output at once, as `output_rows` gives them.

    Raises:
        BucketsError: there is no such output, it cannot be read, or it lacks a column.
    """
    return list(output_rows(_checked(folder, name), name, columns, selection, optional))


def _checked(folder: str | Path, name: str) -> Path:
    """Return a folder that has an output.

    Raises:
        BucketsError: it has none.
    """
    folder = location(str(folder))
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        message = f"results {folder}: {what}; name the output folder of a run (`output.path`) or of an evaluation"
        raise BucketsError(message)
    if not has_output(folder, name):
        message = f"results {folder}: there is neither a table {name} nor a file {name}.jsonl; name an output folder"
        raise BucketsError(message)
    return folder


TIMES = names_of(TIME) | {"latest_event_time", "decided_at", "ingested_at"}
"""Columns of outputs, of batches and of messages that hold times."""
_VALUES = names_of(VALUE)


def _as_read(name: str, value: Any) -> Any:
    """Return a field of JSON as a column of a table takes it."""
    if value is None:
        return None
    if name in OBJECTS:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Decimal(value) if name in _VALUES else value


def _timed(table: pa.Table) -> pa.Table:
    """Return a table with its moments as timestamps in ms."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) or (field.name in TIMES and pa.types.is_integer(field.type)):
            table = table.set_column(index, field.name, table.column(index).cast(TIME, safe=False))
    return table
