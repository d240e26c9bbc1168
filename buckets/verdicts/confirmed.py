"""Confirmed fraud: events that were fraud by a verdict or a table of cases, whether or not a rule fired on them.

The time, amount and fields of such an event are taken from the archive, if there is one, then from an alert on it, then
from the table of fraud, then from its verdict. Verdicts are completed from their alerts and events.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from buckets.config.job import Job, results_folder
from buckets.delta.whole_table import is_table, query
from buckets.errors import BucketsError, first_line
from buckets.events import conversion
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import finite_decimal
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, ALL, Selection, output_rows
from buckets.printable import quoted
from buckets.stores.location import as_input, location
from buckets.verdicts.verdict import Findings, Verdict, findings
from buckets.verdicts.verdict_table import load_verdicts, verdict_table

EVENT_ID, EVENT_IDS, AMOUNT = "event_id", "event_ids", "amount"
VERDICT, MADE_AT, _FRAUD = "verdict", "made_at", "fraud"
FraudRows = Mapping[str, tuple[int, Mapping[str, Any]]]
"""By the id of a fraud event, the number of the last row about it, from 1, and its columns."""
_KINDS = "a .csv, .jsonl or .parquet file, or a Delta table"


def read_fraud_rows(path: Path, schema: EventSchema) -> FraudRows:
    """Read `fraud_rows` from a CSV, JSON lines or Parquet file, or a Delta table."""
    path = location(str(path))
    return fraud_rows(list(_rows(path)), f"fraud {path}", schema)


def id_column(there: Sequence[str], origin: str, schema: EventSchema) -> str:
    """Return which of a table's columns holds the ids of events; BucketsError if none does."""
    column = next((name for name in (schema.event_id, EVENT_ID, EVENT_IDS) if name in there), None)
    if column is None:
        message = (
            f"{origin}: has no column {schema.event_id!r}, {EVENT_ID!r} or {EVENT_IDS!r} with ids of events; "
            f"columns there: {', '.join(there)}"
        )
        raise BucketsError(message)
    return column


def fraud_rows(rows: list[dict[str, Any]], origin: str, schema: EventSchema) -> FraudRows:
    """Return the fraud events in the rows of a table.

    The id may have the event schema's name for it. A row about a whole case has no columns for its events.
    """
    if rows and all(row.get(MADE_AT) is not None for row in rows):
        rows.sort(key=lambda row: row[MADE_AT])
    column = id_column(list(dict.fromkeys(name for row in rows for name in row)), origin, schema) if rows else ""
    rows_of: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for number, row in enumerate(rows, 1):
        written = row.get(column)
        if written in (None, ""):
            continue
        if row.get(VERDICT, _FRAUD) != _FRAUD:
            rows_of.pop(str(written), None)
            continue
        for event_id in written if isinstance(written, list) else [written]:
            rows_of[str(event_id)] = number, {} if column == EVENT_IDS else row
    if not rows_of:
        message = f"{origin}: names no event; write the id of an event into each row"
        raise BucketsError(message)
    return rows_of


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
    """Yield rows as texts, so that ids of digits keep their zeros."""
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
                    message = f"fraud {path}: line {number:,} is not a JSON object; write one object a line"
                    raise BucketsError(message)
                yield row


Amounts = Mapping[str, Decimal | None]
"""By the id of a fraud event, its amount; None if unknown."""


def given_fraud(fraud: Mapping[str, Any]) -> Amounts:
    """Check confirmed fraud from a program: amounts by id, as numbers, texts, or floats as their shortest text."""
    if not isinstance(fraud, Mapping):
        message = f"fraud: must be amounts by id, as a dict, not {type(fraud).__name__}; None is an amount as well"
        raise BucketsError(message)
    amounts: dict[str, Decimal | None] = {}
    for event_id, written in fraud.items():
        if not isinstance(event_id, str):
            message = f"fraud: the id {event_id!r} is not text; give ids as str"
            raise BucketsError(message)
        amount = finite_decimal(written)
        if amount is None and written is not None:
            remedy = "give one, or None for the event's own"
            message = f"fraud: the amount {written!r} of {event_id!r} is not a number; {remedy}"
            raise BucketsError(message)
        amounts[event_id] = amount
    return amounts


def fraud_amounts(rows: FraudRows, origin: str, measure: str | None) -> Amounts:
    """Return the amounts of confirmed fraud, also from the column of the measure; messages name `origin`."""
    amounts: dict[str, Decimal | None] = {}
    for event_id, (number, row) in rows.items():
        named = (row[name] for name in (AMOUNT, measure) if name is not None and row.get(name) is not None)
        written = next(named, "")
        amount = finite_decimal(written)
        if amount is None and written != "":
            remedy = "write digits, as in 120.50"
            message = f"{origin}: row {number:,}: the amount {written!r} is not a number; {remedy}"
            raise BucketsError(message)
        amounts[event_id] = amount
    return amounts


def read_confirmed_fraud(path: Path, schema: EventSchema, measure: str | None) -> Amounts:
    """Read confirmed fraud from the formats of `read_fraud_rows`."""
    return fraud_amounts(read_fraud_rows(path, schema), f"fraud {path}", measure)


@dataclass(frozen=True)
class Fraud:
    """A fraudulent event, with its known data."""

    event_id: str  # its id
    event_time_ms: int | None = None  # when it happened, in ms since the epoch
    amount: Decimal | None = None  # its first measure, or another one that was asked for
    fields: Mapping[str, Any] = field(default_factory=dict)  # its other fields

    @staticmethod
    def of(event_id: str, time_ms: int | None, fields: Mapping[str, Any], measure: str | None) -> "Fraud":
        """Make one from an event, with a measure as its amount."""
        amount = None if measure is None else finite_decimal(fields.get(measure))
        return Fraud(event_id, time_ms, amount, {name: value for name, value in fields.items() if value is not None})


def read_fraud_table(path: Path, schema: EventSchema, measure: str | None) -> list[Fraud]:
    """Read an external table of confirmed fraud, such as charge-backs or closed cases, with a row per event.

    Time, measures and attributes are read from columns of their names, if present, and `amount` too, in the form of
    `measure`.
    """
    frauds = []
    names, time = (*schema.attributes, *schema.measures), schema.event_time.field
    for event_id, (_, row) in read_fraud_rows(path, schema).items():
        fields, time_ms = {name: row[name] for name in names if row.get(name) not in (None, "")}, None
        if schema.measures and row.get(AMOUNT) not in (None, ""):
            fields.setdefault(next(iter(schema.measures)), row[AMOUNT])
        if row.get(time) not in (None, ""):
            times_ms, faults = conversion.times_ms(pa.array([row[time]]), schema.event_time)
            time_ms = None if faults else int(times_ms[0])
        frauds.append(Fraud.of(event_id, time_ms, fields, measure))
    return frauds


_COLUMNS = ("alert_id", "rule_id", "event_id", "event_time", "key", "decided_at")
_OPTIONAL = ("decided_at",)


@dataclass(frozen=True, slots=True)
class RecordedAlert:
    """An alert."""

    output: str  # `alerts`, `shadow_alerts` or `held_alerts`
    alert_id: str  # its id
    rule_id: str  # of the rule that fired
    event_id: str  # of its event
    event_time_ms: int  # when that happened, in ms since the epoch
    key: Mapping[str, Any]  # by field
    decided_ms: int | None = None  # when the alert was decided on; None where tables do not say so


def recorded_alerts(folder: Path, wanted: Selection = ALL) -> Iterator[RecordedAlert]:
    """Yield alerts of a job, each id once; keeps all ids in memory."""
    seen: set[str] = set()
    for output in ALERT_OUTPUTS:
        for row in output_rows(folder, output, _COLUMNS, wanted, _OPTIONAL):
            if row["alert_id"] not in seen:
                seen.add(row["alert_id"])
                yield RecordedAlert(output, *(row[name] for name in _COLUMNS))


def find_alerts(folder: Path, alert_ids: Collection[str]) -> dict[str, RecordedAlert]:
    """Return those of the alerts that a job has recorded, by id."""
    alerts = recorded_alerts(folder, Selection({"alert_id": alert_ids})) if alert_ids else ()
    return {alert.alert_id: alert for alert in alerts}


def alerted_events(folder: Path, event_ids: Collection[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return the events that have alerts: by id the time in ms, and the fields recorded with the alert."""
    events: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for output in ALERT_OUTPUTS if event_ids else ():
        wanted = Selection({"event_id": event_ids})
        for row in output_rows(folder, output, ("event_id", "event_time", "event"), wanted):
            events.setdefault(row["event_id"], (row["event_time"], row["event"]))
    return events


FindEvents = Callable[[Collection[str]], Mapping[str, tuple[int, Mapping[str, Any]]]]
"""Looks events up by id: returns the known ones, with the time in ms and the fields."""


def confirmed_fraud(
    job: Job,
    table: Path | None = None,
    measure: str | None = None,
    find_events: FindEvents | None = None,
    verdicts: Findings | None = None,
) -> dict[str, Fraud]:
    """Return by id the fraudulent events by a job's verdicts or by a table of cases; see `read_fraud_table`.

    Amounts are those of `measure`, or of the first measure. `find_events` looks events up in the archive. `verdicts`
    are the ones that count, if already read.
    """
    verdicts = findings(job_verdicts(job)) if verdicts is None else verdicts
    measure = measure or next(iter(job.event_schema.measures), None)
    by_verdicts = [
        Fraud(event_id, verdict.event_time_ms, verdict.amount, verdict.key or {})
        for event_id, verdict in verdicts.by_event.items()
        if verdict.verdict == "fraud"
    ]
    listed = [] if table is None else read_fraud_table(table, job.event_schema, measure)
    ids = {fraud.event_id for fraud in (*by_verdicts, *listed)}
    archived = find_events(ids) if find_events is not None and ids else {}
    alerted = alerted_events(results_folder(job), ids - archived.keys())
    sources: list[Iterable[Fraud]] = [
        (Fraud.of(event_id, *facts, measure) for known in (archived, alerted) for event_id, facts in known.items()),
        listed,
        by_verdicts,
    ]
    frauds: dict[str, Fraud] = {}
    for fraud in chain.from_iterable(sources):
        # Earlier sources take precedence.
        known = frauds.get(fraud.event_id, fraud)
        frauds[fraud.event_id] = Fraud(
            fraud.event_id,
            fraud.event_time_ms if known.event_time_ms is None else known.event_time_ms,
            fraud.amount if known.amount is None else known.amount,
            {**fraud.fields, **known.fields},
        )
    return frauds


def job_verdicts(job: Job) -> list[Verdict]:
    """Read all verdicts of a job, oldest first; one that names only its alert gets the alert's event."""
    verdicts = load_verdicts(verdict_table(job))
    lacking = {verdict.alert_id for verdict in verdicts if verdict.event_id is None and verdict.alert_id is not None}
    known = find_alerts(results_folder(job), lacking) if lacking else {}
    return [
        replace(verdict, event_id=known[verdict.alert_id].event_id)
        if verdict.event_id is None and verdict.alert_id in known
        else verdict
        for verdict in verdicts
    ]


def complete(
    verdicts: Sequence[Verdict], folder: Path, find_events: FindEvents | None = None, is_checked: bool = True
) -> tuple[list[Verdict], dict[int, str]]:
    """Copy rule, event and key of alerts, and times of events, into the verdicts on them.

    Return the verdicts, and by index the faults of those about something unknown, if that is checked. Without
    `find_events`, which looks in the archive, any named event is accepted.
    """
    alerts = find_alerts(folder, {verdict.alert_id for verdict in verdicts if verdict.alert_id is not None})
    events = {verdict.event_id for verdict in verdicts if verdict.alert_id is None and verdict.event_id is not None}
    known = dict(find_events(events)) if find_events is not None and events else {}
    known = alerted_events(folder, events - known.keys()) | known
    completed: list[Verdict] = []
    faults: dict[int, str] = {}
    for index, verdict in enumerate(verdicts):
        alert, fault = alerts.get(verdict.alert_id or ""), None
        if alert is not None and verdict.event_id not in (None, alert.event_id):
            fault = f"alert {quoted(alert.alert_id)} is of event {quoted(alert.event_id)}, not {verdict.event_id}"
        elif alert is not None:
            event_id, time_ms = alert.event_id, alert.event_time_ms
            verdict = replace(verdict, rule_id=alert.rule_id, event_id=event_id, event_time_ms=time_ms, key=alert.key)
        elif verdict.alert_id is not None and is_checked:
            fault = f"there is no alert {quoted(verdict.alert_id)} in {folder}; --unchecked accepts it anyway"
        elif verdict.alert_id is None and verdict.event_id in known:
            verdict = replace(verdict, event_time_ms=known[verdict.event_id][0])
        elif verdict.alert_id is None and find_events is not None and is_checked:
            event = quoted(str(verdict.event_id))
            fault = f"there is no event {event} in the archive; --unchecked accepts it anyway"
        completed.append(verdict)
        if fault is not None:
            faults[index] = fault
    return completed, faults
