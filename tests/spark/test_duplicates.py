"""Duplicates by their id, rounded amounts and 18 digits in a real job that is stopped and started again in between."""

import json
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from tests.spark.job_folder import JobFolder

pytestmark = pytest.mark.spark
SCHEMA = {
    "event_id": "id",
    "event_time": "t",
    "attributes": {"payer": "string"},
    "measures": {"amount": {"scale": 6, "round": "half_even"}, "coins": {"scale": 18}},
}
RULES = [
    {
        "rule_id": f"{function}-{measure}",
        "group_by": ["payer"],
        "aggregate": {"function": function, "measure": measure},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "5"},
    }
    for function, measure in (("sum", "amount"), ("avg", "coins"))
]
START_MS = 1_700_000_000_000


def event(name: str, at_ms: int, amount: str, coins: str) -> dict:
    return {"id": name, "t": START_MS + at_ms, "payer": "p", "amount": amount, "coins": coins}


def test_a_job_says_how_duplicates_differ_and_what_it_rounded_also_after_a_restart(spark: SparkSession, tmp_path):
    engine = {"shards": 2, "allowed_lateness": "1h", "duplicates": {"by": "id", "within": "30m"}}
    job = JobFolder(tmp_path, engine=engine)
    job.write_schema(SCHEMA)
    job.write_rules(RULES)
    job.add_events([event("a", 0, "1.0000005", "9.2"), event("b", 1, "2.0000015", "-9.2")], files=1)
    assert len(job.run(spark)) == 1
    job.add_events([event("a", 1000, "3", "9.2"), event("c", 2000, "4", "0.000000000000000001")], files=1, first=1)
    assert len(job.run(spark)) == 1
    (duplicate,) = job.rows("duplicates")
    assert duplicate["compared"] == ["t", "amount", "coins"]
    assert json.loads(duplicate["other_values"]) == {"t": START_MS, "amount": "1.000000"}
    assert json.loads(duplicate["own_values"]) == {"t": START_MS + 1000, "amount": "3.000000"}
    assert json.loads(duplicate["event"])["coins"] == "9.200000000000000000"
    accounts = {row["batch_id"]: row for row in job.rows("batches")}
    assert [accounts[batch]["rounded"] for batch in (0, 1)] == [2, 0]
    assert [accounts[batch]["duplicates"] for batch in (0, 1)] == [0, 1]
    values = {(row["event_id"], row["rule_id"]): row["value"] for row in job.rows("evaluations")}
    assert values["c", "sum-amount"] == Decimal("1.000000") + Decimal("2.000002") + 4
    assert values["c", "avg-coins"] == Decimal("0.000000000000000000333333")
