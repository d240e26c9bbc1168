"""Confirmed fraud, and the words for how rules do beside it.

    confirmed            an event that a person, or a table of cases, says was fraud, whether or not a rule fired at
it
    caught               confirmed, and a rule fired at it
    caught of confirmed  the share of confirmed fraud that was caught: recall
    fraud of judged      the share of fraud among alerts that turned out to be fraud or legitimate: precision in
                         `buckets rules quality`, which leaves out what nobody has looked at
    fraud of alerted     the share of confirmed fraud among all events that alerted: precision in `buckets backtest`,
                         where an event of which nobody has said anything counts as no fraud

People and scripts read both kinds of precision as `precision`, and the share of what was caught as `recall`.

The rows of a table of confirmed fraud, whoever has written it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from buckets.delta.whole_table import is_table, query
from buckets.errors import BucketsError, first_line
from buckets.events import conversion
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import finite_decimal
from buckets.stores.location import as_input, location

EVENT_ID, EVENT_IDS, AMOUNT = "event_id", "event_ids", "amount"
_VERDICT, _FRAUD, _MADE_AT = "verdict", "fraud", "made_at"
_KINDS = "a .csv, .jsonl or .parquet file, or a Delta table"


@dataclass(frozen=True)
class FraudRow:
    """What a row says of one event."""

    number: int  # of the row, from 1
    event_id: str  # the event
    said: Mapping[str, Any]  # the columns of the row that are about the event; none of a row that is about a whole case


def read_fraud_rows(path: Path, schema: EventSchema) -> list[FraudRow]:
    """Read the events that a table says were fraud, each once, as its last row says.

    Args:
        path: a CSV, JSON lines or Parquet file, or a Delta table.
        schema: the event schema, whose id the table may be written with.

    Raises:
        BucketsError: it cannot be read, or has no ids of events.
    """
    path = location(str(path))
    rows = list(_rows(path))
    if rows and all(row.get(_MADE_AT) is not None for row in rows):
        rows.sort(key=lambda row: row[_MADE_AT])
    there = list(dict.fromkeys(name for row in rows for name in row))
    column = next((name for name in (schema.event_id, EVENT_ID, EVENT_IDS) if name in there), None)
    if rows and column is None:
        message = (
            f"fraud {path}: has no column {schema.event_id!r}, {EVENT_ID!r} or {EVENT_IDS!r} with ids of events; "
            f"columns there: {', '.join(there)}"
        )
        raise BucketsError(message)
    rows_of: dict[str, FraudRow] = {}
    for number, row in enumerate(rows, 1):
        written = row.get(column or "")
        if written in (None, ""):
            continue
        if row.get(_VERDICT, _FRAUD) != _FRAUD:
            rows_of.pop(str(written), None)
            continue
        for event_id in written if isinstance(written, list) else [written]:
            rows_of[str(event_id)] = FraudRow(number, str(event_id), {} if column == EVENT_IDS else row)
    if not rows_of:
        message = f"fraud {path}: names no event; write the id of an event into each row"
        raise BucketsError(message)
    return list(rows_of.values())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        if is_table(path):
            yield from query(path, "select * from rows", f"fraud {path}").to_pylist()
        elif path.suffix.lower() == ".parquet":
            yield from pq.read_table(as_input(path)).to_pylist()
        elif path.suffix.lower() == ".csv":
            yield from _csv_rows(path)
        elif path.suffix.lower() in (".jsonl", ".json", ".ndjson"):
            yield from _json_rows(path)
        else:
            message = f"fraud {path}: is of an unknown kind; name {_KINDS}"
            raise BucketsError(message)
    except BucketsError:
        raise
    except Exception as error:  # deltalake raises plain ones for files that are gone or broken
        message = f"fraud {path}: cannot be read ({first_line(error)}); name {_KINDS}"
        raise BucketsError(message) from None


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows as texts: an id of digits keeps its zeros."""
    header = pyarrow.csv.open_csv(as_input(path)).schema.names
    texts = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    yield from pyarrow.csv.read_csv(as_input(path), convert_options=texts).to_pylist()


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                row = json.loads(line, parse_float=Decimal)
                if not isinstance(row, dict):
                    message = f"fraud {path}: line {number:,} is no JSON object; write one object a line"
                    raise BucketsError(message)
                yield row


@dataclass(frozen=True)
class Fraud:
    """An event that was fraud, and what is known of it."""

    event_id: str  # its id
    event_time_ms: int | None = None  # when it happened, in ms since the epoch
    amount: Decimal | None = None  # its first measure, or another one that was asked for
    fields: Mapping[str, Any] = field(default_factory=dict)  # its other fields

    @staticmethod
    def of(event_id: str, time_ms: int | None, fields: Mapping[str, Any], measure: str | None) -> "Fraud":
        """Make one of an event, whose amount is that of a measure."""
        amount = None if measure is None else finite_decimal(fields.get(measure))
        return Fraud(event_id, time_ms, amount, {name: value for name, value in fields.items() if value is not None})

    def completed(self, other: "Fraud") -> "Fraud":
        """Return it with what another source knows besides."""
        return replace(
            self,
            event_time_ms=other.event_time_ms if self.event_time_ms is None else self.event_time_ms,
            amount=other.amount if self.amount is None else self.amount,
            fields={**other.fields, **self.fields},
        )


def read_fraud_table(path: Path, schema: EventSchema, measure: str | None) -> list[Fraud]:
    """Read a table of confirmed fraud from elsewhere: charge-backs, or closed cases, a row for each event.

    Args:
        path: a table as `read_fraud_rows` takes it. Time, measures and attributes are taken by their names where they
            are there, and `amount`.
        schema: the event schema.
        measure: whose values are the amounts.

    Raises:
        BucketsError: it cannot be read, or has no ids.
    """
    return [
        Fraud.of(
            row.event_id, _time_ms(row.said.get(schema.event_time.field), schema), _known(row.said, schema), measure
        )
        for row in read_fraud_rows(path, schema)
    ]


def _known(row: Mapping[str, Any], schema: EventSchema) -> Mapping[str, Any]:
    """Return what a row says of an event besides its id and time."""
    names = (*schema.attributes, *schema.measures)
    known = {name: row[name] for name in names if row.get(name) not in (None, "")}
    if schema.measures and row.get(AMOUNT) not in (None, ""):
        known.setdefault(next(iter(schema.measures)), row[AMOUNT])
    return known


def _time_ms(written: Any, schema: EventSchema) -> int | None:
    """Return the time of an event; None where there is none, or none that the event schema can read."""
    if written is None or written == "":
        return None
    times_ms, faults = conversion.times_ms(pa.array([written]), schema.event_time)
    return None if faults else int(times_ms[0])
