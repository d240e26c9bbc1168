"""Alert policies on the real engine: what they remember lies in the state, and survives a restart between batches."""

import json

import pytest

from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.core.pipeline import Pipeline
from tests.spark.job_folder import JobFolder
from tests.spark.payments import EVENT_SCHEMA, payments

pytestmark = pytest.mark.spark
SUM, COUNT = (
    {
        "group_by": ["payer"],
        "aggregate": {"function": function, "measure": "amount"},
        "window": {"length": "1s"},
        "limit": {"operator": ">", "value": "0"},
    }
    for function in ("sum", "count")
)
RULES = [
    SUM | {"rule_id": "quiet", "cooldown": "400ms", "severity": "high", "tags": ["cards", "aml"], "score": 5},
    COUNT | {"rule_id": "on-trial", "state": "SHADOW", "cooldown": "2s"},
    COUNT | {"rule_id": "share", "rollout": "50%", "cooldown": "100ms"},
    {
        "rule_id": "features",
        "group_by": ["payer"],
        "features": {"n": {"function": "count", "window": "500ms"}},
        "when": "n >= 2",
        "snoozes": [{"from": "1970-01-01T00:00:00Z", "until": "1970-01-01T00:00:01Z", "reason": "known"}],
    },
]
SHOWN = ("event_id", "rule_id", "severity", "tags", "score", "held_back", "held_by", "state", "alert_id")
OUTPUTS = ("alerts", "shadow_alerts", "held_alerts")


def shown(rows) -> list[str]:
    return sorted(json.dumps([row.get(name) for name in SHOWN]) for row in rows)


def test_a_restart_between_batches_changes_nothing_that_comes_out(spark, tmp_path):
    events = payments(60)
    whole = Pipeline(
        first_rule_set([Rule.model_validate(rule) for rule in RULES]), EVENT_SCHEMA, allowed_lateness="100ms"
    )
    whole.batch([[{"raw": json.dumps(event)} | event for event in events]])
    job = JobFolder(tmp_path)
    job.write_rules(RULES)
    for number in range(3):
        job.add_file(number, [json.dumps(event) for event in events[20 * number : 20 * number + 20]])
        job.run(spark)
    for output in OUTPUTS:
        assert shown(job.rows(output)) == shown(whole.output(output))
        assert job.rows(output)
    counted = sum(row["held_alerts"] for row in job.rows("batches"))
    assert counted == len(job.rows("held_alerts")) > 0
