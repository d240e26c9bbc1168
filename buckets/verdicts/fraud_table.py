"""A table of confirmed fraud from elsewhere: charge-backs, or closed cases, a row for each event."""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from buckets.errors import BucketsError, first_line
from buckets.events import conversion
from buckets.events.schema import EventSchema

EVENT_ID, EVENT_IDS, AMOUNT, VERDICT = "event_id", "event_ids", "amount", "verdict"
FraudRow = tuple[str, int | None, Mapping[str, Any]]
"""The id of an event, its time in ms since the epoch where the table has it, and what else the table says of it."""


def read_fraud_table(path: Path, schema: EventSchema) -> list[FraudRow]:
    """The events of a table of fraud.

    Args:
        path: a Delta table, or a .parquet, .csv or .jsonl file. It has a row an event, with the id in a column that is
            called as in the event schema or `event_id`; or a row a case, with a list `event_ids`. Time, measures and
            attributes are taken by their names where they are there, and `amount`. Where there is a column `verdict`,
            only rows that say `fraud` count.
        schema: the event schema.

    Raises:
        BucketsError: it cannot be read, or has no ids.
    """
    try:
        rows = list(_rows(path))
    except BucketsError:
        raise
    except Exception as error:  # deltalake and pyarrow raise plain ones for what is gone or broken
        message = f"fraud {path}: cannot be read ({first_line(error)}); name a Delta table, .parquet, .csv or .jsonl"
        raise BucketsError(message) from None
    found: list[FraudRow] = []
    for number, row in enumerate(rows, 1):
        if row.get(VERDICT, "fraud") != "fraud":
            continue
        ids = next((row[name] for name in (schema.event_id, EVENT_ID, EVENT_IDS) if row.get(name)), None)
        if ids is None:
            message = (
                f"fraud {path}: row {number:,} has neither {schema.event_id} nor {EVENT_ID} nor {EVENT_IDS}; name a "
                "table with the id of each event that was fraud"
            )
            raise BucketsError(message)
        if isinstance(ids, list):
            found += [(str(event_id), None, {}) for event_id in ids]
        else:
            found.append((str(ids), _time_ms(row.get(schema.event_time.field), schema), _known(row, schema)))
    return found


def _known(row: Mapping[str, Any], schema: EventSchema) -> Mapping[str, Any]:
    """What a row says of an event besides its id and time."""
    names = (*schema.attributes, *schema.measures)
    known = {name: row[name] for name in names if row.get(name) not in (None, "")}
    if schema.measures and row.get(AMOUNT) not in (None, ""):
        known.setdefault(next(iter(schema.measures)), row[AMOUNT])
    return known


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    if (path / "_delta_log").exists():
        source = QueryBuilder().register("rows", DeltaTable(path))
        rows: list[Mapping[str, Any]] = pa.table(source.execute("select * from rows").read_all()).to_pylist()
        return rows
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
        return rows
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file, strict=True))
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not all(isinstance(row, Mapping) for row in rows):
            message = f"fraud {path}: has a line that is no JSON object; write one object a line"
            raise BucketsError(message)
        return rows
    message = f"fraud {path}: is no Delta table and no .parquet, .csv or .jsonl file; name one"
    raise BucketsError(message)


def _time_ms(written: Any, schema: EventSchema) -> int | None:
    """The time of an event; None where there is none, or none that the event schema can read."""
    if written is None or written == "":
        return None
    times_ms, faults = conversion.times_ms(pa.array([written]), schema.event_time)
    return None if faults else int(times_ms[0])
