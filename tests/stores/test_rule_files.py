"""Rules and lists in files, the event schema and results of commands lie in an object store as they do on a disk."""

import json
import threading
import time
from pathlib import Path

import pytest
import yaml

from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.feeds.feed import LOOK_EVERY_S, WatchedFiles
from buckets.feeds.schema_book import open_list, open_rules
from buckets.rule_files.flink_rules import ChangeNote, read_change_notes
from buckets.rule_files.yaml_editor import change_files
from buckets.rule_files.yaml_rules import load_rule_files, rule_files
from buckets.rules.rule import Rule
from buckets.stores.location import location
from buckets.stores.store_path import StorePath
from tests.cli_unit.conftest import buckets
from tests.spark.job_folder import JobFolder
from tests.spark.payments import RULES, SCHEMA, payments

__all__ = ["buckets"]
PATIENCE_S = 20


def written(rules) -> str:
    return yaml.safe_dump({"rules": list(rules)}, sort_keys=False)


@pytest.fixture
def job(bucket: str, tmp_path: Path) -> JobFolder:
    """A job whose schema, rules and list lie in a bucket; what it reads and writes besides lies on the disk."""
    location(f"s3://{bucket}/schema.yaml").write_text(yaml.safe_dump(dict(SCHEMA)))
    location(f"s3://{bucket}/rules/first.yaml").write_text(written(RULES[:1]))
    location(f"s3://{bucket}/rules/others.yaml").write_text(written(RULES[1:]))
    location(f"s3://{bucket}/blocked.csv").write_text("key,until\np1,\np2,2026-12-31\n")
    lists = {"blocked": {"kind": "file", "path": f"s3://{bucket}/blocked.csv"}}
    return JobFolder(tmp_path, schema=f"s3://{bucket}/schema.yaml", rules=f"s3://{bucket}/rules", lists=lists)


def read_when_changed(feed) -> object:
    """What a feed reads at the next change."""
    given_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < given_up_s:
        read = feed.read()
        if read.whole is not None if hasattr(read, "whole") else read:
            return read
        time.sleep(0.1)
    pytest.fail("no change was seen")


def test_a_job_reads_schema_rules_and_lists_in_a_store(job: JobFolder, bucket: str):
    loaded = load_job(job.conf)
    assert [rule.rule_id for rule in loaded.rules] == [rule["rule_id"] for rule in RULES]
    listed = open_list(loaded, loaded.settings.lists["blocked"])
    listed.start(None)
    assert len(listed.read().whole) == 2
    location(f"s3://{bucket}/blocked.csv").write_text("key\np1\np3\np4\n")
    assert len(read_when_changed(listed).whole) == 3
    open_rules(loaded)


def test_an_object_that_changes_is_read_again_and_a_store_is_asked_once_a_second(job: JobFolder, bucket: str, counted):
    rules = location(load_job(job.conf).settings.rules.path)
    watched = WatchedFiles(rules, lambda: load_rule_files(rules), rule_files)
    watched.start()
    assert len(watched.read()) == len(RULES)
    before, began_s = counted(), time.monotonic()
    while time.monotonic() < began_s + 2.2 * LOOK_EVERY_S:
        assert watched.read() is None
    assert counted() - before <= 3 * 5
    location(f"s3://{bucket}/rules/first.yaml").write_text(written([dict(RULES[0], state="PAUSE")]))
    given_up_s = time.monotonic() + PATIENCE_S
    while (changed := watched.read()) is None:
        assert time.monotonic() < given_up_s
    assert changed[0].state == "PAUSE"


@pytest.fixture
def counted(monkeypatch):
    """How many objects were asked about so far."""
    asked: list[str] = []
    stat, tag = StorePath.stat, StorePath.tag
    monkeypatch.setattr(StorePath, "stat", lambda path, **more: asked.append(str(path)) or stat(path, **more))
    monkeypatch.setattr(StorePath, "tag", lambda path: asked.append(str(path)) or tag(path))
    return lambda: len(asked)


def test_rules_in_a_store_are_changed_with_their_comments_kept_and_notes_beside(bucket: str, tmp_path: Path):
    on_disk, in_store = tmp_path / "rules", location(f"s3://{bucket}/rules")
    texts = {"first.yaml": f"# ours\n{written(RULES[:1])}", "others.yaml": written(RULES[1:])}
    on_disk.mkdir()
    for name, text in texts.items():
        (on_disk / name).write_text(text)
        (in_store / name).write_text(text)
    new = Rule.model_validate(dict(RULES[0], rule_id="a-new-one"))
    paused = RULES[0]["rule_id"]
    notes = {paused: ChangeNote("ann", "too loud"), "a-new-one": ChangeNote("ann", "wanted")}
    for folder in (on_disk, in_store):
        files = change_files(folder, {paused: "PAUSE"}, [new], "new.yaml", notes)
        assert [file.name for file in files] == ["first.yaml", "new.yaml"]
    assert load_rule_files(in_store) == load_rule_files(on_disk)
    for name in ("first.yaml", "new.yaml", "others.yaml"):
        assert (in_store / name).read_text() == (on_disk / name).read_text()
    assert read_change_notes([in_store / "first.yaml", in_store / "new.yaml"]) == notes


def test_of_many_who_change_rules_in_a_store_at_once_none_is_lost(bucket: str):
    file = location(f"s3://{bucket}/rules.yaml")
    file.write_text(written(RULES))
    ids = [f"rule-{number}" for number in range(8)]
    faults: list[BucketsError] = []

    def put(rule_id: str) -> None:
        try:
            change_files(file, {}, [Rule.model_validate(dict(RULES[0], rule_id=rule_id))], "", {})
        except BucketsError as error:
            faults.append(error)

    threads = [threading.Thread(target=put, args=(rule_id,)) for rule_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert {rule.rule_id for rule in load_rule_files(file)} == {rule["rule_id"] for rule in RULES} | set(ids)


def test_what_a_command_writes_may_lie_in_a_store_and_is_not_written_over(job: JobFolder, bucket: str, buckets):
    out = f"s3://{bucket}/exported/rules.yaml"
    ran = buckets("rules", "export", "--conf", job.conf, "--out", out)
    assert ran.code == 0, ran
    exported = load_rule_files(location(out))
    assert {rule.rule_id for rule in exported} == {rule["rule_id"] for rule in RULES}
    again = buckets("rules", "export", "--conf", job.conf, "--out", out)
    assert again.code != 0
    assert "exists already" in again.err
    assert not list(Path().glob("s3*"))


def test_a_file_that_is_not_in_the_store_is_said_in_a_line(job: JobFolder, bucket: str):
    for changes in ({"schema": f"s3://{bucket}/none.yaml"}, {"rules": f"s3://{bucket}/none.yaml"}):
        job.configure_also(**changes)
        with pytest.raises(BucketsError, match=r"none\.yaml: no such file; check the path"):
            load_job(job.conf)


def test_options_that_name_what_is_read_take_an_address(job: JobFolder, bucket: str, buckets, tmp_path: Path):
    events = location(f"s3://{bucket}/events.jsonl")
    events.write_text("".join(f"{json.dumps(event)}\n" for event in payments(100)))
    location(f"s3://{bucket}/fraud.csv").write_text("event_id\n" + "".join(f"p{number}\n" for number in range(100)))
    rules, schema, fraud = f"s3://{bucket}/rules", f"s3://{bucket}/schema.yaml", f"s3://{bucket}/fraud.csv"
    listed = f"blocked=s3://{bucket}/blocked.csv"
    size = ("size", job.conf, "--rules", rules, "--rate", "1", "--keys", "1")

    assert buckets("rules", "check", rules, "--schema", schema, "--list", listed).code == 0
    assert buckets(*size).code == 0
    assert buckets("backtest", rules, "--events", events, "--schema", schema, "--fraud", fraud).code == 0
    replaced = buckets("backtest", rules, "--events", events, "--schema", schema, "--html", events)
    assert (
        replaced.err == f"error: --html {events}: is read by this command, and would be replaced; name another file\n"
    )
