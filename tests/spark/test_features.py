"""Rules with features on the real engine: as in one process, however the arrivals are cut or interrupted."""

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from buckets.config.engine import EngineSettings
from buckets.rules.rule import Rule
from tests.core.test_features import SCHEMA, START_MS, expected
from tests.spark.evaluation import evaluate, evaluation_of

pytestmark = pytest.mark.spark
RULES = [
    {
        "rule_id": "own-group",
        "group_by": ["payer"],
        "where": "flag OR amount > 5",
        "features": {
            "recent": {"function": "sum", "of": "amount", "window": "5s"},
            "usual": {"function": "avg", "of": "amount", "window": "30s"},
            "others": {"function": "count", "window": "30s", "where": "kind = 'a'"},
            "kinds": {"function": "count_distinct", "of": "bene", "window": "30s"},
        },
        "when": "recent > 1.5 * usual OR others > 3 AND kinds = 2",
    },
    {
        "rule_id": "two-groups",
        "group_by": ["payer"],
        "features": {
            "mine": {"function": "sum", "of": "amount", "window": "5s"},
            "theirs": {"function": "max", "of": "amount", "window": "30s", "group_by": ["bene"]},
            "same": {"function": "same_count", "of": "amount", "window": "30s"},
        },
        "when": "mine > theirs AND same >= 2",
    },
    {
        "rule_id": "on-trial",
        "state": "SHADOW",
        "group_by": [],
        "features": {"first": {"function": "is_first", "window": "5s", "group_by": ["payer", "bene"]}},
        "when": "first AND amount > 2",
    },
]


def stream(count: int) -> list[dict[str, Any]]:
    dice, time_ms, rows = random.Random(4), START_MS, []
    for number in range(count):
        time_ms += dice.choice([0, 1, 500, 2000, -700])
        row = {"id": f"e{number}", "time": time_ms, "payer": dice.choice("pq"), "bene": dice.choice(["b", "c", ""])}
        row |= {"kind": dice.choice("ab"), "flag": dice.random() < 0.5, "n": number}
        rows.append(row | {"amount": Decimal(dice.choice(["1.00", "2.50", "7.25", "-3.10"]))})
    return rows


def test_features_are_the_same_in_every_cut_and_as_a_loop_over_lists_has_them(spark, tmp_path: Path):
    rules, rows = [Rule.model_validate(rule) for rule in RULES], stream(60)
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    engine = EngineSettings.model_validate({"shards": 3, "allowed_lateness": "3s"})
    whole = evaluate(spark, evaluation_of(file, SCHEMA, rules, engine), tmp_path / "whole")
    in_parts = evaluate(
        spark, evaluation_of(file, SCHEMA, rules, engine, batch_rows=13), tmp_path / "parts", stops=[1, 3]
    )
    assert whole == in_parts
    found = {}
    for line in whole["evaluations.jsonl"].decode().splitlines():
        row = json.loads(line)
        terms = {term["name"]: term["value"] for term in row["terms"]}
        found[int(row["event_id"][1:]), row["rule_id"]] = terms, row["fired"]
    assert found == expected(rules, rows, "add", 3000)
    fired = {rule.rule_id: sum(at[1] == rule.rule_id and value[1] for at, value in found.items()) for rule in rules}
    assert all(fired.values())
    alerts = [json.loads(line) for line in whole["alerts.jsonl"].decode().splitlines()]
    shadow = [json.loads(line) for line in whole["shadow_alerts.jsonl"].decode().splitlines()]
    assert len(alerts) == fired["own-group"] + fired["two-groups"]
    assert {alert["rule_id"] for alert in shadow} == {"on-trial"}
    assert all(alert["condition"] and alert["event"]["amount"] for alert in alerts)
