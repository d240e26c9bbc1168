"""What Spark reports of a query: its lag, the size of its state, slow phases; and counters of bounded size."""

import contextlib
import json
import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from buckets.clock import epoch_ms
from buckets.engine.batch.key_partitions import SampledKeys
from buckets.engine.stages.accounting import BatchFacts, GroupAccount, ShardMemory
from buckets.events.message_fields import UNCLEAR
from buckets.monitor.pace import BatchReport, LastMinute
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS

if TYPE_CHECKING:
    from buckets.audit.writer import WrittenMessages


Partition = tuple[str, str]  # A topic, and the number of a partition as text


def partitions_behind(progress: dict[str, Any]) -> dict[Partition, int] | None:
    """Return how many messages of each partition are not yet read; None if Spark does not report it."""
    behind: dict[Partition, int] | None = None
    for source in progress.get("sources", ()):
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        if latest is None or end is None:
            continue
        behind = {} if behind is None else behind
        for partition, offset in latest.items():
            behind[partition] = behind.get(partition, 0) + max(offset - end.get(partition, 0), 0)
    return behind


def _offsets(reported: Any) -> dict[Partition, int] | None:
    """Return offsets by topic and partition; None if these are not offsets of topics."""
    written = json.loads(reported) if isinstance(reported, str) else reported
    if not isinstance(written, dict):
        return None
    parts = {topic: offsets for topic, offsets in written.items() if isinstance(offsets, dict)}
    return {(topic, name): int(at) for topic, offsets in parts.items() for name, at in offsets.items()} or None


OTHER = "other"  # The name that counts everything for which there was no room


class BoundedCounts:
    """Counts by name and kind, for at most `most` names: the first ones to come; later ones count as `OTHER`."""

    def __init__(self, most: int) -> None:
        """Start empty; `most` is the number of names."""
        self._most = most
        self._counts: dict[str, Counter[str]] = {}

    def add(self, name: str, counts: Mapping[str, int]) -> None:
        """Add counts under a name."""
        is_known = name in self._counts or len(self._counts) < self._most
        self._counts.setdefault(name if is_known else OTHER, Counter()).update(counts)

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the counts by name and kind."""
        return {name: dict(counts) for name, counts in self._counts.items()}


class Histogram:
    """A histogram of values, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start empty; a value counts for the first bound that it does not exceed."""
        self._bounds = tuple(bounds)
        self._counts = [0.0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, values: Iterable[tuple[float, float]]) -> None:
        """Count values, each with its weight."""
        for value, weight in values:
            self._counts[bisect_left(self._bounds, value)] += weight
            self._sum += value * weight

    def to_json(self) -> dict[str, Any]:
        """Return bounds, the count for each bound and beyond the last, and the sum of the values."""
        return {"bounds": list(self._bounds), "counts": list(self._counts), "sum": self._sum}


MOST_PARTITIONS = 500  # The partitions whose lag is reported one by one; the others are summed


@dataclass(frozen=True)
class QueryNews:
    """Spark's report on a query at a moment."""

    # by partition, how many messages wait; None if Spark does not report it
    behind: Mapping[Partition, int] | None = None
    is_idle: bool = False  # whether its source was asked and had nothing new
    state: Mapping[str, int] = field(default_factory=dict)  # bytes of the state store, in memory and on the disk
    # by Spark's name, the durations of its latest batch's phases
    phases_s: Mapping[str, float] = field(default_factory=dict)
    fills: Sequence[Mapping[str, Any]] = ()  # the progress of backfills, each as `FillStatus.to_json`
    # how many alerts were delivered to it, wait and were given up; empty without a webhook
    webhook: Mapping[str, int] = field(default_factory=dict)
    # `name` and `version` of the event schema of the next batch, and in `fault` why its file is not accepted
    # now; empty if it is not followed
    schema: Mapping[str, Any] = field(default_factory=dict)
    # how many topics matching the source's pattern have appeared since the start; None without a pattern
    topics_appeared: int | None = None

    @classmethod
    def of(cls, progress: dict[str, Any] | None, is_idle: bool = False) -> "QueryNews":
        """Parse Spark's report on the latest batch; with None, before the first one, nothing is known."""
        if progress is None:
            return cls(is_idle=is_idle)
        phases_s = {name: took_ms / 1000 for name, took_ms in progress.get("durationMs", {}).items()}
        return cls(partitions_behind(progress), is_idle, phases_s=phases_s)

    @property
    def lag(self) -> int | None:
        """The number of waiting messages; None if unknown."""
        return None if self.behind is None else sum(self.behind.values())

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain data, without `is_idle`."""
        behind: list[list[Any]] = [[*partition, messages] for partition, messages in (self.behind or {}).items()]
        if len(behind) > MOST_PARTITIONS:
            rest = [OTHER, OTHER, sum(messages for _, _, messages in behind[MOST_PARTITIONS - 1 :])]
            behind = [*behind[: MOST_PARTITIONS - 1], rest]
        return {name: said for name, said in vars(self).items() if name != "is_idle"} | {"behind": behind}


NEWS_EVERY_S = 2.0


class QueryWatch:
    """Follows the reports on a query.

    Attributes:
        news: the latest report.
        idle_ms: when the source last had nothing new, in ms since the epoch; None before.
    """

    def __init__(self, ask: Callable[[], QueryNews]) -> None:
        self.news = QueryNews()
        self.idle_ms: int | None = None
        self._ask = ask
        self._until_s = 0.0

    def look(self) -> None:
        """Ask for a report, unless the last one is recent."""
        if time.monotonic() < self._until_s:
            return
        try:
            self.news = self._ask()
        except Exception:  # The query may be unavailable, for instance between two starts.
            self.news = QueryNews()
        if self.news.is_idle:
            self.idle_ms = epoch_ms()
        self._until_s = time.monotonic() + NEWS_EVERY_S


LATEST_ALERTS = 20
_SHOWN = (
    "rule_id", "rule_version", "ruleset_version", "rule", "event_id", "exact", "certain", "warm", "count", "operator",
    "limit", "condition",
)  # fmt: skip
_ORDER = ("source_order", "source", "position", "rule_id")
_READ = [*_SHOWN, "key", "value", "source_order", "source", "position"]
STATES = {ALERTS: "live", HELD_ALERTS: "held", SHADOW_ALERTS: "trial"}
"""What an alert counts as, by its output."""
MOST_RULES, MOST_GROUPS = 200, 200  # The rules and groups that are counted one by one
BATCH_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
DELAY_BOUNDS_S = (0.025, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_TOTALS = ("batches", "events", "malformed", "skipped", "rounded", "dead_letters", "alerts", "held_alerts")
_OUTCOMES = [field.name for field in fields(GroupAccount) if field.type is int]


class JobCounts:
    """Counters of a job's batches since it started."""

    def __init__(self) -> None:
        self._minute = LastMinute()
        self._alerts: deque[dict[str, Any]] = deque(maxlen=LATEST_ALERTS)
        self._unshown: list[BatchReport] = []  # Batches whose alerts are not shown yet
        self._totals = Counter(dict.fromkeys(_TOTALS, 0))
        self._groups = BoundedCounts(MOST_GROUPS)
        self._rules = BoundedCounts(MOST_RULES)
        self._facts: dict[str, Counter[str]] = {
            name: Counter() for name in ("dead_letters", "skipped", "unclear_times", "rounded")
        }
        self._keys = BoundedCounts(MOST_GROUPS)
        self._shards: dict[int, ShardMemory] = {}
        self._partitions: dict[str, SampledKeys] = {}
        self._phases: dict[str, Histogram] = {}
        self._delay = Histogram(DELAY_BOUNDS_S)
        self._last_batch: dict[str, Any] | None = None

    def add(self, batch: BatchReport) -> None:
        """Count a batch; batches come in the order in which they were written."""
        account = batch.account
        self._minute.add(batch)
        self._totals.update(batches=1, events=account.events_in, malformed=account.malformed)
        for name in ("skipped", "rounded", "dead_letters"):
            self._totals[name] += sum(getattr(account.facts, name).values())
        for name in ("alerts", "held_alerts"):
            self._totals[name] += sum(getattr(group, name) for group in account.groups)
        for group in account.groups:
            self._groups.add(group.group, {name: getattr(group, name) for name in _OUTCOMES})
        self._add_facts(account.facts)
        for name, took_s in (("score", batch.scored_s), ("write", batch.written_s)):
            self._phases.setdefault(name, Histogram(BATCH_BOUNDS_S)).add([(took_s, 1)])
        self._delay.add(((batch.written_ms - moment) / 1000, weight) for moment, weight in account.ingested)
        self._last_batch = {
            "batch_id": account.batch_id,
            "ruleset_version": account.ruleset_version,
            "events": account.events_in,
            "duration_ms": round(batch.duration_s * 1000),
            "written_ms": batch.written_ms,
        }
        if sum(map(len, batch.alerts)) >= LATEST_ALERTS:
            self._unshown.clear()
        if batch.alerts:
            self._unshown.append(batch)

    def _add_facts(self, facts: BatchFacts) -> None:
        for output, by_rule in facts.rules.items():
            for rule_id, count in by_rule.items():
                self._rules.add(rule_id, {STATES[output]: count})
        unclear = {kind: facts.times.get(kind, 0) for kind in UNCLEAR}
        for name, counts in self._facts.items():
            counts.update(unclear if name == "unclear_times" else getattr(facts, name))
        for kind, by_group in (("new", facts.new_keys), ("evicted", facts.evicted_keys)):
            for group, count in by_group.items():
                self._keys.add(group, {kind: count})
        self._shards.update(facts.shards)
        for group, seen in facts.partitions.items():
            if group in self._partitions or len(self._partitions) < MOST_GROUPS:
                self._partitions.setdefault(group, SampledKeys()).add(seen)

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "totals": dict(self._totals),
            "groups": self._groups.to_json(),
            "rule_alerts": self._rules.to_json(),
            **{name: dict(counts) for name, counts in self._facts.items()},
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

    def unshown(self) -> list[BatchReport]:
        """Return batches added since the last call whose alerts are among the latest, oldest first.

        Showing the alerts of every batch would take as long as everything else here.
        """
        unshown, self._unshown = self._unshown, []
        return unshown

    def show(self, batch: BatchReport) -> None:
        """Add the alerts of a batch to the latest alerts shown."""
        for alert in _latest(batch.alerts, LATEST_ALERTS):
            self._alerts.appendleft(alert | {"written_ms": batch.written_ms})


def _latest(tables: Sequence[pa.Table], most: int) -> list[dict[str, Any]]:
    """Return the latest alerts of unordered tables, at most `most`, in arrival order and as JSON values."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        latest = table.sort_by([(name, "ascending") for name in _ORDER]).slice(max(len(table) - most, 0))
        times_ms = latest["event_time"].cast(pa.int64())
        rows += latest.select(_READ).append_column("event_time", times_ms).to_pylist()
    rows.sort(key=lambda row: tuple(row[name] for name in _ORDER))
    return [
        {name: row[name] for name in (*_SHOWN, "event_time")}
        | {"key": json.loads(row["key"]), "value": None if row["value"] is None else format(row["value"], "f")}
        for row in rows[-most:]
    ]


class AuditStatus:
    """Counters of an audit, and the reports on its query."""

    def __init__(self) -> None:
        self._query = QueryWatch(QueryNews)
        self._started_ms = epoch_ms()
        self._counts = Counter({"batches": 0, "repeats": 0, "unreadable": 0, "outages": 0})
        self._messages: Counter[str] = Counter()
        self._duration = Histogram(BATCH_BOUNDS_S)
        self._last_batch: dict[str, int] | None = None
        self._closing = threading.Event()

    @contextlib.contextmanager
    def asking(self, query: Callable[[], QueryNews]) -> Iterator[None]:
        """Ask a query for its report every two seconds until the `with` ends."""
        self._query = QueryWatch(query)
        thread = threading.Thread(target=self._run, name="audit status", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            thread.join()

    def on_batch(self, batch_id: int, written: "WrittenMessages", duration_s: float) -> None:
        """Count a batch."""
        self._messages.update(written.messages)
        self._counts.update(batches=1, repeats=written.repeats, unreadable=written.unreadable)
        self._duration.add([(duration_s, 1)])
        self._last_batch = {"batch_id": batch_id, "written_ms": epoch_ms()}

    def on_outage(self) -> None:
        """Count an outage of Kafka, which is being retried."""
        self._counts["outages"] += 1

    def _run(self) -> None:
        while not self._closing.wait(NEWS_EVERY_S):
            self._query.look()

    @property
    def latest(self) -> dict[str, Any]:
        """The current status as plain data."""
        news = self._query.news
        return {
            "written_ms": epoch_ms(),
            "started_ms": self._started_ms,
            "ended_ms": epoch_ms() if self._closing.is_set() else None,
            "idle_ms": self._query.idle_ms,
            "lag": news.lag,
            "query": news.to_json(),
            "messages": dict(self._messages),
            "duration": self._duration.to_json(),
            "last_batch": self._last_batch,
        } | self._counts
