"""What a job has counted since it started: totals, and the latest batch and alerts."""

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from buckets.engine.stages.accounting import GroupAccount
from buckets.monitor.last_minute import DoneBatch, LastMinute

LATEST_ALERTS = 20
_SHOWN = (
    "rule_id", "rule_version", "ruleset_version", "rule", "event_id", "exact", "certain", "warm", "count", "operator",
    "limit", "condition",
)  # fmt: skip
_ORDER = ("source_order", "source", "position", "rule_id")
_READ = [*_SHOWN, "key", "value", "source_order", "source", "position"]
_OUTCOMES = [field.name for field in fields(GroupAccount) if field.type is int]


class JobCounts:
    """The counts of a job's batches since it started."""

    def __init__(self) -> None:
        """Begin without any batch."""
        self._minute = LastMinute()
        self._alerts: deque[dict[str, Any]] = deque(maxlen=LATEST_ALERTS)
        self._totals = Counter({"batches": 0, "events": 0, "malformed": 0, "alerts": 0, "held_alerts": 0})
        self._groups: dict[str, Counter[str]] = {}
        self._last_batch: dict[str, Any] | None = None

    def add(self, batch: DoneBatch) -> None:
        """Count a batch; they come in the order in which they were written."""
        account, latest = batch.account, _latest(batch.alerts, LATEST_ALERTS)
        self._minute.add(batch)
        sizes = {"batches": 1, "events": account.events_in, "malformed": account.malformed}
        sizes |= {name: sum(getattr(group, name) for group in account.groups) for name in ("alerts", "held_alerts")}
        self._totals.update(sizes)
        for group in account.groups:
            total = self._groups.setdefault(group.group, Counter(dict.fromkeys(_OUTCOMES, 0)))
            total.update({name: getattr(group, name) for name in _OUTCOMES})
        self._last_batch = {
            "batch_id": account.batch_id,
            "ruleset_version": account.ruleset_version,
            "events": account.events_in,
            "duration_ms": round(batch.duration_s * 1000),
            "written_ms": batch.written_ms,
        }
        for alert in latest:
            self._alerts.appendleft(alert | {"written_ms": batch.written_ms})

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "totals": dict(self._totals),
            "groups": {name: dict(total) for name, total in self._groups.items()},
            "last_batch": self._last_batch,
            "minute": self._minute.summary(now_ms),
            "alerts": list(self._alerts),
        }


def _latest(tables: Sequence[pa.Table], most: int) -> list[dict[str, Any]]:
    """Return the latest alerts of tables without order, at most so many, as plain data in arrival order."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        latest = table.sort_by([(name, "ascending") for name in _ORDER]).slice(max(len(table) - most, 0))
        times_ms = latest["event_time"].cast(pa.int64())
        rows += latest.select(_READ).append_column("event_time", times_ms).to_pylist()
    rows.sort(key=lambda row: tuple(row[name] for name in _ORDER))
    return [_plain(row) for row in rows[-most:]]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return an alert as JSON can hold it: times in ms, decimals as text."""
    shown = {name: row[name] for name in (*_SHOWN, "event_time")}
    value = None if row["value"] is None else format(row["value"], "f")
    return shown | {"key": json.loads(row["key"]), "value": value}
