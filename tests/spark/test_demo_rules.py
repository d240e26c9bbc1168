"""The Flink demo's rules as they are, on transactions as its generator writes them, on the real engine."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from buckets.rule_files.yaml_rules import load_rules
from tests.core.flink_demo import RULES_FILE, SCHEMA, Alert, looped, transactions
from tests.spark.evaluation import evaluate, evaluation_of

pytestmark = pytest.mark.spark


def test_the_demos_alerts_are_those_of_a_loop(spark, tmp_path: Path):
    written = json.loads(RULES_FILE.read_text(encoding="utf-8"))
    stream = list(transactions(seed=5, count=2_000))
    lines = [
        json.dumps(each._asdict() | {"ingestionTimestamp": each.eventTime, "paymentAmount": float(each.paymentAmount)})
        for each in stream
    ]
    events = tmp_path / "transactions.jsonl"
    events.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = evaluate(
        spark, evaluation_of(events, SCHEMA, load_rules(RULES_FILE, SCHEMA), batch_rows=700), tmp_path / "work"
    )
    rows = [json.loads(line) for line in found["alerts.jsonl"].splitlines()]
    alerts = [Alert(row["rule_id"], int(row["event_id"]), Decimal(row["value"])) for row in rows]
    wanted = looped(written, stream)
    assert len(wanted) > 20
    assert sorted(alerts) == sorted(wanted)
    assert found["dead_letters.jsonl"] == b""
