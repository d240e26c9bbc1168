"""Jobs on columns as people have them: keys in floating point in one file, times in another unit or without a zone."""

import json
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.core.test_floating_keys import CARD, FILES
from tests.spark.job_folder import JobFolder
from tests.spark.payments import SCHEMA

pytestmark = pytest.mark.spark

CARDS = {"name": "payment", "event_id": "id", "event_time": "at", "attributes": {"card": "string"}, "measures": {}}
COUNT = {
    "rule_id": "r",
    "group_by": ["card"],
    "aggregate": {"function": "count"},
    "window": {"length": "1h"},
    "limit": {"operator": ">", "value": "0"},
}


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_key_of_either_type_is_one_key(spark, tmp_path, kind):
    job = JobFolder(tmp_path, source={"kind": kind, "path": "source"} | ({"arrival": "at"} if kind == "delta" else {}))
    job.write_schema(CARDS)
    job.write_rules([COUNT])
    for number, each in enumerate(FILES):
        if kind == "delta":
            write_deltalake(job.source, each.cast(FILES[1].schema), mode="append")
        else:
            pq.write_table(each, job.source / f"{number}.parquet")
    job.run(spark)
    found = sorted((row["event_id"], json.loads(row["key"]), row["count"]) for row in job.rows("evaluations"))
    assert found == [(f"{at}", {"card": str(CARD)}, count) for at, count in ((1, 1), (2, 2), (4, 3))]
    assert job.rows("dead_letters") == []


def test_a_job_tells_once_of_a_unit_that_cannot_be_right_and_loses_nothing(spark, tmp_path):
    job = JobFolder(tmp_path)
    events = [
        {"id": f"e{at}", "t": 1_763_000_000 + 300 * at, "payer": "p", "kind": "CARD", "amount": 1} for at in range(10)
    ]
    job.add_events(events, files=2)
    told: list[str] = []
    job.run(spark, told.append)
    times = [line for line in told if "1970" in line]
    assert times == [
        "batch 0: all 5 times are in 1970 with `unit: ms`, and with `unit: s` they are from 2025-11-13 02:13:20 to "
        "2025-11-13 02:33:20; write `unit: s` in event_time, or `earliest: 1970-01-01` if they are right"
    ]
    assert len(job.rows("evaluations")) == 3 * 10
    assert job.rows("dead_letters") == []


def test_local_times_of_a_job_are_read_in_the_zone_of_the_schema_and_counted(spark, tmp_path):
    job = JobFolder(tmp_path, source={"kind": "parquet", "path": "source"})
    clock = [datetime(2026, 10, 25, 1) + timedelta(minutes=30 * at) for at in range(6)]  # noqa: DTZ001
    columns = {"id": [f"e{at}" for at in range(6)], "t": pa.array(clock, pa.timestamp("us")), "payer": ["p"] * 6}
    pq.write_table(pa.table(columns | {"kind": ["CARD"] * 6, "amount": ["1"] * 6}), job.source / "a.parquet")
    job.write_schema(SCHEMA | {"event_time": {"field": "t", "zone": "Europe/Berlin"}})
    told: list[str] = []
    (report,) = job.run(spark, told.append)
    line = "2 of 6 times lie in an hour that clocks of Europe/Berlin show twice, and are taken for the first"
    assert [each for each in told if "clocks" in each] == [f"batch 0: {line}"]
    facts = {"times": 6, "counted": 0, "without_zone": 6, "twice": 2, "skipped": 0}
    assert dict(report.account.facts.times) == facts
    times = {row["event_id"]: row["event_time"] for row in job.rows("evaluations")}
    assert [times[f"e{at}"].isoformat() for at in range(6)] == [
        "2026-10-24T23:00:00+00:00", "2026-10-24T23:30:00+00:00", "2026-10-25T00:00:00+00:00",
        "2026-10-25T00:30:00+00:00", "2026-10-25T02:00:00+00:00", "2026-10-25T02:30:00+00:00",
    ]  # fmt: skip
