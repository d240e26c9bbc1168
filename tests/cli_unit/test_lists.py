"""The commands `buckets lists`, and `--list` of `buckets evaluate`, as far as they need neither Spark nor Kafka."""

import json
from pathlib import Path

import pytest

from buckets.checkpoint.driver_state import Checkpoint
from buckets.exit_codes import MISUSED
from buckets.feeds.lists import ListBook, WholeList
from tests.cli_unit.ran import one_line

CONF = """\
source: {kind: kafka, topic: payments}
schema: schema.yaml
rules: rules.yaml
lists:
  payroll: {kind: file, path: payroll.csv}
  blocked: {kind: kafka, topic: blocked}
  pairs: {kind: kafka, topic: pairs, key: [a, b]}
  nets: {kind: kafka, topic: nets, match: cidr}
  networks: {kind: file, path: networks.csv, match: cidr}
checkpoint: checkpoint
output: {path: tables}
kafka: {bootstrap_servers: "localhost:1"}
"""
SCHEMA = """\
event_id: id
event_time: {field: at}
attributes: {payer: string}
measures: {amount: {scale: 2}}
"""
RULES = """\
rules:
  - rule_id: r
    group_by: [payer]
    where: payer NOT IN LIST LIST_NAME
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">", value: "1"}
"""


@pytest.fixture
def conf(tmp_path) -> Path:
    (tmp_path / "conf.yaml").write_text(CONF)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "rules.yaml").write_text(RULES.replace("LIST_NAME", "payroll"))
    (tmp_path / "payroll.csv").write_text("key,until,author,category\np1,2026-12-31T18:00:00Z,ann,a\np2,,,\n")
    (tmp_path / "networks.csv").write_text("key,category\n10.0.0.0/8,office\n10.1.0.0/16,\n")
    return tmp_path / "conf.yaml"


def test_show_says_what_the_latest_batches_see(buckets, conf):
    assert "not read yet" in buckets("lists", "show", "--conf", str(conf)).out
    lists = ListBook(Checkpoint(conf.parent / "checkpoint"), {"payroll": WholeList(conf.parent / "payroll.csv")})
    lists.start_reading()
    networks = WholeList(conf.parent / "networks.csv", match="cidr")
    ListBook(Checkpoint(conf.parent / "checkpoint"), {"networks": networks}).start_reading()
    shown = buckets("lists", "show", "--conf", str(conf))
    assert shown.code == 0
    assert "payroll" in shown.out
    entry = json.loads(buckets("lists", "show", "payroll", "p1", "--conf", str(conf)).out)
    assert entry == {"key": "p1", "until": "2026-12-31T18:00:00.000Z", "author": "ann", "category": "a"}
    entry = json.loads(buckets("lists", "show", "networks", "::ffff:10.2.0.1", "--conf", str(conf)).out)
    assert entry == {"key": "10.0.0.0/8", "category": "office"}
    # By what the latest batches see, whatever the configuration says by now.
    conf.write_text(CONF.replace(", match: cidr", ""))
    assert json.loads(buckets("lists", "show", "networks", "10.2.0.1", "--conf", str(conf)).out) == entry


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "payroll", "p1"),
        ("show", "payroll"),
        ("show", "other", "p1"),
        ("put", "payroll", "p3"),
        ("put", "blocked", "p3", "--until", "soon"),
        ("put", "blocked", "p3", "--value", "until=2"),
        ("put", "blocked", ""),
        ("put", "pairs", "a"),
        ("remove", "pairs", '["a"]'),
        ("put", "nets", "10.0.0.1/8"),
        ("remove", "nets", "a"),
        ("remove", "payroll", "p3"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(buckets, conf, arguments, as_worded):
    assert as_worded(one_line(buckets("lists", *arguments, "--conf", str(conf)), 1))


def test_a_name_like_that_of_a_list_is_taken_for_a_slip(buckets, conf, as_worded):
    (conf.parent / "rules.yaml").write_text(RULES.replace("LIST_NAME", "pay_rol"))
    said = one_line(buckets("run", str(conf)), MISUSED)
    assert as_worded(said)


def test_a_job_whose_rules_look_into_an_unknown_list_is_refused(buckets, conf, as_worded):
    (conf.parent / "rules.yaml").write_text(RULES.replace("LIST_NAME", "wages"))
    said = one_line(buckets("run", str(conf)), MISUSED)
    assert as_worded(said)


@pytest.mark.parametrize(
    "given",
    [
        ["payroll"],
        ["a b=x.csv"],
        ["payroll=none.csv"],
        [],
    ],
)
def test_evaluate_refuses_what_is_no_list(buckets, conf, given, as_worded):
    options = [word for each in given for word in ("--list", each)]
    folder = conf.parent
    (folder / "events.jsonl").write_text('{"id": "e", "at": 0, "payer": "p", "amount": "1"}\n')
    named = [f"--{name}={folder / file}" for name, file in (("events", "events.jsonl"), ("out", "out"))]
    named += [f"--rules={folder / 'rules.yaml'}", f"--schema={folder / 'schema.yaml'}"]
    assert as_worded(one_line(buckets("evaluate", *named, *options), 1))
