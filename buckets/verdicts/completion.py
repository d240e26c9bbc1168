"""Verdicts with what is known of the alert or event that they are about; and those that are about nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from buckets.printable import quoted
from buckets.verdicts.confirmed import FindEvents
from buckets.verdicts.recorded_alerts import RecordedAlert, alerted_events, find_alerts
from buckets.verdicts.verdict import Verdict


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
