"""`buckets check`: all that is wrong with a configuration, and what it connects to, without writing anything."""

import json
import os
import shutil

import pyarrow as pa
import pytest
import yaml
from deltalake import CommitProperties, Transaction, write_deltalake

from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import OwnedFolder
from buckets.outputs.columns import BATCHES, TOPICS
from tests.cli_unit.archived_conf import archived_conf
from tests.cli_unit.ran import Ran

BAD = """source: {kind: excel, path: x}
schema: schema.yaml
rules: rules.yaml
checkpont: c
output: {path: tables}
trigger: {interval: fast}
lists: {1st: {kind: file, path: 1}}
"""
BAD_SCHEMA = "event_id: id\nevent_time: {field: t, unit: hours}\nattributes: {payer: text}\n"
BAD_RULES = """rules:
  - {rule_id: a, group_by: [], aggregate: {function: count}, window: {length: 1x}, limit: {operator: ">", value: 1}}
  - {rule_id: b, group_by: [payer], aggregate: {function: cnt}, window: {length: 1h}, limit: {operator: "~", value: 1}}
"""
PLACES = [
    "conf.yaml:4: checkpont: unknown field",
    "conf.yaml:1: source.kind: ",
    "conf.yaml:6: trigger.interval: ",
    "conf.yaml:7: lists.1st",
    "schema.yaml:2: event_time.unit: ",
    "schema.yaml:3: attributes.payer: ",
    "rules.yaml:2: rules[1].window.length: ",
    "rules.yaml:3: rules[2].aggregate.function: ",
    "rules.yaml:3: rules[2].limit.operator: ",
]


@pytest.fixture
def bad(tmp_path):
    for name, text in (("conf.yaml", BAD), ("schema.yaml", BAD_SCHEMA), ("rules.yaml", BAD_RULES)):
        (tmp_path / name).write_text(text)
    return tmp_path / "conf.yaml"


@pytest.fixture
def conf(tmp_path):
    """A job that has run; its source is there again."""
    conf = archived_conf(tmp_path)
    (tmp_path / "gone").mkdir()
    shutil.rmtree(tmp_path / "checkpoint" / "buckets" / "batches")  # its tables are not there either
    return conf


def changed(conf, **parts):
    """The configuration with other parts; None for none."""
    data = yaml.safe_load(conf.read_text()) | parts
    conf.write_text(yaml.safe_dump({name: part for name, part in data.items() if part is not None}, sort_keys=False))
    return conf


def things(ran: Ran) -> dict[str, str | list[str]]:
    """By thing what is there, or what is wrong with it."""
    found = json.loads(ran.out)
    assert found["ok"] == (ran.code == 0) == all(each["ok"] for each in found["things"])
    assert all(each["ok"] == (not each["faults"]) for each in found["things"])
    return {each["thing"]: each["note"] if each["ok"] else each["faults"] for each in found["things"]}


def everything_below(folder):
    return {(path, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_all_faults_of_all_files_are_told_at_once_with_their_lines(buckets, bad):
    ran = buckets("check", bad, "--json")
    faults = [fault for each in json.loads(ran.out)["things"] for fault in each["faults"]]
    assert ran.code == 1
    assert len(faults) == len(PLACES)
    assert all(any(place in fault for fault in faults) for place in PLACES), faults
    assert not json.loads(ran.out)["connected"]
    shown = buckets("check", bad)
    assert shown.code == 1
    assert f"{len(PLACES)} faults; what the configuration names was not looked at" in shown.out


def test_rules_check_refuses_a_configuration_for_the_same_faults(buckets, bad, conf):
    rules = conf.parent / "more-rules.yaml"
    rules.write_text(yaml.safe_dump({"rules": yaml.safe_load((conf.parent / "rules.yaml").read_text())["rules"]}))
    (conf.parent / "bad.yaml").write_text(BAD)
    ran = buckets("rules", "check", rules, "--conf", conf.parent / "bad.yaml")
    assert (ran.code, ran.out) == (1, "")
    assert all(any(place.partition(":")[2] in line for line in ran.err.splitlines()) for place in PLACES[:4]), ran.err
    assert buckets("rules", "check", rules, "--conf", conf).code == 0


def test_a_job_is_looked_at_and_nothing_is_written(buckets, conf):
    before = everything_below(conf.parent)
    assert things(buckets("check", conf, "--json")) == {
        "configuration": "valid",
        "event schema": "payment, version 1: 8 fields",
        "rules": "1 rule is valid",
        "source": "no files yet",
        "checkpoint": "goes on",
        "output": "begins anew",
        "archive": "goes on",
    }
    assert everything_below(conf.parent) == before
    assert list(things(buckets("check", conf, "--json", "--offline"))) == ["configuration", "event schema", "rules"]


def test_each_thing_that_cannot_be_used_is_named(buckets, conf, as_worded):
    folder = conf.parent
    (folder / "file").touch()
    (folder / "other").mkdir()
    (folder / "other" / "notes.txt").touch()
    (folder / "payroll.csv").write_text("key\np1\np1\n")
    changed(
        conf,
        source={"kind": "json", "path": "nowhere"},
        checkpoint="file/checkpoint",
        output={"path": "other"},
        archive={"path": "archive", "cluster_by": "colour"},
        lists={"payroll": {"kind": "file", "path": "payroll.csv"}, "gone": {"kind": "delta", "path": "no-table"}},
    )
    found = things(buckets("check", conf, "--json"))
    wrong = {thing: faults[0] for thing, faults in found.items() if isinstance(faults, list)}
    assert {thing: len(faults) for thing, faults in found.items() if thing in wrong} == dict.fromkeys(wrong, 1)
    assert set(wrong) == {"source", "list payroll", "list gone", "checkpoint", "output", "archive"}
    assert as_worded("\n".join(wrong.values()))
    assert set(found) - set(wrong) == {"configuration", "event schema", "rules"}


@pytest.mark.parametrize(
    ("changes", "thing"),
    [
        ({"engine": {"shards": 3}}, "checkpoint"),
        ({"source": {"kind": "csv", "path": "gone"}}, "checkpoint"),
        ({"engine": {"precision": {"tail": "1h", "groups": [{"group_by": ["colour"]}]}}}, "configuration"),
        ({"archive": {"path": "gone/archive"}}, "configuration"),
        ({"archive": {"path": "../there/tables/"}, "output": {"path": "../there/tables"}}, "configuration"),
    ],
)
def test_what_does_not_fit_together_is_named(buckets, conf, changes, thing, as_worded):
    found = things(buckets("check", changed(conf, **changes), "--json"))
    assert as_worded("\n".join(found[thing]))


def test_tables_are_opened(buckets, conf):
    folder = conf.parent
    write_deltalake(folder / "payments", pa.table({"id": ["a"], "at": [1], "payer": ["p"], "n": ["one"]}))
    changed(conf, checkpoint="new", output={"path": "new-tables"}, archive=None)
    source = {"kind": "delta", "path": "payments", "arrival": "at"}
    found = things(buckets("check", changed(conf, source=source, rules={"table": "rule-table"}), "--json"))
    assert "no column 'amount'" in found["source"][0] or found["source"] == "version 0, 4 columns"
    assert "is not a Delta table" in found["rules"][0]
    found = things(buckets("check", changed(conf, source=source | {"arrival": "n"}, rules="rules.yaml"), "--json"))
    assert any("amount" in each or "cannot order rows" in each for each in found["source"])


@pytest.fixture
def filled(conf):
    """The job with the tables of its results: the folder of these."""
    checkpoint, tables = Checkpoint(conf.parent / "checkpoint"), conf.parent / "new tables"
    identity, newest = checkpoint.job.known_identity(), 2
    checkpoint.batches.keep(newest, BatchRecord(1, (), done=True))
    OwnedFolder(tables, "output.path", checkpoint.job.life).take(identity)
    for name in (*TOPICS, BATCHES):
        for number in range(3):
            ran = Transaction(f"{identity}-{name}", newest - 2 + number)
            rows = pa.table({"day": ["a b", "c"], "value": pa.array([number] * 2, pa.decimal128(38, 10))})
            once = CommitProperties(app_transactions=[ran])
            write_deltalake(tables / name, rows, partition_by=["day"], mode="append", commit_properties=once)
    changed(conf, output={"path": "new tables"})
    return tables


def test_tables_of_results_that_are_not_whole_are_named(buckets, conf, filled, as_worded):
    def fault() -> str:
        (found,) = things(buckets("check", conf, "--json"))["output"]
        return found

    assert things(buckets("check", conf, "--json"))["output"] == "goes on"
    gone = sorted((filled / "late_events").glob("day=a*/*.parquet"))[0]
    kept = gone.read_bytes()
    gone.unlink()
    assert as_worded(fault())

    gone.write_bytes(kept)
    log = filled / "late_events" / "_delta_log" / f"{1:020d}.json"
    kept = log.read_bytes()
    log.write_bytes(kept[:-20])
    assert as_worded(fault())
    log.write_bytes(kept)
    (filled / "batches" / "_delta_log" / f"{2:020d}.json").unlink()
    assert as_worded(fault())


@pytest.mark.parametrize("name", ["alerts", "batches", "duplicates", "held_alerts"])
@pytest.mark.parametrize("part", ["", "_delta_log"])
def test_a_table_that_is_gone_is_named(buckets, conf, filled, name, part, as_worded):
    shutil.rmtree(filled / name / part)
    assert as_worded(things(buckets("check", conf, "--json"))["output"][0])


def test_the_topics_of_a_configuration_are_checked_together(buckets, conf, as_worded):
    parts = {"verdicts": {"topic": "verdicts"}, "partitions": 99, "audit": {"path": "a", "checkpoint": "b"}}
    (fault,) = things(buckets("check", changed(conf, **parts), "--json"))["configuration"]
    assert as_worded(fault)


@pytest.mark.slow
def test_the_help_has_examples(buckets):
    assert "buckets check conf/kafka.yaml --json" in buckets("check", "--help").out


def test_paths_are_shown_as_they_are_reached_from_here(buckets, conf, monkeypatch):
    monkeypatch.chdir(conf.parent)
    assert f"goes on ({os.path.relpath(conf.parent / 'checkpoint')})" in buckets("check", conf).out
