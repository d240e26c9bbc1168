"""Confirmed fraud: events that people, or a table of cases, say were fraud, whether or not a rule fired on them.

What is known of such an event (its time, amount and fields) is taken from the archive, where there is one, then from
an alert on it, then from the table of fraud, then from what was said with the verdict.

The alerts that a job has recorded, of all rules.
Verdicts with what is known of the alert or event that they are about; and those that are about nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from buckets.config.job import Job, results_folder
from buckets.moment import ANY_TIME, TimeRange
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Selection, output_rows
from buckets.printable import quoted
from buckets.verdicts.fraud import Fraud, read_fraud_table
from buckets.verdicts.verdict import Findings, Verdict, findings
from buckets.verdicts.verdict_table import load_verdicts, verdict_table

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


def recorded_alerts(
    folder: Path, times: TimeRange = ANY_TIME, selection: Selection | None = None
) -> Iterator[RecordedAlert]:
    """Yield the alerts of a job, each id once; keeps all ids in memory.

    Args:
        folder: the folder of its tables.
        times: the event times that count.
        selection: which of them; None for all of these times.

    Raises:
        BucketsError: a table cannot be read.
    """
    seen: set[str] = set()
    wanted = selection or Selection({}, times)
    for output in ALERT_OUTPUTS:
        for row in output_rows(folder, output, _COLUMNS, wanted, _OPTIONAL):
            if row["alert_id"] not in seen:
                seen.add(row["alert_id"])
                yield _alert(output, row)


def find_alerts(folder: Path, alert_ids: Collection[str]) -> dict[str, RecordedAlert]:
    """Return those of some alerts that a job has recorded, by their ids.

    Raises:
        BucketsError: a table cannot be read.
    """
    alerts: dict[str, RecordedAlert] = {}
    for output in ALERT_OUTPUTS if alert_ids else ():
        for row in output_rows(folder, output, _COLUMNS, Selection({"alert_id": alert_ids}), _OPTIONAL):
            alerts.setdefault(row["alert_id"], _alert(output, row))
    return alerts


def alerted_events(folder: Path, event_ids: Collection[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return those of some events that have alerts: by id the time in ms, and the fields as the alert has them.

    Raises:
        BucketsError: a table cannot be read.
    """
    events: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for output in ALERT_OUTPUTS if event_ids else ():
        wanted = Selection({"event_id": event_ids})
        for row in output_rows(folder, output, ("event_id", "event_time", "event"), wanted):
            events.setdefault(row["event_id"], (row["event_time"], row["event"]))
    return events


def _alert(output: str, row: Mapping[str, Any]) -> RecordedAlert:
    return RecordedAlert(output, *(row[name] for name in _COLUMNS))


FindEvents = Callable[[Collection[str]], Mapping[str, tuple[int, Mapping[str, Any]]]]
"""Looks for events by their ids: gives those that it knows, with the time in ms and the fields."""


def confirmed_fraud(
    job: Job,
    table: Path | None = None,
    measure: str | None = None,
    find_events: FindEvents | None = None,
    verdicts: Findings | None = None,
) -> dict[str, Fraud]:
    """Return the events that were fraud by the verdicts of a job, or by a table of cases.

    Args:
        job: the job.
        table: a Delta table or a file of further fraud; see `read_fraud_table`.
        measure: whose values are the amounts; the first measure of the event schema where it is left out.
        find_events: looks for events in the archive.
        verdicts: those that count, where they have been read.

    Returns:
        By event id: so `set` of it is all ids.

    Raises:
        BucketsError: verdicts, alerts or the table cannot be read.
    """
    verdicts = findings(job_verdicts(job)) if verdicts is None else verdicts
    measure = measure or next(iter(job.event_schema.measures), None)
    by_verdicts = [_of_verdict(verdict) for verdict in verdicts.by_event.values() if verdict.verdict == "fraud"]
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
        known = frauds.get(fraud.event_id)
        frauds[fraud.event_id] = fraud if known is None else known.completed(fraud)
    return frauds


def job_verdicts(job: Job) -> list[Verdict]:
    """Read all verdicts of a job, oldest first; where one names its alert alone, the event of the alert is added.

    Raises:
        BucketsError: verdicts or alerts cannot be read.
    """
    verdicts = load_verdicts(verdict_table(job))
    lacking = {verdict.alert_id for verdict in verdicts if verdict.event_id is None and verdict.alert_id is not None}
    known = find_alerts(results_folder(job), lacking) if lacking else {}
    return [
        replace(verdict, event_id=known[verdict.alert_id].event_id)
        if verdict.event_id is None and verdict.alert_id in known
        else verdict
        for verdict in verdicts
    ]


def _of_verdict(verdict: Verdict) -> Fraud:
    assert verdict.event_id is not None
    return Fraud(verdict.event_id, verdict.event_time_ms, verdict.amount, verdict.key or {})


def complete(
    verdicts: Sequence[Verdict], folder: Path, find_events: FindEvents | None = None, is_checked: bool = True
) -> tuple[list[Verdict], dict[int, str]]:
    """Copy rule, event and key of each alert, and the time of each event, into the verdicts on them.

    Args:
        verdicts: as they were written.
        folder: the tables of alerts.
        find_events: looks for events in the archive; without one, any event is taken as it is named.
        is_checked: whether a verdict on what is not known is a fault.

    Returns:
        The verdicts, and what is wrong with some of them, by index.

    Raises:
        BucketsError: alerts or events cannot be read.
    """
    alerts = find_alerts(folder, {verdict.alert_id for verdict in verdicts if verdict.alert_id is not None})
    events = {verdict.event_id for verdict in verdicts if verdict.alert_id is None and verdict.event_id is not None}
    known = dict(find_events(events)) if find_events is not None and events else {}
    known = alerted_events(folder, events - known.keys()) | known
    completed: list[Verdict] = []
    faults: dict[int, str] = {}
    for index, verdict in enumerate(verdicts):
        try:
            if verdict.alert_id is not None:
                completed.append(_of_alert(verdict, alerts.get(verdict.alert_id), folder, is_checked))
            else:
                completed.append(_of_event(verdict, known, find_events is not None and is_checked))
        except ValueError as error:
            completed.append(verdict)
            faults[index] = str(error)
    return completed, faults


def _of_alert(verdict: Verdict, alert: RecordedAlert | None, folder: Path, is_checked: bool) -> Verdict:
    assert verdict.alert_id is not None
    if alert is None:
        if is_checked:
            message = f"there is no alert {quoted(verdict.alert_id)} in {folder}; --unchecked takes it as it is"
            raise ValueError(message)
        return verdict
    if verdict.event_id not in (None, alert.event_id):
        message = f"alert {quoted(verdict.alert_id)} is of event {quoted(alert.event_id)}, not {verdict.event_id}"
        raise ValueError(message)
    return replace(
        verdict,
        rule_id=alert.rule_id,
        event_id=alert.event_id,
        event_time_ms=alert.event_time_ms,
        key=alert.key,
    )


def _of_event(verdict: Verdict, known: Mapping[str, tuple[int, Mapping[str, Any]]], is_checked: bool) -> Verdict:
    assert verdict.event_id is not None
    if verdict.event_id not in known:
        if is_checked:
            message = f"there is no event {quoted(verdict.event_id)} in the archive; --unchecked takes it as it is"
            raise ValueError(message)
        return verdict
    time_ms, _ = known[verdict.event_id]
    return replace(verdict, event_time_ms=time_ms)
