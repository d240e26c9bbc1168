"""Features of what a real job has archived are its recorded evaluations, for the events that are asked for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from buckets.cli.commands import exit_code
from buckets.outputs.columns import EVALUATIONS
from tests.core.test_feature_folder import contents
from tests.spark.job_folder import JobFolder, read_table
from tests.spark.payments import RULES, payments
from tests.spark.test_history import rows_of

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


SMALL_PIECES = """
import sys
from buckets.history import features, scoring
scoring.JOINED_ROWS, features.ROUND_S = 7, 0
from buckets.cli.commands import exit_code
sys.exit(exit_code())
"""


def features_by_day(job: JobFolder, out: Path, *options: str, commits: int | None = None) -> dict[str, object]:
    """Run the command, and return what it reports; with a number of commits, kill all of it when these are there."""
    asked = ["features", job.root / "rules.yaml", "--conf", job.conf, "--out", out, "--by", "day", "--json", *options]
    with subprocess.Popen(
        [sys.executable, "-c", SMALL_PIECES, *map(str, asked)], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        while commits is not None and len([*out.glob("_delta_log/*.json")]) < commits and process.poll() is None:
            time.sleep(0.01)
        if commits is not None:
            assert process.poll() is None
            os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate()[0]
    return {} if commits is not None else json.loads(said) | {"out": ""}


@pytest.mark.parametrize("options", [(), ("--master", "local[2]")], ids=["one process", "Spark"])
def test_killed_with_all_its_processes_it_goes_on_and_writes_the_same_files(spark, tmp_path, options):
    job = JobFolder(tmp_path, archive={"path": "archive"})
    job.add_events(payments(120), files=5)
    job.run(spark)
    whole = features_by_day(job, tmp_path / "whole")
    for commits in (1, 4):
        features_by_day(job, tmp_path / "killed", *options, commits=commits)
    assert features_by_day(job, tmp_path / "killed", *options) == whole
    found, expected = (rows_of(contents(tmp_path / name)) for name in ("killed", "whole"))
    assert found == expected
    rows = DeltaTable(tmp_path / "killed").to_pyarrow_table().sort_by("position")
    assert rows["position"].to_pylist() == list(range(120))
    assert rows == DeltaTable(tmp_path / "whole").to_pyarrow_table().sort_by("position")
