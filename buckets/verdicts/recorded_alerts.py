"""The alerts that a job has recorded, of all rules: those that came out, those on trial, and those held back."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.moment import ANY_TIME, TimeRange
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Selection, output_rows

_COLUMNS = ("alert_id", "rule_id", "event_id", "event_time", "key", "decided_at")
_OPTIONAL = ("decided_at",)


@dataclass(frozen=True, slots=True)
class RecordedAlert:
    """An alert.

    Attributes:
        output: `alerts`, `shadow_alerts` or `held_alerts`.
        alert_id: its id.
        rule_id: of the rule that fired.
        event_id: of its event.
        event_time_ms: when that happened, in ms since the epoch.
        key: by field.
        decided_ms: when the alert was decided on; None where tables do not say so.
    """

    output: str
    alert_id: str
    rule_id: str
    event_id: str
    event_time_ms: int
    key: Mapping[str, Any]
    decided_ms: int | None = None


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
