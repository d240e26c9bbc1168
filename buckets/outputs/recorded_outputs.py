"""The only reader of a job's recorded results: Delta tables of its output or audit, or JSON lines of an evaluation.

A table is read in batches of rows with filters; files without matching rows are not opened if their statistics show it.
JSON lines are read one after the other.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from buckets.delta.whole_table import (
    in_ms,
    is_between,
    is_in,
    is_table,
    open_table,
    query,
    query_batches,
    readable,
    sql_text,
)
from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.json_text import write_json
from buckets.moment import ANY_TIME, TimeRange
from buckets.outputs.columns import ALERTS, HELD_ALERTS, OBJECTS, SHADOW_ALERTS, TIME, names_of, with_structs
from buckets.outputs.output import VALUE
from buckets.printable import quoted
from buckets.stores.location import location

Row = dict[str, Any]
RAISED = (ALERTS, SHADOW_ALERTS)  # The outputs with raised alerts; those of rules on trial are in the second
ALERT_OUTPUTS = (*RAISED, HELD_ALERTS)
"""By precedence, for an alert in several of them because its event was evaluated again."""
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
    """Which rows of an output are read."""

    # by column, the selected values
    values: Mapping[str, Collection[str | int]] = field(default_factory=dict)
    times: TimeRange = ANY_TIME  # the selected event times
    tests: Collection[str] = ()  # further conditions in SQL, which only tables know

    def sql(self) -> str:
        """Return the WHERE clause of a query over a table."""
        tests = [is_in(name, values) for name, values in self.values.items()]
        tests += [*is_between("event_time", self.times), *self.tests]
        return f" where {' and '.join(tests)}" if tests else ""

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of JSON lines is selected."""
        assert not self.tests
        is_of_time = self.times == ANY_TIME or self.times.has(row["event_time"])
        return is_of_time and all(row[name] in values for name, values in self.values.items())


ALL = Selection()


def has_output(folder: Path, output: str) -> bool:
    """Return whether a folder has an output, even an empty one."""
    return is_table(folder / output) or _lines_of(folder, output).exists()


def output_rows(
    folder: Path,
    output: str,
    columns: Collection[str] | None = None,
    selection: Selection = ALL,
    optional: Collection[str] = (),
) -> Iterator[Row]:
    """Read rows of an output of a job, an evaluation or an audit, in no order; empty if the output is missing.

    Keys, events and terms are objects, times are in ms since the epoch. Values are decimals in tables and text in JSON
    lines. Columns of `optional` are None if the output was written without them; others must exist.
    """
    if is_table(folder / output):
        for batch in output_batches(folder / output, columns, selection, optional):
            yield from rows_of(batch, folder / output)
    elif _lines_of(folder, output).exists():
        yield from _rows_of_lines(_lines_of(folder, output), columns, selection, optional)


def output_batches(
    path: Path, columns: Collection[str] | None, selection: Selection, optional: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Read rows of a table as `output_rows` does, timestamps as int64 in ms; a missing table has no rows."""
    if is_table(path):
        table, sql = _asked(path, columns, selection, optional)
        yield from map(in_ms, query_batches(table, sql, f"results {path}"))


def output_table(path: Path, columns: Collection[str] | None = None, selection: Selection = ALL) -> pa.Table:
    """Read rows of a table as `output_rows` does, in the types of its columns."""
    table, sql = _asked(path, columns, selection, ())
    return query(table, sql, f"results {path}")


def rows_of(rows: pa.Table | pa.RecordBatch, path: Path) -> list[Row]:
    """Return rows of an output in the form of `output_rows`."""
    plain: list[Row] = in_ms(rows).to_pylist()
    for name in _OBJECTS.keys() & set(rows.schema.names):
        for row in plain:
            row[name] = _object(path, name, row[name])
    return plain


def _unreadable(path: Path, reason: str) -> BucketsError:
    return BucketsError(f"results {path}: {reason}")


def _lines_of(folder: Path, output: str) -> Path:
    return folder / f"{output}.jsonl"


def _asked(
    path: Path, columns: Collection[str] | None, selection: Selection, optional: Collection[str]
) -> tuple[DeltaTable, str]:
    with readable(f"results {path}"):
        table = open_table(path)
        there = [field.name for field in table.schema().fields]
    wanted = there if columns is None else columns
    missing = next((name for name in wanted if name not in there and name not in optional), None)
    if missing is not None:
        raise _unreadable(path, f"there is no column {missing!r}; there are {', '.join(there)}")
    listed = ", ".join(f'"{name}"' if name in there else f'null as "{name}"' for name in wanted)
    return table, f"select {listed} from rows{selection.sql()}"


def _object(path: Path, name: str, text: Any) -> Any:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict | list | None):
        return value
    raise _unreadable(path, f"{_OBJECTS[name]} is not JSON; name an output folder of buckets")


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
        raise _unreadable(path, f"cannot be read ({error.strerror}); name an output folder of buckets") from None


_FEWEST = 8
_SHOWN = 3


def short_length(folder: Path) -> int:
    """Return how many characters of an id identify one alert among all in a folder; at least eight."""
    rows = (row for output in ALERT_OUTPUTS for row in output_rows(folder, output, ("alert_id",)))
    ids = sorted({row["alert_id"] for row in rows})
    shared = (_shared(one, other) for one, other in pairwise(ids))
    return max(_FEWEST, 1 + max(shared, default=0))


def full_alert_id(folder: Path, text: str) -> str:
    """Complete the beginning of an alert's id; refuse an ambiguous one, and return an unknown one unchanged."""
    alerts: dict[str, str] = {}
    begins = Selection(tests=[f"starts_with(alert_id, {sql_text(text)})"])
    for output in ALERT_OUTPUTS:
        for batch in output_batches(folder / output, ("alert_id", "rule_id", "event_id"), begins):
            for row in batch.to_pylist():
                alerts.setdefault(row["alert_id"], f"{row['rule_id']} at event {quoted(row['event_id'])}")
    if text in alerts or not alerts:
        return text
    first, *others = sorted(alerts)
    if not others:
        return first
    length = 1 + max(_shared(one, other) for one, other in pairwise([first, *others]))
    shown = [f"{alert_id[:length]} ({alerts[alert_id]})" for alert_id in [first, *others][:_SHOWN]]
    more = f" and {len(alerts) - _SHOWN:,} more" if len(alerts) > _SHOWN else ""
    message = (
        f"alert {quoted(text)} is ambiguous: {len(alerts):,} ids in {folder} begin with it, {', '.join(shown)}{more}; "
        "give more of the id"
    )
    raise BucketsError(message)


def _shared(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def has_alerts(folder: Path) -> bool:
    """Return whether a folder has an output of alerts, even an empty one."""
    return any(has_output(folder, output) for output in RAISED)


def with_alerts(folder: Path | None) -> Path | None:
    """Return a folder of tables if it has recorded alerts, else None."""
    return folder if folder is not None and has_alerts(folder) else None


@dataclass(frozen=True)
class AlertCount:
    """How many alerts a rule has."""

    alerts: int  # their number
    keys: int  # how many keys have one
    first_ms: int | None  # the event time of the first, in ms; None where there is none
    last_ms: int | None  # that of the last


def count_alerts(table: Path, rule_id: str) -> AlertCount:
    """Count the alerts of a rule in a Delta table, reading at most two of its columns."""
    times = "min(event_time) as first_ms, max(event_time) as last_ms"
    counts = f"select count(*) as alerts, count(distinct key) as keys, {times} from rows"
    (found,) = in_ms(query(table, f"{counts} where {is_in('rule_id', [rule_id])}", f"results {table}")).to_pylist()
    return AlertCount(**found)


def rules_with_alerts(folder: Path) -> list[str]:
    """Return the ids of the rules that have alerts in a folder; for messages, and only of tables."""
    tables = [folder / output for output in RAISED if is_table(folder / output)]
    asked = (query(table, "select distinct rule_id from rows", f"results {table}") for table in tables)
    return sorted({rule_id for found in asked for rule_id in found["rule_id"].to_pylist()})


def alerts_by_day(table: Path, days: int) -> dict[str, dict[int, int]]:
    """Count the alerts of a Delta table by rule and day since 1970, on `days` days up to the latest with alerts."""
    if not is_table(table):
        return {}
    named = f"results {table}"
    (latest,) = in_ms(query(table, "select max(event_time) as ms from rows", named)).to_pylist()
    if latest["ms"] is None:
        return {}
    since = TimeRange((latest["ms"] // DAY_MS - days + 1) * DAY_MS, None)
    tests = " and ".join(is_between("event_time", since))
    counted = query(
        table,
        "select rule_id, date_trunc('day', event_time) as event_day, count(*) as alerts from rows "
        f"where {tests} group by rule_id, event_day",
        named,
    )
    found: dict[str, dict[int, int]] = {}
    for row in in_ms(counted).to_pylist():
        found.setdefault(row["rule_id"], {})[row["event_day"] // DAY_MS] = row["alerts"]
    return found


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
    """Read rows of an output at once, in the form of `output_rows`; refuse a missing output."""
    return list(output_rows(_checked(folder, name), name, columns, selection, optional))


def _checked(folder: str | Path, name: str) -> Path:
    folder = location(str(folder))
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise _unreadable(folder, f"{what}; name the output folder of a run (`output.path`) or of an evaluation")
    if not has_output(folder, name):
        raise _unreadable(folder, f"there is neither a table {name} nor a file {name}.jsonl; name an output folder")
    return folder


TIMES = names_of(TIME) | {"latest_event_time", "decided_at", "ingested_at"}
"""Columns of outputs, of batches and of messages that hold times."""
_VALUES = names_of(VALUE)


def _as_read(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in OBJECTS:
        return value if isinstance(value, str) else write_json(value)
    return Decimal(value) if name in _VALUES else value


def _timed(table: pa.Table) -> pa.Table:
    for index, each in enumerate(table.schema):
        if pa.types.is_timestamp(each.type) or (each.name in TIMES and pa.types.is_integer(each.type)):
            table = table.set_column(index, each.name, table.column(index).cast(TIME, safe=False))
    return table
