"""What Prometheus reads of a job: every number, in the names and units that it wants, and never more than so many."""

import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from buckets.console.view import Activity
from buckets.engine.stages.accounting import BatchFacts
from buckets.metrics.job_metrics import AUDIT, BUILD, CONSOLE, JOB, exposition, job_exposition
from buckets.monitor.live import read_live
from buckets.monitor.query_news import MOST_GROUPS, MOST_RULES, JobCounts
from buckets.outputs.columns import ALERTS
from buckets.resources import resource
from tests.core.done_batches import batch
from tests.core.metrics.statuses import BATCH, audit_status, job_status

FAMILIES = (BUILD, *JOB, *AUDIT, *CONSOLE)
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
NAMES = {f"{family.name}{suffix}" for family in FAMILIES for suffix in SUFFIXES[family.kind]}
UNITS = ("_seconds", "_bytes", "_total", "_info")
COUNTED = {
    "buckets_webhook_waiting",
    "buckets_sampled_keys",
    "buckets_sampled_keys_in_several_partitions",
    "buckets_source_lag_messages", "buckets_rules_version", "buckets_rules", "buckets_rules_followed",
    "buckets_event_schema_version", "buckets_event_schema_followed",
    "buckets_backfill_events", "buckets_backfill_events_expected", "buckets_process_threads",
    "buckets_process_open_fds", "buckets_shortages", "buckets_audit_lag_messages",
    "buckets_console_streams", "buckets_console_questions",
}  # fmt: skip
"""Gauges of things that are counted, which have no unit."""


def samples(text: bytes) -> dict[tuple, float]:
    """Every series by its name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.fixture
def told(tmp_path) -> dict[tuple, float]:
    return samples(job_exposition(job_status(tmp_path, BATCH)))


@pytest.mark.parametrize(
    ("series", "number"),
    [
        (("buckets_events_total",), 10),
        (("buckets_group_events_total", ("group", "payer"), ("outcome", "evaluated")), 7),
        (("buckets_group_events_total", ("group", "payer"), ("outcome", "late")), 2),
        (("buckets_alerts_total", ("rule", "one"), ("state", "live")), 3),
        (("buckets_alerts_total", ("rule", "one"), ("state", "held")), 2),
        (("buckets_alerts_total", ("rule", "two"), ("state", "trial")), 1),
        (("buckets_dead_letters_total",), 3),
        (("buckets_dead_letter_reasons_total", ("reason", "amount")), 2),
        (("buckets_skipped_total", ("reason", "deleted")), 4),
        (("buckets_rounded_total", ("measure", "amount")), 5),
        (("buckets_batch_phase_seconds_sum", ("phase", "score")), 0.08),
        (("buckets_batch_phase_seconds_bucket", ("le", "0.1"), ("phase", "score")), 1),
        (("buckets_batch_phase_seconds_bucket", ("le", "0.05"), ("phase", "score")), 0),
        (("buckets_delay_seconds_bucket", ("le", "0.1")), 6),
        (("buckets_delay_seconds_bucket", ("le", "+Inf")), 10),
        (("buckets_delay_seconds_sum",), 8.48),
        (("buckets_source_lag_messages", ("partition", "0"), ("topic", "t")), 7),
        (("buckets_topics_appeared_total",), 2),
        (("buckets_sampled_keys", ("group", "payer")), 2),
        (("buckets_sampled_keys_in_several_partitions", ("group", "payer")), 1),
        (("buckets_new_keys_total", ("group", "payer")), 4),
        (("buckets_evicted_keys_total", ("group", "payer")), 1),
        (("buckets_state_log_bytes",), 150),
        (("buckets_state_cache_bytes",), 15),
        (("buckets_state_disk_bytes",), 2000),
        (("buckets_rules_version",), 1),
        (("buckets_rules", ("state", "shadow")), 1),
        (("buckets_rules_followed",), 1),
        (("buckets_event_schema_version",), 3),
        (("buckets_event_schema_followed",), 1),
        (("buckets_rule_changes_refused_total",), 2),
        (("buckets_kafka_retries_total",), 1),
        (("buckets_webhook_delivered_total",), 5),
        (("buckets_webhook_failed_attempts_total",), 2),
        (("buckets_webhook_undelivered_total",), 1),
        (("buckets_webhook_waiting",), 3),
        (("buckets_backfill_events", ("group", "payer")), 10),
        (("buckets_backfill_events_expected", ("group", "payer")), 40),
        (("buckets_last_batch_timestamp_seconds",), 1_800_000_000),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_each_fact_of_a_job_is_told(told, series, number):
    assert told[series] == pytest.approx(number)


def test_memory_of_the_processes_is_told_in_bytes(told):
    assert told["buckets_process_resident_memory_bytes", ("process", "driver")] > 1 << 20


def test_an_audit_tells_what_it_has_kept():
    told = samples(exposition(AUDIT, audit_status()))
    assert told["buckets_audit_messages_total", ("table", "alerts")] == 3
    assert (told["buckets_audit_repeats_total",], told["buckets_audit_kafka_retries_total",]) == (1, 1)
    assert told["buckets_audit_batch_seconds_bucket", ("le", "0.25")] == 1


def console_status() -> dict:
    activity = Activity()
    for seconds in (0.02, 0.04):
        activity.note("alerts", 200, seconds)
    activity.note("rules", 403, 0.001)
    with activity.streaming("ann"):
        return activity.status() | {"questions": {"running": 1}}


def test_a_console_tells_what_was_asked_of_it():
    told = samples(exposition(CONSOLE, console_status()))
    assert told["buckets_console_requests_total", ("code", "200"), ("page", "alerts")] == 2
    assert told["buckets_console_requests_total", ("code", "403"), ("page", "rules")] == 1
    assert told["buckets_console_request_seconds_bucket", ("le", "0.03"), ("page", "alerts")] == 1
    assert told["buckets_console_request_seconds_count", ("page", "alerts")] == 2
    assert told["buckets_console_streams",] == 1
    assert told["buckets_console_questions", ("state", "running")] == 1


def test_every_metric_has_a_number(tmp_path):
    there = {name for name, *_ in samples(job_exposition(job_status(tmp_path, BATCH)))}
    there |= {name for name, *_ in samples(exposition(AUDIT, audit_status() | {"query": {"behind": [["t", "0", 1]]}}))}
    there |= {name for name, *_ in samples(exposition(CONSOLE, console_status()))}
    there |= {name for name, *_ in samples(exposition([BUILD], {}))}
    assert there == NAMES


def test_names_are_unique_and_have_the_units_of_prometheus():
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    bases = {name for family in FAMILIES for name in ([family.name] if family.kind != "counter" else [])}
    assert {name for name in bases if not name.endswith(UNITS)} == COUNTED
    assert all(re.fullmatch(r"buckets_[a-z_]+", name) for name in names)


def named_in(text: str) -> set[str]:
    """The metrics that a text names; not the names of alert rules, or of the dashboard."""
    return set(re.findall(r"\bbuckets_[a-z_]+", text))


def test_all_metrics_of_the_dashboard_and_of_the_rules_exist():
    dashboard = resource("metrics/dashboard.json").read_text(encoding="utf-8")
    assert len(named_in(dashboard)) > 30
    assert named_in(dashboard) <= NAMES
    rules = yaml.safe_load(resource("metrics/alert_rules.yaml").read_bytes())["groups"][0]["rules"]
    assert named_in(" ".join(rule["expr"] for rule in rules)) <= NAMES


def test_a_status_that_was_read_from_its_file_tells_the_same(tmp_path):
    """So whoever reads the file can tell it too."""
    job_status(tmp_path, BATCH)
    live = read_live(tmp_path)
    assert live is not None
    told = samples(job_exposition(live.data))
    of_others = ("buckets_audit_", "buckets_console_", "buckets_build_")
    assert {name for name, *_ in told} >= {name for name in NAMES if not name.startswith(of_others)}


# Bounds


def test_rules_and_groups_beyond_so_many_are_counted_together():
    counts = JobCounts()
    for number in range(MOST_RULES + 50):
        facts = BatchFacts(rules={ALERTS: {f"r{number}": 2}}, new_keys={f"g{number}": 3})
        counts.add(batch(facts=facts))
    status = counts.to_json(0)
    assert len(status["rule_alerts"]) == MOST_RULES + 1
    assert status["rule_alerts"]["other"] == {"live": 100}
    assert len(status["keys"]) == MOST_GROUPS + 1
    assert status["keys"]["other"] == {"new": 150}


def test_twenty_thousand_batches_take_no_more_series_than_ten(tmp_path):
    counts, sizes = JobCounts(), []
    for number in range(20_000):
        counts.add(batch(facts=BatchFacts(rules={ALERTS: {f"r{number % 1000}": 1}}), written_ms=number * 500))
        if number in (2_000, 19_999):
            status = counts.to_json(number * 500)
            sizes.append({name: len(value) for name, value in status.items() if isinstance(value, dict | list)})
    assert sizes[0] == sizes[1]


def test_names_with_quotes_and_line_ends_are_escaped(tmp_path):
    odd = 'a "rule"\nwith \\ all'
    status = job_status(tmp_path, batch(facts=BatchFacts(rules={ALERTS: {odd: 1}})))
    assert samples(job_exposition(status))["buckets_alerts_total", ("rule", odd), ("state", "live")] == 1
