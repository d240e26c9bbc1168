"""`buckets explain`: what it is asked, and what it says where it cannot answer."""

import pytest

from buckets.exit_codes import FAILED, MISUSED
from tests.cli_unit.ran import one_line


@pytest.mark.parametrize(
    "asked",
    [
        (),
        ("a1", "--event", "e1"),
        ("--event", "e1"),
        ("a1", "--at", "2026-01-01"),
        ("a1",),
    ],
)
def test_a_question_that_is_none_is_refused_in_one_line(buckets, tmp_path, monkeypatch, asked, as_worded):
    monkeypatch.chdir(tmp_path)
    code = MISUSED if asked == ("a1",) else FAILED  # that configuration is not there
    assert as_worded(one_line(buckets("explain", "conf.yaml", *asked), code))


@pytest.fixture
def conf(tmp_path):
    """The configuration of a job without an archive, that has not run."""
    for folder in ("source", "checkpoint"):
        (tmp_path / folder).mkdir()
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: t\nattributes: {k: string}\n")
    limit = "limit: {operator: '>', value: 1}"
    one = f"rule_id: r, group_by: [k], aggregate: {{function: count}}, window: {{length: 1h}}, {limit}"
    (tmp_path / "rules.yaml").write_text(f"rules: [{{{one}}}]\n")
    conf = tmp_path / "conf.yaml"
    conf.write_text(
        "source: {kind: json, path: source}\nschema: schema.yaml\nrules: rules.yaml\ncheckpoint: checkpoint\n"
        "output: {path: tables}\n"
    )
    return conf


@pytest.mark.parametrize("read", ["conf.yaml", "rules.yaml", "schema.yaml", "source/day.json", "checkpoint/record"])
def test_nothing_that_is_read_is_replaced_by_the_page(buckets, conf, read, as_worded):
    path = conf.parent / read
    path.touch()
    before = path.read_bytes()
    for command in (("explain", conf, "a1"), ("rules", "quality", conf)):
        assert as_worded(one_line(buckets(*command, "--html", path), 1))
    assert path.read_bytes() == before


def test_a_job_without_an_archive_says_what_to_add(buckets, conf, as_worded):
    assert as_worded(one_line(buckets("explain", conf, "a1"), 1))
