"""The metrics of jobs, audits and consoles, each declared once in `families.yaml`, with the source of its numbers.

Cardinality is bounded where it is counted: rules and groups beyond the first 200, and partitions beyond the first
500, are `other` (`monitor.query_news`).
"""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import yaml
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from buckets.monitor.processes import proportional_bytes
from buckets.monitor.words import schema_news
from buckets.resources import resource
from buckets.version import own_version

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4  # Content type of `exposition`
Status = Mapping[str, Any]
Sample = tuple[tuple[str, ...], Any]
"""The values of the labels, and a number; of a histogram what `monitor.query_news.Histogram.to_json` returns."""
Reader = Callable[[Status], Any]  # Reads a number, numbers by one label, or samples from a status; or None
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


@dataclass(frozen=True)
class Family:
    """A metric."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str  # without `_total`, which a counter gets
    text: str  # its description
    reads: str  # the name of a reader, or the path of its number, or numbers by label, in a status
    labels: Sequence[str] = ()  # the names of its labels

    def of(self, status: Status) -> Metric:
        """Return the metric with the values of a status."""
        reader = _READERS.get(self.reads)
        samples = _samples(_at_path(status, self.reads) if reader is None else reader(status), bool(self.labels))
        if self.kind == "histogram":
            histogram = HistogramMetricFamily(self.name, self.text, labels=self.labels)
            for labels, counted in samples:
                bounds = [*map(str, counted["bounds"]), "+Inf"]
                up_to = list(zip(bounds, accumulate(counted["counts"]), strict=True))
                histogram.add_metric(labels, buckets=up_to, sum_value=counted["sum"])
            return histogram
        family: CounterMetricFamily | GaugeMetricFamily = _FAMILIES[self.kind](self.name, self.text, labels=self.labels)
        for labels, number in samples:
            family.add_metric(labels, number)
        return family


def _at_path(status: Status, path: str) -> Any:
    """Return the value at a path of a status; None if missing."""
    value: Any = status
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return value


def _samples(read: Any, has_labels: bool) -> Iterable[Sample]:
    """Return a number, or numbers by one label, as samples; samples are returned unchanged."""
    if read is None:
        return []
    if not has_labels:
        return [((), read)]
    return [((label,), number) for label, number in read.items()] if isinstance(read, Mapping) else read


@dataclass(frozen=True)
class Snapshot(Collector):
    """The values of a status in some metrics."""

    families: Sequence[Family]
    status: Status

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return [family.of(self.status) for family in self.families]


def exposition(families: Sequence[Family], status: Status) -> bytes:
    """Return the values of a status in some metrics, in the text format of Prometheus.

    Complexity: O(series).
    """
    return generate_latest(Snapshot(families, status))


OUTCOMES = {
    "evaluated": "evaluated",
    "late": "late",
    "too_late": "too_late",
    "duplicates": "duplicate",
    "collisions_not_kept": "collision",
    "filtered": "filtered",
    "no_key": "no_key",
    "dead_letters": "dead_letter",
    "skipped": "skipped",
    "unjudged": "unjudged",
}
"""Outcomes of an event in a group: the name in the accounts, and the label."""
_PROCESSES = {"driver": "driver", "JVM": "jvm", "Python workers": "worker"}


def _outcomes(status: Status) -> Iterable[Sample]:
    for group, counts in status["groups"].items():
        for name, label in OUTCOMES.items():
            yield (group, label), counts.get(name, 0)


def _alerts(status: Status) -> Iterable[Sample]:
    for rule, states in status["rule_alerts"].items():
        for state, count in states.items():
            yield (rule, state), count


def _of_groups(place: str, name: str) -> Reader:
    return lambda status: {group: counts.get(name, 0) for group, counts in status.get(place, {}).items()}


def _fills(name: str) -> Reader:
    def events(status: Status) -> dict[str, int | float]:
        by_group: dict[str, int | float] = {}
        for fill in status["query"]["fills"]:
            if fill["group"] is not None and fill[name] is not None:
                by_group[fill["group"]] = by_group.get(fill["group"], 0) + fill[name]
        return by_group

    return events


def _processes(name: str) -> Reader:
    return lambda status: {_PROCESSES[kind]: held[name] for kind, held in status["processes"].items()}


def last_batch_s(status: Status) -> float | None:
    """Read when the last batch was written; None before the first."""
    return None if status["last_batch"] is None else status["last_batch"]["written_ms"] / 1000


def last_progress_s(status: Status) -> float:
    """Return when a query last made progress: it wrote results, found nothing new, or at least started."""
    return max(float(status["started_ms"]) / 1000, last_batch_s(status) or 0.0, (status["idle_ms"] or 0) / 1000)


_READERS: Mapping[str, Reader] = {
    "started_s": lambda status: status["started_ms"] / 1000,
    "last_batch_s": last_batch_s,
    "last_progress_s": last_progress_s,
    "outcomes": _outcomes,
    "alerts": _alerts,
    "lag": lambda status: [((topic, partition), lag) for topic, partition, lag in status["query"]["behind"]],
    "sampled": _of_groups("partitions", "sampled"),
    "several": _of_groups("partitions", "several"),
    "new_keys": _of_groups("keys", "new"),
    "evicted_keys": _of_groups("keys", "evicted"),
    "rule_states": lambda status: {state.lower(): n for state, n in status["rules"]["states"].items()},
    "rules_followed": lambda status: int(status["rules_fault"] is None),
    "schema_version": lambda status: schema_news(status).get("version"),
    "schema_followed": lambda status: int(news["fault"] is None) if (news := schema_news(status)) else None,
    "fills": _fills("events"),
    "fills_expected": _fills("of"),
    "process_memory": _processes("resident_bytes"),
    "process_threads": _processes("threads"),
    "process_fds": _processes("descriptors"),
    "shortages": lambda status: len(status["shortages"]),
    "requests": lambda status: [((page, str(code)), n) for (page, code), n in status["requests"].items()],
    "build": lambda _: {own_version(): 1},
}
_DECLARED: Mapping[str, list[dict[str, Any]]] = yaml.safe_load(resource("metrics/families.yaml").read_bytes())
JOB, AUDIT, CONSOLE, SERVE = (
    [Family(**family) for family in _DECLARED[of]] for of in ("job", "audit", "console", "serve")
)
BUILD = Family("gauge", "buckets_build_info", "The release that runs.", "build", ["version"])


def job_exposition(status: Status) -> bytes:
    """Return the metrics of a job for Prometheus, from its status in `LiveStatus.latest` or `read_live`.

    Complexity: O(series), and a few ms for each Python worker on this machine, to read its memory.
    """
    workers_bytes = proportional_bytes(status["pid"]) if status["host"] == socket.gethostname() else None
    return exposition(JOB, {**status, "workers_bytes": workers_bytes})
