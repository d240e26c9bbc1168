"""The one reader of what a job has recorded: Delta tables of its output or its audit, or JSON lines of an evaluation.

A table is read in batches of rows, with those that are wanted as filters: files without any of them are not opened
where their statistics say so. JSON lines are read one after the other.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from buckets.delta.query import in_ms, is_between, is_in, is_table, query, query_batches, readable
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.moment import ANY_TIME, TimeRange
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS

Row = dict[str, Any]
RAISED = (ALERTS, SHADOW_ALERTS)
"""The outputs with alerts that came out; a rule on trial has its own in the second."""
ALERT_OUTPUTS = (*RAISED, HELD_ALERTS)
"""In the order in which an alert counts that is in several of them, because its event was evaluated again."""
_OBJECTS = {
    "key": "a key",
    "event": "an event",
    "terms": "a term",
    "other_values": "a value",
    "own_values": "a value",
}
"""Columns that are JSON as text in tables."""


@dataclass(frozen=True)
class Selection:
    """Which rows of an output are read.

    Attributes:
        values: by column, the values that rows may have.
        times: the event times that rows may have.
        tests: further conditions in SQL, which only tables know.
    """

    values: Mapping[str, Collection[str | int]] = field(default_factory=dict)
    times: TimeRange = ANY_TIME
    tests: Collection[str] = ()

    def sql(self) -> str:
        """Return the clause of a query over a table."""
        tests = [is_in(name, values) for name, values in self.values.items()]
        tests += [*is_between("event_time", self.times), *self.tests]
        return f" where {' and '.join(tests)}" if tests else ""

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of JSON lines is wanted."""
        assert not self.tests
        is_of_time = self.times == ANY_TIME or self.times.has(row["event_time"])
        return is_of_time and all(row[name] in values for name, values in self.values.items())


ALL = Selection()


def has_output(folder: Path, output: str) -> bool:
    """Return whether a folder has an output, with rows or without."""
    return is_table(folder / output) or _lines_of(folder, output).exists()


def output_rows(
    folder: Path,
    output: str,
    columns: Collection[str] | None = None,
    selection: Selection = ALL,
    optional: Collection[str] = (),
) -> Iterator[Row]:
    """Read rows of an output, in no order; none where there is no such output.

    Args:
        folder: the output folder of a job or of `buckets evaluate`, or the tables of an audit.
        output: the output, such as `alerts`.
        columns: which columns are wanted; None for all.
        selection: which rows.
        optional: which of the columns are None where an earlier release has written the output without them.

    Yields:
        Dictionaries: keys, events and terms as objects, times in ms since the epoch. Values are decimals in tables and
        text in JSON lines.

    Raises:
        BucketsError: it cannot be read, or lacks a column.
    """
    if is_table(folder / output):
        for batch in output_batches(folder / output, columns, selection, optional):
            yield from rows_of(batch, folder / output)
    elif _lines_of(folder, output).exists():
        yield from _rows_of_lines(_lines_of(folder, output), columns, selection, optional)


def output_batches(
    path: Path,
    columns: Collection[str] | None = None,
    selection: Selection = ALL,
    optional: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Read rows of a table as `output_rows` does, moments as int64 in ms; one that is not there has no rows."""
    if is_table(path):
        table, sql = _asked(path, columns, selection, optional)
        yield from map(in_ms, query_batches(table, sql, _named(path)))


def output_table(
    path: Path,
    columns: Collection[str] | None = None,
    selection: Selection = ALL,
    optional: Collection[str] = (),
) -> pa.Table:
    """Read rows of a table as `output_rows` does, in the types that its columns have."""
    table, sql = _asked(path, columns, selection, optional)
    return query(table, sql, _named(path))


def rows_of(rows: pa.Table | pa.RecordBatch, path: Path) -> list[Row]:
    """Return rows of an output as `output_rows` does.

    Raises:
        BucketsError: a key, an event or a term is not JSON.
    """
    plain: list[Row] = in_ms(rows).to_pylist()
    for name in _OBJECTS.keys() & set(rows.schema.names):
        for row in plain:
            row[name] = _object(path, name, row[name])
    return plain


def _named(path: Path) -> str:
    return f"results {path}"


def _lines_of(folder: Path, output: str) -> Path:
    return folder / f"{output}.jsonl"


def _asked(
    path: Path, columns: Collection[str] | None, selection: Selection, optional: Collection[str]
) -> tuple[DeltaTable, str]:
    """Return a table, and the query for its rows.

    Raises:
        BucketsError: it cannot be opened, or lacks a column.
    """
    with readable(_named(path)):
        table = open_table(path)
        there = [field.name for field in table.schema().fields]
    wanted = there if columns is None else columns
    missing = next((name for name in wanted if name not in there and name not in optional), None)
    if missing is not None:
        message = f"results {path}: there is no column {missing!r}; there are {', '.join(there)}"
        raise BucketsError(message)
    listed = ", ".join(f'"{name}"' if name in there else f'null as "{name}"' for name in wanted)
    return table, f"select {listed} from rows{selection.sql()}"


def _object(path: Path, name: str, text: Any) -> Any:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict | list | None):
        return value
    message = f"results {path}: {_OBJECTS[name]} is not JSON; name an output folder of buckets"
    raise BucketsError(message)


def _rows_of_lines(
    path: Path, columns: Collection[str] | None, selection: Selection, optional: Collection[str]
) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), 1):
        try:
            row = dict.fromkeys(optional) | dict(json.loads(line))
            is_wanted = selection.has(row)
            shown = {name: row[name] for name in (row if columns is None else columns)}
        except (ValueError, TypeError, KeyError, RecursionError):
            wanted = f" with {', '.join(columns)}" if columns else ""
            message = f"results {path}:{number}: is not a result{wanted}; name an output folder of buckets"
            raise BucketsError(message) from None
        if is_wanted:
            yield shown


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as lines:
            yield from lines
    except OSError as error:
        message = f"results {path}: cannot be read ({error.strerror}); name an output folder of buckets"
        raise BucketsError(message) from None
