"""`buckets replay` before anything is scored: what is missing is said in one line."""

import pytest
import yaml

from buckets.cli.console import Terminal
from buckets.cli.replay import show_replayed
from buckets.history.replay.replayed import Replayed
from tests.cli_unit.ran import one_line
from tests.cli_unit.test_cli import GOOD_RULES, SCHEMA


@pytest.fixture
def conf(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "rules.yaml").write_text(GOOD_RULES)
    written = {
        "source": {"kind": "json", "path": "source"},
        "schema": SCHEMA,
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
    }
    path = tmp_path / "conf.yaml"
    path.write_text(yaml.safe_dump(written))
    return path


def test_a_configuration_without_archive_is_one_line(buckets, conf, as_worded):
    assert as_worded(one_line(buckets("replay", conf), 1))


def test_a_job_that_has_not_run_is_one_line(buckets, conf, as_worded):
    conf.write_text(conf.read_text() + "archive: {path: archive}\n")
    assert as_worded(one_line(buckets("replay", conf), 1))


@pytest.mark.parametrize(
    "options",
    [
        ("--from", "soon"),
        ("--from", "2026-02-01", "--to", "2026-01-01"),
    ],
)
def test_a_time_that_is_none_is_one_line(buckets, conf, options, as_worded):
    assert as_worded(one_line(buckets("replay", conf, *options), 1))


def test_other_cuts_than_these_are_a_wrong_option(buckets, conf):
    assert buckets("replay", conf, "--cuts", "mine").code == 2


@pytest.mark.parametrize(("output_kind", "is_told"), [("kafka", True), ("delta", False)])
def test_of_a_job_with_topics_it_is_told_that_the_audit_may_not_have_read_an_alert_yet(capsys, output_kind, is_told):
    replayed = Replayed("recorded", last_batch=3, batches=3)
    replayed.compared["alerts"] = 4
    replayed.counts["replayed_only"] = 1
    show_replayed(Terminal(), replayed, 5, output_kind)
    assert ("`buckets audit` has not read yet" in capsys.readouterr().out) == is_told
