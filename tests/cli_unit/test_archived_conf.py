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
    assert one_line(buckets("run", conf), 2) == said


@pytest.mark.parametrize("out", ["out.parquet", "out"])
def test_named_events_that_the_archive_lacks_are_counted(buckets, conf, out, as_worded):
    labels = conf.parent / "labels.csv"
    asked = ("features", "rules.yaml", "--conf", conf, "--events", labels, "--out", out)
    labels.write_text("id\nnobody\nnowhere\n")
    assert as_worded(one_line(buckets(*asked), 1))
    assert not (conf.parent / out).exists()
    labels.write_text("id\ne3\nnobody\ne1\n")
    ran = buckets(*asked)
    assert ran.code == 0
    assert as_worded(ran.err)
    assert "2 rows" in ran.out
    labels.write_text("id\ne3\n")
    assert buckets(*asked, "--overwrite").err == ""


def test_an_archive_that_begins_or_ends_in_the_middle_of_a_job_says_what_it_lacks(buckets, tmp_path, as_worded):
    later, earlier = archived_conf(tmp_path / "later", range(1, 2)), archived_conf(tmp_path / "earlier", range(1))
    explained = buckets("explain", later, "--event", "e7", "--rule", "r")
    assert "events of batches before 1 are not in the archive" in explained.out, explained.err
    for conf, gone in ((later, "e1"), (earlier, "e7")):
        assert as_worded(one_line(buckets("explain", conf, "--event", gone, "--rule", "r"), 1))
    assert buckets("explain", earlier, "--event", "e1", "--rule", "r").code == 0


def test_features_by_day_go_on_and_report_all_that_is_written(buckets, conf, as_worded):
    asked = ("features", "rules.yaml", "--conf", conf, "--out", "by-day", "--by", "day", "--json")
    first, second = buckets(*asked), buckets(*asked)
    assert (first.code, first.out) == (second.code, second.out)
    assert as_worded(first.err)
    assert as_worded(second.err)
    assert json.loads(first.out)["rows"] == len(ROWS)
    assert buckets(*asked, "--overwrite").out == first.out
    for others in (("--flags",), ("--by", "month"), ("--out", "out.parquet")):
        assert as_worded(one_line(buckets(*asked, *others), 1))
    assert as_worded(one_line(buckets(*asked[:6], "--overwrite"), 1))
