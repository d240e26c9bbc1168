"""Confirmed fraud: events that people, or a table of cases, say were fraud, whether or not a rule fired on them.

What is known of such an event (its time, amount and fields) is taken from the archive, where there is one, then from
an alert on it, then from the table of fraud, then from what was said with the verdict.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from buckets.config.job import Job, results_folder
from buckets.verdicts.findings import Findings, findings
from buckets.verdicts.fraud_table import read_fraud_table
from buckets.verdicts.recorded_alerts import alerted_events, find_alerts
from buckets.verdicts.verdict import Verdict
from buckets.verdicts.verdict_table import load_verdicts, verdict_table


@dataclass(frozen=True)
class Fraud:
    """An event that was fraud, and what is known of it.

    Attributes:
        event_id: its id.
        event_time_ms: when it happened, in ms since the epoch.
        amount: its first measure, or another one that was asked for.
        fields: its other fields.
    """

    event_id: str
    event_time_ms: int | None = None
    amount: Decimal | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def completed(self, other: "Fraud") -> "Fraud":
        """With what another source knows besides."""
        return replace(
            self,
            event_time_ms=other.event_time_ms if self.event_time_ms is None else self.event_time_ms,
            amount=other.amount if self.amount is None else self.amount,
            fields={**other.fields, **self.fields},
        )


FindEvents = Callable[[Collection[str]], Mapping[str, tuple[int, Mapping[str, Any]]]]
"""Looks for events by their ids: gives those that it knows, with the time in ms and the fields."""


def confirmed_fraud(
    job: Job,
    table: Path | None = None,
    measure: str | None = None,
    find_events: FindEvents | None = None,
    found: Findings | None = None,
) -> dict[str, Fraud]:
    """The events that were fraud by the verdicts of a job, or by a table of cases.

    Args:
        job: the job.
        table: a Delta table or a file of further fraud; see `read_fraud_table`.
        measure: whose values are the amounts; the first measure of the event schema where it is left out.
        find_events: looks for events in the archive.
        found: the verdicts that count, where they have been read.

    Returns:
        By event id: so `set` of it is all ids.

    Raises:
        BucketsError: verdicts, alerts or the table cannot be read.
    """
    found = findings(job_verdicts(job)) if found is None else found
    measure = measure or next(iter(job.event_schema.measures), None)
    said = [_of_verdict(verdict) for verdict in found.by_event.values() if verdict.verdict == "fraud"]
    listed = [] if table is None else read_fraud_table(table, job.event_schema)
    ids = {each.event_id for each in said} | {event_id for event_id, _, _ in listed}
    archived = find_events(ids) if find_events is not None and ids else {}
    alerted = alerted_events(results_folder(job), ids - archived.keys())
    sources: list[Iterable[Fraud]] = [
        (_of_event(event_id, *facts, measure) for known in (archived, alerted) for event_id, facts in known.items()),
        (_of_event(event_id, time_ms, fields, measure) for event_id, time_ms, fields in listed),
        said,
    ]
    frauds: dict[str, Fraud] = {}
    for source in sources:
        for each in source:
            known = frauds.get(each.event_id)
            frauds[each.event_id] = each if known is None else known.completed(each)
    return frauds


def job_verdicts(job: Job) -> list[Verdict]:
    """All verdicts of a job, oldest first; where one names its alert alone, the event of the alert is added.

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


def _of_event(event_id: str, time_ms: int | None, fields: Mapping[str, Any], measure: str | None) -> Fraud:
    amount = None if measure is None else _amount(fields.get(measure))
    return Fraud(event_id, time_ms, amount, {name: value for name, value in fields.items() if value is not None})


def _amount(written: Any) -> Decimal | None:
    if written is None or isinstance(written, bool):
        return None
    try:
        number = Decimal(str(written))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
