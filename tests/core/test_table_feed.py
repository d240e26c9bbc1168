"""Rules in a Delta table that is looked at while a job runs."""

import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from buckets.errors import BucketsError
from buckets.feeds.feed import LOOK_EVERY_S, RuleRead
from buckets.feeds.rules.rule_book import COLUMNS, RuleTable
from buckets.rules.rule import Rule
from tests.core.examples import SCHEMA, rule

ONE, TWO = rule("one"), rule("two", "fee", group_by=["kind"])


def row(each: Rule, **changes: Any) -> dict[str, Any]:
    text = each.model_dump_json(by_alias=True)
    return {"rule_id": each.rule_id, "rule": text, "author": "ann", "reason": "why"} | changes


def write(path: Path, *rows: dict[str, Any]) -> None:
    write_deltalake(path, pa.Table.from_pylist(list(rows), schema=COLUMNS), mode="overwrite")


class Feed:
    """A feed whose clock goes on by more than it waits, whenever it is read."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.feed = RuleTable(path, SCHEMA)
        self.now_s = 0.0
        # The name in the module alone: a server in another thread of the tests would sleep for as long as this goes on.
        monkeypatch.setattr("buckets.feeds.feed.time", SimpleNamespace(monotonic=lambda: self.now_s, time=time.time))

    def read(self, *in_force: Rule, after_s: float = LOOK_EVERY_S) -> RuleRead:
        self.now_s += after_s
        return self.feed.read(in_force)


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "rules"
    write(path, row(ONE))
    return path


@pytest.fixture
def feed(table, monkeypatch) -> Feed:
    """A feed of a table with one rule, which the first batch has taken."""
    feed = Feed(table, monkeypatch)
    feed.feed.start(None)
    assert asked(feed.read()) == [("put", "one", "ann", "why")]
    return feed


def asked(read: RuleRead) -> list[tuple[str, str | None, str, str]]:
    assert read.refused == []
    return [(change.change, change.subject, change.author, change.reason) for change in read.asked]


def test_what_differs_is_taken_once_after_each_commit(feed, table):
    write(table, row(rule("one", length="5h"), reason="longer"), row(TWO, author=None, reason=None))
    found = feed.read(ONE)
    assert asked(found) == [("put", "one", "ann", "longer"), ("put", "two", "", "")]
    assert {change.origin for change in found.asked} == {f"{table}@1"}
    assert asked(feed.read(ONE)) == []


def test_a_table_is_looked_at_every_second(feed, table):
    assert asked(feed.read(ONE)) == []
    write(table, row(ONE), row(TWO))
    assert asked(feed.read(ONE, after_s=LOOK_EVERY_S / 2)) == []
    assert asked(feed.read(ONE, after_s=LOOK_EVERY_S / 2)) == [("put", "two", "ann", "why")]


def test_a_row_that_goes_deletes_its_rule(feed, table):
    write(table, row(TWO))
    assert asked(feed.read(ONE)) == [("delete", "one", "", "its row is gone"), ("put", "two", "ann", "why")]


def test_a_row_with_the_state_delete_says_who_deleted_the_rule_and_why(feed, table):
    write(table, row(rule("one", state="DELETE"), author="bob", reason="old"))
    assert asked(feed.read(ONE)) == [("put", "one", "bob", "old")]
    write(table, row(rule("one", state="DELETE"), author="bob", reason="old"), row(TWO))
    assert asked(feed.read()) == [("put", "two", "ann", "why")]


@pytest.mark.parametrize(
    "broken",
    [
        row(TWO, rule="{"),
        row(TWO, rule=None),
        row(TWO, rule='{"change": "delete_all"}'),
        row(TWO, rule_id=None),
        row(TWO, rule_id="x"),
        row(ONE),
        row(rule("x", group_by=["nobody"])),
    ],
)
def test_a_broken_row_changes_nothing_and_is_said_once_until_it_is_mended(feed, table, broken, as_worded):
    write(table, row(ONE), row(rule("three")), broken)
    found = feed.read(ONE)
    assert found.asked == []
    (refusal,) = found.refused
    assert as_worded(refusal.reason)
    assert refusal.origin == f"{table}@1"
    assert feed.read(ONE) == RuleRead()
    write(table, row(ONE), row(TWO))
    assert asked(feed.read(ONE)) == [("put", "two", "ann", "why")]


def test_a_table_that_is_made_anew_is_read(feed, table):
    write(table, row(ONE))
    assert asked(feed.read(ONE)) == []
    shutil.rmtree(table)
    write(table, row(TWO))
    assert DeltaTable(table).version() == 0
    assert asked(feed.read(ONE)) == [("delete", "one", "", "its row is gone"), ("put", "two", "ann", "why")]


def test_a_table_that_goes_is_said_once_and_the_rules_stay(feed, table, as_worded):
    shutil.rmtree(table)
    found = feed.read(ONE)
    assert found.asked == []
    assert as_worded(found.refused[0].reason)
    assert feed.read(ONE) == RuleRead()


def test_a_table_with_a_file_missing_is_said_once(feed, table, as_worded):
    write(table, row(TWO))
    for file in table.glob("*.parquet"):
        file.unlink()
    found = feed.read(ONE)
    assert found.asked == []
    assert as_worded(found.refused[0].reason)
    assert "\n" not in found.refused[0].reason
    assert feed.read(ONE) == RuleRead()


def test_columns_of_others_do_not_matter_and_author_and_reason_may_be_left_out(tmp_path, monkeypatch):
    rows = [{"rule_id": "one", "rule": ONE.model_dump_json(by_alias=True), "team": 7}]
    write_deltalake(tmp_path / "rules", pa.Table.from_pylist(rows))
    feed = Feed(tmp_path / "rules", monkeypatch)
    feed.feed.start(None)
    assert asked(feed.read()) == [("put", "one", "", "")]


def test_a_job_does_not_start_without_a_table_of_valid_rules(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        RuleTable(tmp_path / "none", SCHEMA).start(None)
    write_deltalake(tmp_path / "other", pa.table({"x": [1]}))
    with pytest.raises(BucketsError, check=as_worded):
        RuleTable(tmp_path / "other", SCHEMA).start(None)
    write(tmp_path / "broken", row(ONE, rule="{"))
    with pytest.raises(BucketsError, check=as_worded):
        RuleTable(tmp_path / "broken", SCHEMA).start(None)
