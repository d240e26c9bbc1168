"""What an archive answers when the source of its job is gone."""

import json

import pyarrow.parquet as pq
import pytest

from tests.cli_unit.archived_conf import ROWS, archived_conf
from tests.cli_unit.ran import one_line


@pytest.fixture
def conf(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return archived_conf(tmp_path)


def test_a_complete_archive_is_asked_without_the_source(buckets, conf):
    ran = buckets("features", "rules.yaml", "--conf", conf, "--out", "out.parquet")
    assert ran.code == 0, ran.err
    assert pq.read_table("out.parquet")["event_id"].to_pylist() == [row["id"] for row in ROWS]
    report = json.loads(buckets("backtest", "rules.yaml", "--conf", conf, "--json", "-").out)
    assert report["arrivals"] == len(ROWS)
    assert buckets("archive", conf).code == 0


def test_a_job_does_not_run_without_its_source(buckets, conf):
    said = f"configuration {conf}: source.path: {conf.parent / 'gone'} does not exist; create it or correct the path"
    assert one_line(buckets("run", conf), 1) == said
