"""The metrics of jobs, audits and consoles: each declared once, with the place of its numbers in `monitor.live`.

Cardinality is bounded where it is counted: rules and groups beyond the first 200, and partitions beyond the first
500, are `other` (`monitor.query_news`).
"""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from buckets.monitor.processes import proportional_bytes
from buckets.monitor.words import schema_news
from buckets.version import own_version

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4  # Of what `exposition` returns
Status = Mapping[str, Any]
Sample = tuple[tuple[str, ...], Any]
"""The values of the labels, and a number; of a histogram what `monitor.query_news.Histogram.to_json` returns."""
Reader = Callable[[Status], Iterable[Sample]]  # Reads the numbers of a metric from a status
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


@dataclass(frozen=True)
class Family:
    """A metric."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str  # without `_total`, which a counter gets
    text: str  # what it is
    samples: (
        Reader | str
    )  # reads its numbers from a status; or where in the status the number, or numbers by label, are
    labels: Sequence[str] = ()  # the names of its labels

    def of(self, status: Status) -> Metric:
        """Return the metric with the numbers of a status."""
        read = by_path(self.samples, bool(self.labels)) if isinstance(self.samples, str) else self.samples
        if self.kind == "histogram":
            histogram = HistogramMetricFamily(self.name, self.text, labels=self.labels)
            for labels, counted in read(status):
                bounds = [*map(str, counted["bounds"]), "+Inf"]
                up_to = list(zip(bounds, accumulate(counted["counts"]), strict=True))
                histogram.add_metric(labels, buckets=up_to, sum_value=counted["sum"])
            return histogram
        family: CounterMetricFamily | GaugeMetricFamily = _FAMILIES[self.kind](self.name, self.text, labels=self.labels)
        for labels, number in read(status):
            family.add_metric(labels, number)
        return family


def by_path(path: str, has_label: bool) -> Reader:
    """Return what reads the number at a path of a status, or numbers by one label; nothing where it is not there."""

    def samples(status: Status) -> Iterable[Sample]:
        value: Any = status
        for name in path.split("."):
            value = None if value is None else value.get(name)
        if value is None:
            return []
        return [((label,), number) for label, number in value.items()] if has_label else [((), value)]

    return samples


def one(read: Callable[[Status], Any]) -> Reader:
    """Return what reads the only number of a metric; None where there is none."""
    return lambda status: [] if (number := read(status)) is None else [((), number)]


def named(read: Callable[[Status], dict[str, int | float]]) -> Reader:
    """Return what reads numbers by one label."""
    return lambda status: [((name,), number) for name, number in read(status).items()]


@dataclass(frozen=True)
class Snapshot(Collector):
    """What a status says in some metrics."""

    families: Sequence[Family]
    status: Status

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return [family.of(self.status) for family in self.families]


def counter(name: str, text: str, samples: Reader | str, *labels: str) -> Family:
    """Return a number that only grows."""
    return Family("counter", name, text, samples, labels)


def gauge(name: str, text: str, samples: Reader | str, *labels: str) -> Family:
    """Return a number that goes up and down."""
    return Family("gauge", name, text, samples, labels)


def histogram(name: str, text: str, samples: Reader | str, *labels: str) -> Family:
    """Return how often values lie between bounds."""
    return Family("histogram", name, text, samples, labels)


def exposition(families: Sequence[Family], status: Status) -> bytes:
    """Return what a status says in some metrics, in the text format of Prometheus.

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
"""What becomes of an event in a group: the name in the accounts, and that of the label."""
_PROCESSES = {"driver": "driver", "JVM": "jvm", "Python workers": "worker"}


def _outcomes(status: Status) -> Iterable[Sample]:
    for group, counts in status["groups"].items():
        for name, label in OUTCOMES.items():
            yield (group, label), counts.get(name, 0)


def _alerts(status: Status) -> Iterable[Sample]:
    for rule, states in status["rule_alerts"].items():
        for state, count in states.items():
            yield (rule, state), count


def _keys(change: str) -> Reader:
    return lambda status: [((group,), counts.get(change, 0)) for group, counts in status["keys"].items()]


def _partitions(name: str) -> Reader:
    return lambda status: [((group,), counts[name]) for group, counts in status.get("partitions", {}).items()]


def lag_by_partition(status: Status) -> Iterable[Sample]:
    """Read the lag of each partition."""
    return [((topic, partition), messages) for topic, partition, messages in status["query"]["behind"]]


def _states(status: Status) -> dict[str, int | float]:
    return {state.lower(): count for state, count in status["rules"]["states"].items()}


def _fills(name: str) -> Reader:
    def events(status: Status) -> dict[str, int | float]:
        by_group: dict[str, int | float] = {}
        for fill in status["query"]["fills"]:
            if fill["group"] is not None and fill[name] is not None:
                by_group[fill["group"]] = by_group.get(fill["group"], 0) + fill[name]
        return by_group

    return named(events)


def _processes(name: str) -> Reader:
    return named(lambda status: {_PROCESSES[kind]: held[name] for kind, held in status["processes"].items()})


def last_batch_s(status: Status) -> float | None:
    """Read when a batch was written last; None before the first."""
    return None if status["last_batch"] is None else status["last_batch"]["written_ms"] / 1000


def last_progress_s(status: Status) -> float:
    """Return when a query has last got on: results were written, nothing new was found, or at least it has started."""
    return max(float(status["started_ms"]) / 1000, last_batch_s(status) or 0.0, (status["idle_ms"] or 0) / 1000)


BUILD = gauge("buckets_build_info", "The release that runs.", lambda _: [((own_version(),), 1)], "version")
JOB: tuple[Family, ...] = (
    gauge("buckets_start_timestamp_seconds", "When it has started.", one(lambda s: s["started_ms"] / 1000)),
    # --- batches and what they cost ---------------------------------------------------------------------------
    counter("buckets_batches", "Batches that are written.", "totals.batches"),
    counter("buckets_batches_not_counted", "Batches missing in these metrics.", "not_counted"),
    gauge("buckets_last_batch_timestamp_seconds", "When results were written last.", one(last_batch_s)),
    gauge(
        "buckets_last_progress_timestamp_seconds",
        "When results were written last, or the source had nothing new.",
        one(last_progress_s),
    ),
    histogram(
        "buckets_batch_phase_seconds",
        "How long each batch took: score, from its rules to its results; write, until they are written.",
        "phases",
        "phase",
    ),
    gauge(
        "buckets_spark_phase_seconds",
        "How long the phases took of the latest batch that Spark has reported, by its names.",
        "query.phases_s",
        "phase",
    ),
    histogram(
        "buckets_delay_seconds",
        "From the arrival of an event in the source until its results are written; of a sample of each batch.",
        "delay",
    ),
    # --- events and alerts ------------------------------------------------------------------------------------
    counter("buckets_events", "Rows that have arrived.", "totals.events"),
    counter("buckets_group_events", "Events of each group of rules by outcome.", _outcomes, "group", "outcome"),
    counter("buckets_dead_letters", "Rows that were not scored.", "totals.dead_letters"),
    counter(
        "buckets_dead_letter_reasons",
        "Rows that were not scored: by the field that is wrong, unreadable, or overflow of a sum.",
        "dead_letters",
        "reason",
    ),
    counter(
        "buckets_skipped",
        "Messages that are no events and not faulty, by why: deleted, tombstone, truncated, logged.",
        "skipped",
        "reason",
    ),
    counter(
        "buckets_unclear_times",
        "Event times that a clock alone does not make clear: without_zone, twice, skipped (when clocks change).",
        "unclear_times",
        "kind",
    ),
    counter(
        "buckets_rounded",
        "Values that had more digits than the scale of their measure, and were rounded as it says, by measure.",
        "rounded",
        "measure",
    ),
    counter("buckets_alerts", "Alerts by rule: live, held back, or on trial.", _alerts, "rule", "state"),
    counter(
        "buckets_topics_appeared",
        "Topics that have come since the start and match the pattern.",
        "query.topics_appeared",
    ),
    counter("buckets_webhook_delivered", "Alerts that the webhook has taken.", "query.webhook.delivered"),
    counter("buckets_webhook_failed_attempts", "Attempts that it did not take.", "query.webhook.failed_attempts"),
    counter("buckets_webhook_undelivered", "Alerts that were given up.", "query.webhook.undelivered"),
    gauge("buckets_webhook_waiting", "Alerts that wait for the webhook.", "query.webhook.waiting"),
    # --- the source -------------------------------------------------------------------------------------------
    gauge(
        "buckets_source_lag_messages",
        "Messages that wait, as of the latest batch.",
        lag_by_partition,
        "topic",
        "partition",
    ),
    gauge(
        "buckets_sampled_keys",
        "Keys of a sample whose partitions of the topic are noted, since the start; 256 at most.",
        _partitions("sampled"),
        "group",
    ),
    gauge(
        "buckets_sampled_keys_in_several_partitions",
        "How many of these were seen in more than one partition, so that their events have no order of their own.",
        _partitions("several"),
        "group",
    ),
    counter("buckets_kafka_retries", "How often Kafka was tried again.", "outages"),
    # --- the state --------------------------------------------------------------------------------------------
    counter("buckets_new_keys", "Keys that came to have a timeline.", _keys("new"), "group"),
    counter("buckets_evicted_keys", "Keys whose timeline was evicted.", _keys("evicted"), "group"),
    gauge("buckets_state_memory_bytes", "Memory of the state store, as Spark reports it.", "query.state.memory_bytes"),
    gauge("buckets_state_disk_bytes", "Files of the state store, as Spark reports them.", "query.state.disk_bytes"),
    gauge(
        "buckets_state_log_bytes",
        "What workers hold of the log, bounded by state.log; of the shards that had something to do.",
        "shards.log_bytes",
    ),
    gauge(
        "buckets_state_cache_bytes",
        "What workers remember besides, bounded by state.cache; of the shards that had something to do.",
        "shards.cache_bytes",
    ),
    # --- rules ------------------------------------------------------------------------------------------------
    gauge("buckets_rules_version", "The version of the rules in force.", "rules.version"),
    gauge("buckets_rules", "Rules by state.", named(_states), "state"),
    gauge(
        "buckets_rules_followed",
        "1 while changes of the rules are followed, 0 while they cannot be read.",
        one(lambda s: int(s["rules_fault"] is None)),
    ),
    counter("buckets_rule_changes_refused", "Changes of rules not made.", "refused_changes"),
    gauge(
        "buckets_event_schema_version",
        "The version of the event schema that the next batch has, as its author numbers it.",
        one(lambda s: schema_news(s).get("version")),
    ),
    gauge(
        "buckets_event_schema_followed",
        "1 while the event schema is as its file has it, 0 while the file is refused.",
        one(lambda s: int(schema_news(s)["fault"] is None) if schema_news(s) else None),
    ),
    gauge("buckets_backfill_events", "Archived events that are in new timelines.", _fills("events"), "group"),
    gauge("buckets_backfill_events_expected", "Archived events that are to be there.", _fills("of"), "group"),
    # --- processes --------------------------------------------------------------------------------------------
    gauge(
        "buckets_process_resident_memory_bytes",
        "Resident memory of the processes on the driver's machine; pages that workers share count for each.",
        _processes("resident_bytes"),
        "process",
    ),
    gauge(
        "buckets_workers_proportional_memory_bytes",
        "Memory of the Python workers on the driver's machine; pages that processes share count once.",
        "workers_bytes",
    ),
    gauge("buckets_process_threads", "Threads on the driver's machine.", _processes("threads"), "process"),
    gauge("buckets_process_open_fds", "Descriptors on the driver's machine.", _processes("descriptors"), "process"),
    gauge(
        "buckets_shortages",
        "How many things will soon run out: descriptors, threads, memory.",
        one(lambda s: len(s["shortages"])),
    ),
)
"""All metrics of a job."""


def job_exposition(status: Status) -> bytes:
    """Return the metrics of a job by its status, as `LiveStatus.latest` or `read_live` has it, for Prometheus.

    Complexity: O(series), and a few ms for each Python worker on this machine, whose memory is looked up.
    """
    workers_bytes = proportional_bytes(status["pid"]) if status["host"] == socket.gethostname() else None
    return exposition(JOB, {**status, "workers_bytes": workers_bytes})


AUDIT: tuple[Family, ...] = (
    gauge("buckets_audit_start_timestamp_seconds", "When it has started.", one(lambda s: s["started_ms"] / 1000)),
    counter("buckets_audit_batches", "Batches that are written.", "batches"),
    counter("buckets_audit_messages", "Messages that are in a table.", "messages", "table"),
    counter("buckets_audit_repeats", "Messages that were in their table already.", "repeats"),
    counter("buckets_audit_unreadable", "Messages that could not be read.", "unreadable"),
    histogram("buckets_audit_batch_seconds", "How long each batch took.", "duration"),
    gauge("buckets_audit_last_batch_timestamp_seconds", "When a batch was written last.", one(last_batch_s)),
    gauge(
        "buckets_audit_last_progress_timestamp_seconds",
        "When a batch was written last, or the topics had nothing new.",
        one(last_progress_s),
    ),
    gauge("buckets_audit_lag_messages", "Messages that wait.", lag_by_partition, "topic", "partition"),
    counter("buckets_audit_kafka_retries", "How often Kafka was tried again.", "outages"),
)
"""All metrics of an audit."""


def _requests(status: Status) -> Iterable[Sample]:
    return [((page, str(code)), number) for (page, code), number in status["requests"].items()]


CONSOLE: tuple[Family, ...] = (
    gauge("buckets_console_start_timestamp_seconds", "When it has started.", one(lambda s: s["started_ms"] / 1000)),
    counter("buckets_console_requests", "Requests that were answered.", _requests, "page", "code"),
    histogram("buckets_console_request_seconds", "How long answers took.", "seconds", "page"),
    gauge("buckets_console_streams", "Pages that are open and follow the job.", "streams"),
    gauge("buckets_console_questions", "Backtests and replays it knows.", "questions", "state"),
)
"""All metrics of a console."""
