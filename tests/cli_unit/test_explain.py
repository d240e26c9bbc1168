"""`buckets explain`: what it is asked, and what it says where it cannot answer."""

import pytest

from tests.cli_unit.ran import one_line


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((), "give either ALERT_ID, an alert, or --event with --rule; `buckets explain --help` has examples"),
        (("a1", "--event", "e1"), "give either ALERT_ID, an alert, or --event with --rule"),
        (("--event", "e1"), "--event and --rule go together: which rule is to be explained at which event"),
        (("a1", "--at", "2026-01-01"), "--at goes with --event; leave it out"),
        (("a1",), "configuration conf.yaml: no such file; check the path"),
    ],
)
def test_a_question_that_is_none_is_refused_in_one_line(buckets, tmp_path, monkeypatch, asked, said):
    monkeypatch.chdir(tmp_path)
    assert said in one_line(buckets("explain", "conf.yaml", *asked), 1)


def test_a_job_without_an_archive_says_what_to_add(buckets, tmp_path):
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
    assert "add `archive: {path: archive}`" in one_line(buckets("explain", conf, "a1"), 1)
