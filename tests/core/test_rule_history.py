"""The table of changes of rules: all that the ledger knows, once, whatever fails in between."""

import json
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from buckets import numbered_append, rule_history
from buckets.errors import BucketsError
from buckets.job import AuditSettings, Job, JobSettings
from buckets.ledger import Ledger, write_whole
from buckets.revision import revise
from buckets.rule_book import NO_RULES
from buckets.rule_change import RuleChange
from buckets.rule_history import RuleHistory, open_history, read_rule_changes, rows_of, rule_changes_path
from buckets.rule_set import first_rule_set
from tests.core.examples import SCHEMA, rule

WAIT_S = 30


def change(ledger: Ledger, *asked: RuleChange) -> None:
    """Keep the next version of the rules."""
    before = ledger.latest_rule_set() or NO_RULES
    revision = revise(before, asked, SCHEMA, (), 0)
    ledger.keep_rule_set(revision.rule_set, revision.made, before.version * 10, 0, "t")


def put(rule_id: str, **changes) -> RuleChange:
    said = {"author": "ann", "reason": "why", "time": 1_000, "place": "t@0"}
    return RuleChange(change="put", rule=rule(rule_id, **changes), **said)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    ledger = Ledger(tmp_path / "checkpoint")
    change(ledger, put("a"), put("b"))
    return ledger


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


def written(ledger: Ledger, table: Path) -> None:
    """A run of the job, as far as history is concerned."""
    history = RuleHistory(ledger, table, "me")
    history.record()
    history.close()


def test_a_change_is_written_with_who_why_when_and_the_rule_before_and_after(ledger, table):
    change(ledger, put("a", length="9h"))
    written(ledger, table)
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
    assert in_force_us == ledger.history()[-1].made_ms * 1000


def test_all_changes_are_there_as_the_ledger_has_them(ledger, table):
    change(ledger, RuleChange(change="clear_all_state"))
    change(ledger, RuleChange(change="delete", rule_id="a"), RuleChange(change="clear_state", rule_id="b"))
    written(ledger, table)
    assert read_rule_changes(table) == rows_of(ledger.history())
    assert [(row["change"], row["rule_id"]) for row in read_rule_changes(table)] == [
        ("put", "a"), ("put", "b"), ("clear_all_state", None), ("delete", "a"), ("clear_state", "b"),
    ]  # fmt: skip


def test_each_version_is_written_once_over_all_starts(ledger, table):
    for length in ("2h", "3h", "4h"):
        written(ledger, table)
        written(ledger, table)
        change(ledger, put("a", length=length))
    written(ledger, table)
    assert read_rule_changes(table) == rows_of(ledger.history())


def test_another_checkpoint_writes_beside(ledger, table, tmp_path):
    written(ledger, table)
    other = Ledger(tmp_path / "other")
    change(other, put("x"))
    history = RuleHistory(other, table, "another")
    history.record()
    history.close()
    assert sorted(row["rule_id"] for row in read_rule_changes(table)) == ["a", "b", "x"]


def test_versions_of_an_earlier_release_have_no_rows(tmp_path, table):
    ledger = Ledger(tmp_path / "old")
    write_whole(ledger.checkpoint / "buckets" / "rule_sets" / "000001.json", first_rule_set([rule("a")]).to_json())
    written(ledger, table)
    assert read_rule_changes(table) == []
    change(ledger, put("b"))
    written(ledger, table)
    assert [row["rule_id"] for row in read_rule_changes(table)] == ["b"]


def test_nothing_is_made_before_there_is_something_to_record(ledger, table):
    RuleHistory(ledger, table, "me").close()
    assert not table.exists()


def test_record_does_not_wait_for_the_table(ledger, table, monkeypatch):
    may_write = threading.Event()

    def slow(*arguments, **options):
        assert may_write.wait(WAIT_S)
        return write(*arguments, **options)

    write = numbered_append.write_deltalake
    monkeypatch.setattr(numbered_append, "write_deltalake", slow)
    history = RuleHistory(ledger, table, "me")
    history.record()
    change(ledger, put("a", length="9h"))
    history.record()
    may_write.set()
    history.close()
    assert read_rule_changes(table) == rows_of(ledger.history())


def test_what_could_not_be_written_is_said_once_and_written_later(ledger, table, monkeypatch):
    said: list[BucketsError] = []
    tries = []

    def failing(*arguments, **options):
        tries.append(1)
        if len(tries) < 4:
            message = "disk full\nand more"
            raise OSError(message)
        return write(*arguments, **options)

    write = numbered_append.write_deltalake
    monkeypatch.setattr(numbered_append, "write_deltalake", failing)
    monkeypatch.setattr(rule_history, "AGAIN_AFTER_S", 0.01)
    history = RuleHistory(ledger, table, "me", said.append)
    history.record()
    until_s = time.monotonic() + WAIT_S
    while len(tries) < 4 and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    history.close()
    assert read_rule_changes(table) == rows_of(ledger.history())
    (fault,) = said
    assert fault.message == (
        f"history {table}: the table cannot be written (disk full); the ledger in the checkpoint has all changes"
    )


def test_a_write_that_failed_after_its_commit_is_not_repeated(ledger, table, monkeypatch):
    def failing(*arguments, **options):
        write(*arguments, **options)
        message = "killed"
        raise OSError(message)

    write = numbered_append.write_deltalake
    with monkeypatch.context() as patch:
        patch.setattr(numbered_append, "write_deltalake", failing)
        written(ledger, table)
    written(ledger, table)
    assert DeltaTable(table).transaction_version("me-rule_changes") == 1
    assert read_rule_changes(table) == rows_of(ledger.history())


def test_something_else_in_its_place_is_one_line(ledger, table):
    said: list[BucketsError] = []
    table.write_text("a letter")
    history = RuleHistory(ledger, table, "me", said.append)
    history.record()
    history.close()
    assert "\n" not in said[0].message
    with pytest.raises(BucketsError, match="the table cannot be read"):
        read_rule_changes(table)


def test_a_folder_that_is_nobodys_yet_is_left_alone_until_it_is_somebodys(ledger, table, monkeypatch):
    monkeypatch.setattr(rule_history, "AGAIN_AFTER_S", 0.01)
    owner = table.parent / "_buckets.json"
    history = RuleHistory(ledger, table, "me", owner=owner)
    history.record()
    history.close()
    assert not table.exists()
    history.record()
    owner.write_text("{}")
    until_s = time.monotonic() + WAIT_S
    while not table.exists() and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    history.close()
    assert read_rule_changes(table) == rows_of(ledger.history())


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


def test_the_table_of_a_job_waits_for_the_owner_of_its_folder(ledger, tmp_path):
    job = job_with({"kind": "delta", "path": str(tmp_path / "tables")}, ledger.checkpoint)
    for made in (False, True):
        if made:
            write_whole(tmp_path / "tables" / "_buckets.json", "{}")
        history = open_history(job, "me")
        history.record()
        history.close()
        assert rule_changes_path(job).exists() is made
    beside = job_with({"kind": "kafka"}, ledger.checkpoint)
    history = open_history(beside, "me")
    history.record()
    history.close()
    assert len(read_rule_changes(ledger.checkpoint / "rule_changes")) == 2
