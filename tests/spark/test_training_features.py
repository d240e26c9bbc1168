"""Features of what a real job has archived are its recorded evaluations, for the events that are asked for."""

import json
import sys

import pyarrow.parquet as pq
import pytest

from buckets.cli.commands import exit_code
from buckets.outputs.columns import EVALUATIONS
from tests.spark.job_folder import JobFolder, read_table
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark


def test_features_of_a_job_are_what_it_has_recorded(spark, tmp_path, monkeypatch, capsys):
    job = JobFolder(tmp_path, archive={"path": "archive"})
    events = payments(120)
    job.add_events(events, files=3)
    job.run(spark)
    wanted = {event["id"] for event in events[::2]}
    labels, out = tmp_path / "labels.jsonl", tmp_path / "features.parquet"
    labels.write_text("".join(json.dumps({"id": event_id, "fraud": True}) + "\n" for event_id in sorted(wanted)))
    asked = ["features", tmp_path / "rules.yaml", "--conf", job.conf, "--events", labels, "--out", out]
    monkeypatch.setattr(sys, "argv", ["buckets", *map(str, asked)])
    assert exit_code() == 0, capsys.readouterr().err

    rows = pq.read_table(out).to_pylist()
    assert {row["event_id"] for row in rows} == wanted
    assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)
    found = {
        (row["event_id"], rule["rule_id"]): (row[f"{rule['rule_id']}.value"], row[f"{rule['rule_id']}.fired"])
        for row in rows
        for rule in RULES
        if row[f"{rule['rule_id']}.value"] is not None
    }
    recorded = {
        (row["event_id"], row["rule_id"]): (row["value"], row["fired"])
        for row in read_table(job.tables / EVALUATIONS)
        if row["event_id"] in wanted
    }
    assert found == recorded
    assert {row["outcome"] for row in rows} >= {"evaluated", "late"}
