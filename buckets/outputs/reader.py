"""Reads results from disk, Delta tables or JSON lines, without Spark."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError, first_line
from buckets.outputs.columns import TIME
from buckets.outputs.typed_columns import with_structs

Rows = list[dict[str, Any]]


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
    folder = Path(folder)
    if _is_delta(folder, name):
        return with_structs(_timed(_read_delta(folder / name, columns, ())))
    rows = read_rows(folder, name, columns)
    shown = [{field: _as_read(field, value) for field, value in row.items()} for row in rows]
    return with_structs(_timed(pa.Table.from_pylist(shown)))


TIMES = ("event_time", "clock", "window_start", "window_end", "latest_event_time", "decided_at", "ingested_at")
"""Columns of outputs that hold times."""
_VALUES = ("value", "lower", "upper")
_OBJECTS = ("key", "event", "terms")


def _as_read(name: str, value: Any) -> Any:
    """Return a field of JSON as a column of a table takes it."""
    if value is None:
        return None
    if name in _OBJECTS:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Decimal(value) if name in _VALUES else value


def _timed(table: pa.Table) -> pa.Table:
    """Return a table with its moments as timestamps in ms."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) or (field.name in TIMES and pa.types.is_integer(field.type)):
            table = table.set_column(index, field.name, table.column(index).cast(TIME, safe=False))
    return table


def read_rows(folder: str | Path, name: str, columns: list[str] | None = None, optional: tuple[str, ...] = ()) -> Rows:
    """The rows of an output.

    Args:
        folder: the output folder of a job (Delta tables), or of `buckets evaluate` (JSON lines).
        name: the output, such as `alerts`.
        columns: which columns are wanted; None for all.
        optional: which of them are None where an earlier release has written the output without them.

    Returns:
        One dictionary a row, keys as dictionaries, times in ms since the epoch. Values are decimals in Delta tables and
        text in JSON lines.

    Raises:
        BucketsError: there is no such output, it cannot be read, or it lacks a column.
    """
    folder = Path(folder)
    if _is_delta(folder, name):
        return _delta_rows(folder / name, columns, optional)
    lines = folder / f"{name}.jsonl"
    if lines.exists():
        return _read_lines(lines, columns, optional)
    message = f"results {folder}: there is neither a table {name} nor a file {name}.jsonl; name an output folder"
    raise BucketsError(message)


def _is_delta(folder: Path, name: str) -> bool:
    """Return whether an output is a Delta table."""
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        message = f"results {folder}: {what}; name the output folder of a run (`output.path`) or of an evaluation"
        raise BucketsError(message)
    return (folder / name / "_delta_log").exists()


def _read_lines(path: Path, columns: list[str] | None, optional: tuple[str, ...]) -> Rows:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        message = f"results {path}: cannot be read ({error.strerror}); name an output folder of buckets"
        raise BucketsError(message) from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = dict.fromkeys(optional) | dict(json.loads(line))
            rows.append({column: row[column] for column in (dict(row) if columns is None else columns)})
        except (ValueError, TypeError, KeyError, RecursionError):
            wanted = f" with {', '.join(columns)}" if columns else ""
            message = f"results {path}:{number}: is not a result{wanted}; name an output folder of buckets"
            raise BucketsError(message) from None
    return rows


def _read_delta(path: Path, columns: list[str] | None, optional: tuple[str, ...]) -> pa.Table:
    """Return the wanted columns that a table has; those that it may lack are left out where it does."""
    try:
        source = open_table(path)
        there = [field.name for field in source.schema().fields]
        lacking = [column for column in columns or () if column not in there]
        missing = next((column for column in lacking if column not in optional), None)
        if missing is not None:
            message = f"results {path}: there is no column {missing!r}; there are {', '.join(there)}"
            raise BucketsError(message)
        quoted = ", ".join(f'"{column}"' for column in (column for column in columns or there if column in there))
        return pa.table(QueryBuilder().register("rows", source).execute(f"select {quoted} from rows").read_all())
    except BucketsError:
        raise
    except Exception as error:  # deltalake raises plain ones for files that are gone or broken
        message = f"results {path}: the table cannot be read ({first_line(error)})"
        raise BucketsError(message) from None


def _delta_rows(path: Path, columns: list[str] | None, optional: tuple[str, ...]) -> Rows:
    table = _read_delta(path, columns, optional)
    lacking = [column for column in columns or () if column not in table.column_names]
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            in_ms = table.column(index).cast(pa.timestamp("ms", "UTC"), safe=False)
            table = table.set_column(index, field.name, in_ms.cast(pa.int64()))
    rows: Rows = table.to_pylist()
    for row in rows:
        row |= dict.fromkeys(lacking)
        if isinstance(row.get("key"), str):
            row["key"] = _parse_key(path, row["key"])
    return rows


def _parse_key(path: Path, key: str) -> Any:
    try:
        return json.loads(key)
    except (ValueError, RecursionError):
        message = f"results {path}: a key is not JSON; name an output folder of buckets"
        raise BucketsError(message) from None
