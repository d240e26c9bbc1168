"""What a job has counted since it started: totals, and the latest batch and alerts."""

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from buckets.engine.batch.key_partitions import SampledKeys
from buckets.engine.stages.accounting import GroupAccount
from buckets.engine.stages.batch_facts import BatchFacts, ShardMemory
from buckets.events.times_seen import UNCLEAR
from buckets.monitor.bounded import BoundedCounts, Histogram
from buckets.monitor.last_minute import DoneBatch, LastMinute
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS

LATEST_ALERTS = 20
_SHOWN = (
    "rule_id", "rule_version", "ruleset_version", "rule", "event_id", "exact", "certain", "warm", "count", "operator",
    "limit", "condition",
)  # fmt: skip
_ORDER = ("source_order", "source", "position", "rule_id")
_READ = [*_SHOWN, "key", "value", "source_order", "source", "position"]
STATES = {ALERTS: "live", HELD_ALERTS: "held", SHADOW_ALERTS: "trial"}
"""What becomes of an alert, by the output to which it goes."""
MOST_RULES, MOST_GROUPS = 200, 200
"""So many rules and groups are counted one by one."""
BATCH_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
DELAY_BOUNDS_S = (0.025, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_TOTALS = ("batches", "events", "malformed", "skipped", "rounded", "dead_letters", "alerts", "held_alerts")
_OUTCOMES = [field.name for field in fields(GroupAccount) if field.type is int]


class JobCounts:
    """The counts of a job's batches since it started."""

    def __init__(self) -> None:
        """Begin without any batch."""
        self._minute = LastMinute()
        self._alerts: deque[dict[str, Any]] = deque(maxlen=LATEST_ALERTS)
        self._totals = Counter(dict.fromkeys(_TOTALS, 0))
        self._groups = BoundedCounts(MOST_GROUPS)
        self._rules = BoundedCounts(MOST_RULES)
        self._dead_letters: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._unclear_times: Counter[str] = Counter()
        self._rounded: Counter[str] = Counter()
        self._keys = BoundedCounts(MOST_GROUPS)
        self._shards: dict[int, ShardMemory] = {}
        self._partitions: dict[str, SampledKeys] = {}
        self._phases: dict[str, Histogram] = {}
        self._delay = Histogram(DELAY_BOUNDS_S)
        self._last_batch: dict[str, Any] | None = None

    def add(self, batch: DoneBatch) -> None:
        """Count a batch; they come in the order in which they were written."""
        account, latest = batch.account, _latest(batch.alerts, LATEST_ALERTS)
        self._minute.add(batch)
        sizes = {"batches": 1, "events": account.events_in, "malformed": account.malformed}
        sizes["skipped"] = sum(account.facts.skipped.values())
        sizes["rounded"] = sum(account.facts.rounded.values())
        sizes["dead_letters"] = sum(account.facts.dead_letters.values())
        sizes |= {name: sum(getattr(group, name) for group in account.groups) for name in ("alerts", "held_alerts")}
        self._totals.update(sizes)
        for group in account.groups:
            self._groups.add(group.group, {name: getattr(group, name) for name in _OUTCOMES})
        self._add_facts(account.facts)
        self._add_times(batch)
        self._last_batch = {
            "batch_id": account.batch_id,
            "ruleset_version": account.ruleset_version,
            "events": account.events_in,
            "duration_ms": round(batch.duration_s * 1000),
            "written_ms": batch.written_ms,
        }
        for alert in latest:
            self._alerts.appendleft(alert | {"written_ms": batch.written_ms})

    def _add_facts(self, facts: BatchFacts) -> None:
        for output, by_rule in facts.rules.items():
            for rule_id, count in by_rule.items():
                self._rules.add(rule_id, {STATES[output]: count})
        self._dead_letters.update(facts.dead_letters)
        self._skipped.update(facts.skipped)
        self._unclear_times.update({kind: facts.times.get(kind, 0) for kind in UNCLEAR})
        self._rounded.update(facts.rounded)
        for kind, by_group in (("new", facts.new_keys), ("evicted", facts.evicted_keys)):
            for group, count in by_group.items():
                self._keys.add(group, {kind: count})
        self._shards.update(facts.shards)
        for group, seen in facts.partitions.items():
            if group in self._partitions or len(self._partitions) < MOST_GROUPS:
                self._partitions.setdefault(group, SampledKeys()).add(seen)

    def _add_times(self, batch: DoneBatch) -> None:
        for name, took_s in batch.phases_s.items():
            self._phases.setdefault(name, Histogram(BATCH_BOUNDS_S)).add([(took_s, 1)])
        self._delay.add(((batch.written_ms - moment) / 1000, weight) for moment, weight in batch.account.ingested)

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "totals": dict(self._totals),
            "groups": self._groups.to_json(),
            "rule_alerts": self._rules.to_json(),
            "dead_letters": dict(self._dead_letters),
            "skipped": dict(self._skipped),
            "unclear_times": dict(self._unclear_times),
            "rounded": dict(self._rounded),
            "keys": self._keys.to_json(),
            "shards": {
                "count": len(self._shards),
                "log_bytes": sum(shard.log_bytes for shard in self._shards.values()),
                "cache_bytes": sum(shard.cache_bytes for shard in self._shards.values()),
            },
            "partitions": {group: keys.to_json() for group, keys in self._partitions.items()},
            "phases": {name: histogram.to_json() for name, histogram in self._phases.items()},
            "delay": self._delay.to_json(),
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
