"""The table of changes of rules: all that the checkpoint has, once, whatever fails in between."""

import json
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job
from buckets.config.settings import AuditSettings, JobSettings
from buckets.delta import kept_table
from buckets.errors import BucketsError
from buckets.feeds.rules import history as history_module
from buckets.feeds.rules.history import RuleHistory, open_history, read_rule_changes, rows_of, rule_changes_path
from buckets.feeds.rules.rule_book import NO_RULES
from buckets.files import write_whole
from buckets.rules.change import RuleChange
from buckets.rules.revision import revise
from tests.core.examples import SCHEMA, rule

WAIT_S = 30


def change(versions: RuleVersions, *asked: RuleChange) -> None:
    """Keep the next version of the rules."""
    before = versions.latest_rule_set() or NO_RULES
    revision = revise(before, asked, SCHEMA, (), 0)
    versions.keep(revision.rule_set, revision.made, before.version * 10, None, "t")


def put(rule_id: str, **changes) -> RuleChange:
    said = {"author": "ann", "reason": "why", "time": 1_000, "origin": "t@0"}
    return RuleChange(change="put", rule=rule(rule_id, **changes), **said)


@pytest.fixture
def versions(tmp_path) -> RuleVersions:
    versions = RuleVersions(tmp_path / "checkpoint")
    change(versions, put("a"), put("b"))
    return versions


@pytest.fixture
def table(tmp_path) -> Path:
    return tmp_path / "rule_changes"


def job_with(output: dict, checkpoint: Path) -> Job:
    settings = JobSettings.model_validate(
        {
            "source": {"kind": "kafka", "topic": "t"},
            "schema": "s",
            "rules": "r",
            "checkpoint": str(checkpoint),
            "output": output,
            "kafka": {"bootstrap_servers": "localhost:1"},
        }
    )
    return Job(settings=settings, event_schema=SCHEMA, rules=(), checkpoint=checkpoint)


def written(versions: RuleVersions, table: Path) -> None:
    """A run of the job, as far as history is concerned."""
    history = RuleHistory(versions, table, "me")
    history.record()
    history.close()


def test_a_change_is_written_with_who_why_when_and_the_rule_before_and_after(versions, table):
    change(versions, put("a", length="9h"))
    written(versions, table)
    row = read_rule_changes(table)[-1]
    before, after = (json.loads(row.pop(side)) for side in ("rule_before", "rule_after"))
    in_force_us = row.pop("in_force_at")
    assert row == {
        "ruleset_version": 2,
        "first_batch": 10,
        "change": "put",
        "rule_id": "a",
        "rule_version": 2,
        "author": "ann",
        "reason": "why",
        "asked_at": 1_000_000,
        "place": "t@0",
    }
    assert (before["window"]["length"], after["window"]["length"]) == ("1h", "9h")
    assert in_force_us == versions.history()[-1].made_ms * 1000


def test_all_changes_are_there_as_the_checkpoint_has_them(versions, table):
    change(versions, RuleChange(change="clear_all_state"))
    change(versions, RuleChange(change="delete", rule_id="a"), RuleChange(change="clear_state", rule_id="b"))
    written(versions, table)
    assert read_rule_changes(table) == rows_of(versions.history())
    assert [(row["change"], row["rule_id"]) for row in read_rule_changes(table)] == [
        ("put", "a"), ("put", "b"), ("clear_all_state", None), ("delete", "a"), ("clear_state", "b"),
    ]  # fmt: skip


def test_each_version_is_written_once_over_all_starts(versions, table):
    for length in ("2h", "3h", "4h"):
        written(versions, table)
        written(versions, table)
        change(versions, put("a", length=length))
    written(versions, table)
    assert read_rule_changes(table) == rows_of(versions.history())


def test_another_checkpoint_writes_beside(versions, table, tmp_path):
    written(versions, table)
    other = RuleVersions(tmp_path / "other")
    change(other, put("x"))
    history = RuleHistory(other, table, "another")
    history.record()
    history.close()
    assert sorted(row["rule_id"] for row in read_rule_changes(table)) == ["a", "b", "x"]


def test_nothing_is_made_before_there_is_something_to_record(versions, table):
    RuleHistory(versions, table, "me").close()
    assert not table.exists()


def test_record_does_not_wait_for_the_table(versions, table, monkeypatch):
    may_write = threading.Event()

    def slow(*arguments, **options):
        assert may_write.wait(WAIT_S)
        return write(*arguments, **options)

    write = kept_table.write_deltalake
    monkeypatch.setattr(kept_table, "write_deltalake", slow)
    history = RuleHistory(versions, table, "me")
    history.record()
    change(versions, put("a", length="9h"))
    history.record()
    may_write.set()
    history.close()
    assert read_rule_changes(table) == rows_of(versions.history())


def test_what_could_not_be_written_is_said_once_and_written_later(versions, table, monkeypatch, as_worded):
    said: list[BucketsError] = []
    tries = []

    def failing(*arguments, **options):
        tries.append(1)
        if len(tries) < 4:
            message = "disk full\nand more"
            raise OSError(message)
        return write(*arguments, **options)

    write = kept_table.write_deltalake
    monkeypatch.setattr(kept_table, "write_deltalake", failing)
    monkeypatch.setattr(history_module, "AGAIN_AFTER_S", 0.01)
    history = RuleHistory(versions, table, "me", said.append)
    history.record()
    until_s = time.monotonic() + WAIT_S
    while len(tries) < 4 and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    history.close()
    assert read_rule_changes(table) == rows_of(versions.history())
    (fault,) = said
    assert as_worded(fault.message)


def test_a_write_that_failed_after_its_commit_is_not_repeated(versions, table, monkeypatch):
    def failing(*arguments, **options):
        write(*arguments, **options)
        message = "killed"
        raise OSError(message)

    write = kept_table.write_deltalake
    with monkeypatch.context() as patch:
        patch.setattr(kept_table, "write_deltalake", failing)
        written(versions, table)
    written(versions, table)
    assert DeltaTable(table).transaction_version("me-rule_changes") == 1
    assert read_rule_changes(table) == rows_of(versions.history())


def test_something_else_in_its_place_is_one_line(versions, table, as_worded):
    said: list[BucketsError] = []
    table.write_text("a letter")
    history = RuleHistory(versions, table, "me", said.append)
    history.record()
    history.close()
    assert "\n" not in said[0].message
    with pytest.raises(BucketsError, check=as_worded):
        read_rule_changes(table)


def test_a_folder_that_is_nobodys_yet_is_left_alone_until_it_is_somebodys(versions, table, monkeypatch):
    monkeypatch.setattr(history_module, "AGAIN_AFTER_S", 0.01)
    owner = table.parent / "_buckets.json"
    history = RuleHistory(versions, table, "me", owner=owner)
    history.record()
    history.close()
    assert not table.exists()
    history.record()
    owner.write_text("{}")
    until_s = time.monotonic() + WAIT_S
    while not table.exists() and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    history.close()
    assert read_rule_changes(table) == rows_of(versions.history())


@pytest.mark.parametrize(
    ("output", "audit", "expected"),
    [
        ({"kind": "delta", "path": "/tables"}, False, "/tables/rule_changes"),
        ({"kind": "kafka"}, True, "/audit/rule_changes"),
        ({"kind": "kafka"}, False, "/checkpoint/rule_changes"),
    ],
    ids=["tables", "audit", "neither"],
)
def test_the_table_is_beside_the_other_tables(output, audit, expected):
    job = job_with(output, Path("/checkpoint"))
    if audit:
        settings = job.settings.model_copy(update={"audit": AuditSettings(path="/audit", checkpoint="/c")})
        job = job.model_copy(update={"settings": settings})
    assert str(rule_changes_path(job)) == expected


def test_the_table_of_a_job_waits_for_the_owner_of_its_folder(versions, tmp_path):
    job = job_with({"kind": "delta", "path": str(tmp_path / "tables")}, tmp_path / "checkpoint")
    for made in (False, True):
        if made:
            write_whole(tmp_path / "tables" / "_buckets.json", "{}")
        history = open_history(job, "me")
        history.record()
        history.close()
        assert rule_changes_path(job).exists() is made
    beside = job_with({"kind": "kafka"}, tmp_path / "checkpoint")
    history = open_history(beside, "me")
    history.record()
    history.close()
    assert len(read_rule_changes(tmp_path / "checkpoint" / "rule_changes")) == 2
