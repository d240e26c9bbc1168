"""A first folder: all of it fits together, its rules are tested and find something, and nothing is overwritten."""

import json

import pytest

from tests.cli_unit.ran import one_line


@pytest.fixture
def made(buckets, tmp_path, monkeypatch):
    """A folder that was just made, in which the next commands run."""
    ran = buckets("init", str(tmp_path / "first job"))
    assert ran.code == 0, ran.err
    monkeypatch.chdir(tmp_path / "first job")
    return ran


def test_what_is_made_passes_all_checks_and_tests(made, buckets):
    assert "cd '" in made.out
    checked = buckets("check", "conf.yaml")
    assert checked.code == 0, checked.out
    assert checked.out.count(" ok ") == 7
    tested = buckets("rules", "test", "rules.yaml", "--schema", "schema.yaml")
    assert tested.code == 0, tested.out
    assert "2 passed" in tested.out


def test_each_rule_finds_something_in_the_payments(made, buckets, tmp_path):
    ran = buckets("backtest", "rules.yaml", "--events", "payments", "--schema", "schema.yaml", "--json", "r.json")
    assert ran.code == 0, ran.err
    rules = json.loads((tmp_path / "first job" / "r.json").read_text())["rules"]
    assert {rule["rule_id"] for rule in rules} == {"card-five-in-five-minutes", "far-above-average"}
    assert all(rule["alerts"] > 0 for rule in rules)


def test_nothing_is_overwritten(made, buckets, tmp_path, as_worded):
    before = (tmp_path / "first job" / "rules.yaml").read_text()
    assert as_worded(one_line(buckets("init", str(tmp_path / "first job")), 1))
    assert (tmp_path / "first job" / "rules.yaml").read_text() == before
    (tmp_path / "file").touch()
    assert as_worded(one_line(buckets("init", str(tmp_path / "file")), 1))
    assert as_worded(one_line(buckets("init", str(tmp_path / "file" / "below")), 1))
