"""The metrics of a real job are what its tables say."""

import json
from collections import Counter

import pytest

from buckets.clock import epoch_ms
from buckets.metrics.endpoint import ready
from buckets.metrics.job_metrics import job_exposition
from buckets.monitor.live import LiveStatus
from tests.core.metrics.test_exposition import samples
from tests.spark.job_folder import JobFolder
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark

BROKEN = [json.dumps(payments(1)[0] | {"id": "x", "amount": "ten"}), "{", json.dumps({"id": "y"})]
MANY = 80


def latest(time_ms: int) -> list[str]:
    """Payments of many other payers, so much later than all others that these are evicted."""
    payment = {"t": time_ms, "kind": "CASH", "amount": "1.00"}
    return [json.dumps({"id": f"{time_ms}-{number}", "payer": f"p{number}"} | payment) for number in range(MANY)]


def by_label(told: dict, name: str, label: str, **others: str) -> dict[str, float]:
    """The numbers of a metric by one label, of series that have the others."""
    found = {series: dict(series[1:]) for series in told if series[0] == name}
    return {
        labels[label]: told[series]
        for series, labels in found.items()
        if {other: labels[other] for other in others} == others and told[series]
    }


def test_metrics_of_a_job_are_what_its_tables_say(spark, tmp_path):
    job = JobFolder(tmp_path)
    held = RULES[0] | {"rule_id": "held", "cooldown": "1s"}
    job.write_rules([*RULES, held])
    job.add_events(payments(100), 2)
    job.add_file(2, [*BROKEN, *latest(10_000_000)])
    job.add_file(3, latest(20_000_000))
    query = job.query(spark, lambda report: live.on_batch(report))
    with LiveStatus(job.checkpoint, query.rules_in_force, query.news, query.rules_fault, every_s=3600) as live:
        query.run(None)
    told = samples(job_exposition(live.latest))
    alerts = Counter(row["rule_id"] for row in job.rows("alerts"))
    assert by_label(told, "buckets_alerts_total", "rule", state="live") == alerts
    trials = Counter(row["rule_id"] for row in job.rows("shadow_alerts"))
    assert by_label(told, "buckets_alerts_total", "rule", state="trial") == trials
    held_rows = Counter(row["rule_id"] for row in job.rows("held_alerts"))
    assert by_label(told, "buckets_alerts_total", "rule", state="held") == held_rows
    assert min(len(alerts), len(trials), len(held_rows)) > 0
    batches = job.rows("batches")
    for outcome in ("evaluated", "late", "too_late", "filtered", "no_key"):
        counted = Counter()
        for row in batches:
            counted[row["group"]] += row[outcome]
        assert by_label(told, "buckets_group_events_total", "group", outcome=outcome) == +counted
    assert told["buckets_events_total",] == 100 + len(BROKEN) + 2 * MANY
    assert told["buckets_batches_total",] == 4
    reasons = by_label(told, "buckets_dead_letter_reasons_total", "reason")
    assert reasons == {"amount": 1, "unreadable": 1, "t": 1}
    assert told["buckets_dead_letters_total",] == 3 == len(job.rows("dead_letters"))
    keys = by_label(told, "buckets_new_keys_total", "group")
    assert keys == {"payer": 3 + MANY, "payer where kind is CARD": 3, "all events": 1}
    assert by_label(told, "buckets_evicted_keys_total", "group") == {"payer": 3, "payer where kind is CARD": 3}
    assert told["buckets_state_log_bytes",] > 0
    assert told["buckets_batch_phase_seconds_count", ("phase", "score")] == 4
    assert by_label(told, "buckets_process_resident_memory_bytes", "process").keys() == {"driver", "jvm", "worker"}
    assert told["buckets_workers_proportional_memory_bytes",] > 0
    news = query.news()
    assert news.state["memory_bytes"] > 0 == news.state["disk_bytes"]  # so little is in RocksDB's memory alone
    assert news.phases_s["addBatch"] > 0
    assert ready(live.latest | {"ended_ms": None}, epoch_ms(), 0).reason == "batch 3 is written"
