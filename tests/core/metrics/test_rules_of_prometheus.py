"""The rules by which Prometheus wakes somebody, tried by promtool, and the entries of the runbook."""

import json
import re
from pathlib import Path

import pytest
import yaml

from buckets.resources import resource
from tests import published
from tests.prometheus import promtool, series

ROOT = Path(__file__).parents[3]
RUNBOOK = "docs/pages/alerts.md"
RULE_FILE = resource("metrics/alert_rules.yaml").read_text(encoding="utf-8")
RULES = {rule["alert"]: rule for rule in yaml.safe_load(RULE_FILE)["groups"][0]["rules"]}
OF = {"job": "buckets", "instance": "h:1"}
WELL = [
    series("up", "1x40", **OF),
    series("buckets_last_progress_timestamp_seconds", "0+60x40", **OF),
    series("buckets_source_lag_messages", "100000x40", **OF, topic="t", partition="0"),
    series("buckets_delay_seconds_bucket", "0+100x40", **OF, le="0.1"),
    series("buckets_delay_seconds_bucket", "0+100x40", **OF, le="10"),
    series("buckets_delay_seconds_bucket", "0+100x40", **OF, le="+Inf"),
    series("buckets_rules_followed", "1x40", **OF),
    series("buckets_rule_changes_refused_total", "3x40", **OF),
    series("buckets_events_total", "0+1000x40", **OF),
    series("buckets_dead_letters_total", "0+10x40", **OF),
    series("buckets_kafka_retries_total", "7x40", **OF),
    series("buckets_webhook_waiting", "3x40", **OF),
    series("buckets_webhook_failed_attempts_total", "7x40", **OF),
    series("buckets_webhook_undelivered_total", "2x40", **OF),
    series("buckets_shortages", "0x40", **OF),
    series("buckets_batches_not_counted_total", "1x40", **OF),
    series("buckets_audit_last_progress_timestamp_seconds", "0+60x40", **OF),
    series("buckets_audit_lag_messages", "9x40", **OF, topic="t", partition="0"),
    series("buckets_audit_kafka_retries_total", "0x40", **OF),
]
"""Series of a minute each, of a job with which all is well, if only just."""
FAULTS = {
    "BucketsDown": {"up": "0x40"},
    "BucketsSilent": {"buckets_last_progress_timestamp_seconds": "1x40"},
    "BucketsBehind": {"buckets_source_lag_messages": "100001x40"},
    "BucketsDelayed": {"buckets_delay_seconds_bucket": "0+98x40"},
    "BucketsRulesNotFollowed": {"buckets_rules_followed": "0x40"},
    "BucketsRuleChangeRefused": {"buckets_rule_changes_refused_total": "3x29 4x10"},
    "BucketsDeadLetters": {"buckets_dead_letters_total": "0+11x40"},
    "BucketsKafkaAway": {"buckets_kafka_retries_total": "0+20x40"},
    "BucketsWebhookAway": {"buckets_webhook_failed_attempts_total": "0+5x40"},
    "BucketsWebhookUndelivered": {"buckets_webhook_undelivered_total": "2x29 3x10"},
    "BucketsShortage": {"buckets_shortages": "1x40"},
    "BucketsNotCounted": {"buckets_batches_not_counted_total": "1x29 2x10"},
    "BucketsAuditSilent": {"buckets_audit_last_progress_timestamp_seconds": "1x40"},
    "BucketsAuditBehind": {"buckets_audit_lag_messages": "100001x40"},
}
"""By rule, what is otherwise when it is to fire."""


def with_fault(fault: dict[str, str]) -> list[dict[str, str]]:
    """The series of a job with a fault; of a histogram its first bucket has it."""
    written, left = [], dict(fault)
    for one in WELL:
        name = one["series"].partition("{")[0]
        written.append({**one, "values": left.pop(name, one["values"])})
    assert not left
    return written


def expected(rule: dict) -> dict:
    """The alert of a rule, as promtool is to find it."""
    return {"exp_labels": {**OF, **rule["labels"]}, "exp_annotations": rule["annotations"]}


def trial(name: str, fault: dict[str, str], firing: set[str]) -> dict:
    """A test for promtool: which of all rules fire after half an hour."""
    alerts = [
        {"eval_time": "30m", "alertname": rule, "exp_alerts": [expected(RULES[rule])] if rule in firing else []}
        for rule in RULES
    ]
    return {"name": name, "interval": "1m", "input_series": with_fault(fault), "alert_rule_test": alerts}


@pytest.mark.slow
def test_each_rule_fires_of_its_fault_and_of_no_other(tmp_path):
    (tmp_path / "rules.yaml").write_text(RULE_FILE)
    promtool("check", "rules", tmp_path / "rules.yaml")
    assert list(FAULTS) == list(RULES)
    trials = [trial("well", {}, set()), *(trial(name, fault, {name}) for name, fault in FAULTS.items())]
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": trials}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", tmp_path / "tests.yaml")


def test_each_rule_has_its_entry_in_the_runbook():
    """With what it means, how to look, and what to do; and there is no entry of a rule that is gone."""
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    entries = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(entries) == list(RULES)
    assert all("- **Look.**" in entry and "- **Do.**" in entry for entry in entries.values())
    for name, rule in RULES.items():
        assert rule["annotations"]["runbook"] == f"{RUNBOOK}#{name.lower()}"


def test_all_queries_of_the_dashboard_are_valid(tmp_path):
    panels = json.loads(published.DASHBOARD.read_text(encoding="utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(queries) > 30
    recorded = [
        {"record": f"q{number}", "expr": query.replace("$__rate_interval", "1m")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    promtool("check", "rules", tmp_path / "queries.yaml")


def test_the_dashboard_is_the_one_that_is_made():
    assert published.DASHBOARD.read_text(encoding="utf-8") == published.dashboard(), "run `python -m tests.published`"
