"""Confirmed fraud: events that people, or a table of cases, say were fraud, whether or not a rule fired on them.

What is known of such an event (its time, amount and fields) is taken from the archive, where there is one, then from
an alert on it, then from the table of fraud, then from what was said with the verdict.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from buckets.config.job import Job, results_folder
from buckets.verdicts.findings import Findings, findings
from buckets.verdicts.fraud import Fraud, read_fraud_table
from buckets.verdicts.recorded_alerts import alerted_events, find_alerts
from buckets.verdicts.verdict import Verdict
from buckets.verdicts.verdict_table import load_verdicts, verdict_table

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
