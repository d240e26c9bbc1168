"""The alerts that a job has recorded, of all rules: those that came out, those on trial, and those held back."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.errors import BucketsError
from buckets.outputs.alert_ids import OUTPUTS
from buckets.outputs.rule_alerts import alert_batches

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


def recorded_alerts(folder: Path, from_ms: int | None = None, until_ms: int | None = None) -> Iterator[RecordedAlert]:
    """The alerts of a job, each id once; keeps all ids in memory.

    Args:
        folder: the folder of its tables.
        from_ms: the first event time, in ms since the epoch; None for any.
        until_ms: the first event time that does not count; None for any.

    Raises:
        BucketsError: a table cannot be read.
    """
    seen: set[str] = set()
    for table in (folder / output for output in OUTPUTS):
        for batch in alert_batches(table, _COLUMNS, None, from_ms, until_ms, _OPTIONAL):
            for row in batch.to_pylist():
                if row["alert_id"] not in seen:
                    seen.add(row["alert_id"])
                    yield _alert(table, row)


def find_alerts(folder: Path, alert_ids: Collection[str]) -> dict[str, RecordedAlert]:
    """Those of some alerts that a job has recorded, by their ids.

    Raises:
        BucketsError: a table cannot be read.
    """
    found: dict[str, RecordedAlert] = {}
    if not alert_ids:
        return found
    for output in OUTPUTS:
        for batch in alert_batches(folder / output, _COLUMNS, {"alert_id": alert_ids}, optional=_OPTIONAL):
            for row in batch.to_pylist():
                found.setdefault(row["alert_id"], _alert(folder / output, row))
    return found


def alerted_events(folder: Path, event_ids: Collection[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Those of some events that have alerts: by id the time in ms, and the fields as the alert has them.

    Raises:
        BucketsError: a table cannot be read.
    """
    found: dict[str, tuple[int, Mapping[str, Any]]] = {}
    if not event_ids:
        return found
    for output in OUTPUTS:
        for batch in alert_batches(folder / output, ("event_id", "event_time", "event"), {"event_id": event_ids}):
            for row in batch.to_pylist():
                if row["event_id"] not in found:
                    found[row["event_id"]] = row["event_time"], _object(folder / output, row["event"])
    return found


def _alert(table: Path, row: Mapping[str, Any]) -> RecordedAlert:
    return RecordedAlert(
        table.name,
        row["alert_id"],
        row["rule_id"],
        row["event_id"],
        row["event_time"],
        _object(table, row["key"]),
        row["decided_at"],
    )


def _object(table: Path, text: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        message = f"results {table}: a key or an event is not JSON; name an output folder of buckets"
        raise BucketsError(message)
    return found
