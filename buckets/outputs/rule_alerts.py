"""The alerts of single rules or of all, read from results: only their rows of a time, and only the columns needed.

A table of Delta is read in batches of rows, with the rules and the time as filters; files without rows of that time
are not opened where their statistics say so. JSON lines are read one after the other.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError, first_line
from buckets.outputs.columns import ALERTS, SHADOW_ALERTS

TABLES = (ALERTS, SHADOW_ALERTS)
"""The outputs with alerts; a rule on trial has its own in the second."""
COLUMNS = ("rule_id", "event_id", "event_time", "key", "event")


def rule_alerts(
    folder: Path,
    output: str,
    rules: Collection[str] | None,
    from_ms: int | None = None,
    until_ms: int | None = None,
    with_event: bool = True,
) -> Iterator[dict[str, Any]]:
    """The alerts of some rules or of all, in no order; none where there is no such output.

    Args:
        folder: the output folder of a job or of `buckets evaluate`, or the tables of an audit.
        output: `alerts` or `shadow_alerts`.
        rules: the rules; None for all.
        from_ms: the first event time, in ms since the epoch; None for any.
        until_ms: the first event time that does not count; None for any.
        with_event: whether the text of the event is read, which is most of a row.

    Yields:
        Rows with `COLUMNS`: times in ms, key and event as dictionaries; `event` is None where it is not read.

    Raises:
        BucketsError: it cannot be read.
    """
    if (folder / output / "_delta_log").exists():
        names = COLUMNS if with_event else COLUMNS[:-1]
        yield from _of_table(folder / output, names, rules, from_ms, until_ms)
    elif (folder / f"{output}.jsonl").exists():
        yield from _of_lines(folder / f"{output}.jsonl", rules, from_ms, until_ms)


def alert_batches(
    table: Path,
    names: Collection[str],
    only: Mapping[str, Collection[str]] | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
    optional: Collection[str] = (),
    begins: Mapping[str, str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a Delta table of alerts, in no order and in batches.

    Args:
        table: the table; one that is not there has no rows.
        names: the columns that are read.
        only: by column, the values of the rows that are read; None for all rows.
        from_ms: the first event time, in ms since the epoch; None for any.
        until_ms: the first event time that does not count; None for any.
        optional: which of the columns are null where the table lacks them.
        begins: by column, how the texts of the rows that are read begin; None for all rows.

    Yields:
        Columns in the order of `names`, moments as int64 in ms since the epoch.

    Raises:
        BucketsError: it cannot be read.
    """
    if not (table / "_delta_log").exists():
        return
    lacking = frozenset(optional).difference(_columns_of(table)) if optional else ()
    columns = ", ".join(f'null as "{name}"' if name in lacking else f'"{name}"' for name in names)
    tests = [f'"{name}" in ({", ".join(map(_text, values))})' for name, values in (only or {}).items()]
    tests += [f'starts_with("{name}", {_text(start)})' for name, start in (begins or {}).items()]
    tests += [] if from_ms is None else [f"event_time >= {_moment(from_ms)}"]
    tests += [] if until_ms is None else [f"event_time < {_moment(until_ms)}"]
    where = f" where {' and '.join(tests)}" if tests else ""
    for batch in _query(table, f"select {columns} from alerts{where}"):
        for index, field in enumerate(batch.schema):
            if pa.types.is_timestamp(field.type):
                batch = batch.set_column(index, field.name, _in_ms(batch.column(index)))
        yield batch


def has_alerts(folder: Path) -> bool:
    """Whether a folder has an output of alerts, with rows or without."""
    return any((folder / name / "_delta_log").exists() or (folder / f"{name}.jsonl").exists() for name in TABLES)


@dataclass(frozen=True)
class AlertCount:
    """How many alerts a rule has.

    Attributes:
        alerts: their number.
        keys: how many keys have one.
        first_ms: the event time of the first, in ms; None where there is none.
        last_ms: that of the last.
    """

    alerts: int
    keys: int
    first_ms: int | None
    last_ms: int | None


def count_alerts(table: Path, rule_id: str) -> AlertCount:
    """How many alerts of a rule are in a Delta table, without reading more than two columns of them."""
    times = "min(event_time) as first, max(event_time) as last"
    asked = f"select count(*) as alerts, count(distinct key) as keys, {times} from alerts"
    (batch,) = [each for each in _query(table, f"{asked} where rule_id = {_text(rule_id)}") if each.num_rows]
    first, last = (_in_ms(batch.column(name))[0].as_py() for name in ("first", "last"))
    return AlertCount(batch.column("alerts")[0].as_py(), batch.column("keys")[0].as_py(), first, last)


def rules_with_alerts(folder: Path) -> list[str]:
    """The rules that have alerts in a folder, by their ids; for messages, and only of tables."""
    found: set[str] = set()
    for name in TABLES:
        if (folder / name / "_delta_log").exists():
            for batch in _query(folder / name, "select distinct rule_id from alerts"):
                found.update(batch.column(0).to_pylist())
    return sorted(found)


def _of_table(
    path: Path, names: Collection[str], rules: Collection[str] | None, from_ms: int | None, until_ms: int | None
) -> Iterator[dict[str, Any]]:
    only = None if rules is None else {"rule_id": rules}
    for batch in alert_batches(path, names, only, from_ms, until_ms):
        for row in batch.to_pylist():
            yield {"event": None} | row | {"key": _object(path, row["key"])} | _event(path, row)


def _columns_of(path: Path) -> frozenset[str]:
    try:
        return frozenset(field.name for field in open_table(path).schema().fields)
    except Exception as error:  # deltalake raises plain ones for logs that are gone or broken
        message = f"results {path}: the table cannot be read ({first_line(error)})"
        raise BucketsError(message) from None


def _in_ms(moments: pa.Array) -> pa.Array:
    return moments.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def _event(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    return {"event": _object(path, row["event"])} if row.get("event") is not None else {}


def _query(path: Path, query: str) -> Iterator[pa.RecordBatch]:
    try:
        for batch in QueryBuilder().register("alerts", open_table(path)).execute(query):
            yield pa.record_batch(batch)
    except Exception as error:  # deltalake raises plain ones for files that are gone or broken
        message = f"results {path}: the table cannot be read ({first_line(error)})"
        raise BucketsError(message) from None


def _of_lines(
    path: Path, rules: Collection[str] | None, from_ms: int | None, until_ms: int | None
) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                is_in_time = (from_ms is None or row["event_time"] >= from_ms) and (
                    until_ms is None or row["event_time"] < until_ms
                )
                if (rules is None or row["rule_id"] in rules) and is_in_time:
                    yield {name: row[name] for name in COLUMNS}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"results {path}: cannot be read as alerts ({first_line(error)}); name an output folder of buckets"
        raise BucketsError(message) from None


def _object(path: Path, text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        message = f"results {path}: a key or an event is not JSON; name an output folder of buckets"
        raise BucketsError(message) from None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _moment(time_ms: int) -> str:
    return f"to_timestamp_millis({time_ms})"
