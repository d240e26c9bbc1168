"""The rule book: what a feed says becomes versions, each batch has one, and nothing that was asked for is lost."""

from collections.abc import Callable, Sequence

import pytest

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError, Outage
from buckets.events.schema import EventSchema
from buckets.feeds.feed import RuleRead
from buckets.feeds.rules.rule_book import RuleBook
from buckets.rules.change import RuleChange
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.examples import SCHEMA, rule, until
from tests.fixed_rules import FixedRules


def put(rule_id: str, **changes) -> RuleChange:
    return RuleChange(change="put", rule=rule(rule_id, **changes), author="ann")


CLEAR = RuleChange(change="clear_state", rule_id="a")
BAD = RuleChange(change="state", rule_id="nobody", state="PAUSE", origin="log@1")


class Log:
    """Where changes are written, as in a topic; it outlives the feeds that read it."""

    def __init__(self) -> None:
        self.changes: list[RuleChange] = []
        self.rejected: list[Refusal] = []
        self.exported: list[RuleSet] = []
        self.fails: set[str] = set()


class LogFeed:
    """A feed of a log."""

    def __init__(self, log: Log, origin: str = "log") -> None:
        self.origin = origin
        self.log = log
        self.at = 0
        self.started_at: TopicPosition | None = None

    def start(self, position: TopicPosition | None) -> None:
        self.started_at = position
        self.at = 0 if position is None else position.offset

    def read(self, in_force: Sequence[Rule]) -> RuleRead:
        asked, self.at = self.log.changes[self.at :], len(self.log.changes)
        return RuleRead(asked, position=TopicPosition(self.at, "id"))

    def follow_schema(self, schema: EventSchema) -> None:
        pass

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        self._fail("refuse")
        self.log.rejected += refusals

    def export(self, rule_set: RuleSet) -> None:
        self._fail("export")
        self.log.exported.append(rule_set)

    def _fail(self, what: str) -> None:
        if what in self.log.fails:
            self.log.fails.remove(what)
            message = "no broker"
            raise Outage(message)

    def stop(self) -> None:
        pass


class Seen:
    """Notes which versions there are whenever it is told of one."""

    def __init__(self, versions: RuleVersions) -> None:
        self.rule_versions = versions
        self.versions: list[list[int]] = []
        self.closed = False

    def record(self) -> None:
        self.versions.append([each.version for each in self.rule_versions.history()])

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def started(log, checkpoint) -> Callable[[], RuleBook]:
    """A book as a start of the job makes it, over the same log and checkpoint each time."""

    def start() -> RuleBook:
        book = RuleBook(checkpoint, LogFeed(log), SCHEMA, EngineSettings(allowed_lateness="0ms"))
        book.start()
        return book

    return start


def ran(book: RuleBook, batch_id: int) -> int:
    rule_set = book.for_batch(batch_id)
    book.done(batch_id, rule_set, until(1000))
    return rule_set.version


# Versions


def test_a_change_is_in_force_from_the_next_batch_on(started, log):
    book = started()
    log.changes += [put("a")]
    assert ran(book, 0) == 1
    log.changes += [put("b"), put("c")]
    assert [ran(book, 1), ran(book, 2)] == [2, 2]
    assert [each.rule_id for each in book.in_force.rules] == ["a", "b", "c"]


def test_a_job_may_begin_without_rules(started, log):
    book = started()
    assert (ran(book, 0), book.in_force.rules) == (1, ())
    log.changes += [put("a")]
    assert ran(book, 1) == 2


def test_a_version_says_what_changed_by_whom_and_from_which_batch_on(started, log, checkpoint):
    book = started()
    ran(book, 0)
    log.changes += [put("a")]
    ran(book, 1)
    (version,) = checkpoint.versions.history(after=1)
    assert (version.first_batch, version.position, version.origin) == (1, TopicPosition(1, "id"), "log")
    assert [(change.change, change.rule_id, change.author) for change in version.changes] == [("put", "a", "ann")]


def test_a_deleted_rule_that_comes_again_goes_on_after_its_last_version_also_after_a_restart(started, log):
    log.changes += [put("a"), RuleChange(change="delete", rule_id="a")]
    book = started()
    ran(book, 0)
    log.changes += [put("a")]
    ran(book, 1)
    assert [each.version for each in book.in_force.rules] == [2]
    log.changes += [RuleChange(change="delete", rule_id="a")]
    ran(book, 2)
    log.changes += [put("a")]
    again = started()
    ran(again, 3)
    assert [each.version for each in again.in_force.rules] == [3]


def test_a_batch_that_is_run_again_has_its_rules_while_newer_ones_are_there(started, log):
    log.changes += [put("a")]
    book = started()
    ran(book, 0)
    book.for_batch(1)
    log.changes += [put("a", length="9h")]
    again = started()
    assert again.for_batch(1).version == 1
    assert again.for_batch(1).rules == (rule("a"),)
    assert [ran(again, 1), ran(again, 2)] == [1, 2]
    assert started().for_batch(1).version == 1


def test_a_batch_that_ran_under_an_older_version_has_it_again_after_a_newer_one_was_made(started, log):
    """Spark may go back to before batches of which the sink already knew."""
    log.changes += [put("a")]
    book = started()
    ran(book, 0)
    log.changes += [put("b")]
    ran(book, 1)
    assert [book.for_batch(0).version, book.for_batch(1).version, book.for_batch(0).version] == [1, 2, 1]
    assert book.in_force.version == 2


# What dies in between


def died(*_: object, **__: object) -> None:
    message = "killed"
    raise KeyboardInterrupt(message)


@pytest.mark.parametrize("dies", [RuleVersions, BatchRecords])
def test_a_change_is_made_once_wherever_the_job_dies(started, log, checkpoint, monkeypatch, dies):
    log.changes += [put("a")]
    book = started()
    ran(book, 0)
    log.changes += [CLEAR]
    with monkeypatch.context() as patch:
        patch.setattr(dies, "keep", died)
        with pytest.raises(KeyboardInterrupt):
            book.for_batch(1)
    again = started()
    assert ran(again, 1) == 2
    assert [group.generation for group in again.in_force.groups] == [2]
    assert ran(started(), 2) == 2
    assert len(checkpoint.versions.history()) == 2


def test_a_start_goes_on_after_what_was_read(started, log, checkpoint):
    log.changes += [put("a"), CLEAR]
    assert ran(started(), 0) == 1
    assert checkpoint.versions.position("log") == TopicPosition(2, "id")
    assert ran(started(), 1) == 1


def test_a_position_is_kept_where_nothing_changed_by_what_was_read(started, log, checkpoint):
    log.changes += [put("a")]
    book = started()
    ran(book, 0)
    log.changes += [put("a"), BAD]
    assert ran(book, 1) == 1
    assert checkpoint.versions.position("log") == TopicPosition(3, "id")
    assert ran(started(), 2) == 1
    assert len(log.rejected) == 1


def test_another_origin_is_read_from_its_beginning(log, checkpoint, started):
    log.changes += [put("a"), put("b")]
    ran(started(), 0)
    feed = LogFeed(Log(), "another log")
    RuleBook(checkpoint, feed, SCHEMA, EngineSettings(allowed_lateness="0ms")).start()
    assert feed.started_at is None


# Refusals and exports


def test_what_is_refused_is_said_once_and_does_not_stop_the_rest(log, checkpoint):
    said: list[Refusal] = []
    log.changes += [put("a"), BAD, put("b")]
    for batch in range(2):
        book = RuleBook(checkpoint, LogFeed(log), SCHEMA, EngineSettings(allowed_lateness="0ms"), said.extend)
        book.start()
        assert ran(book, batch) == 1
    assert said == log.rejected
    assert [refusal.origin for refusal in said] == ["log@1"]
    assert [each.rule_id for each in book.in_force.rules] == ["a", "b"]


@pytest.mark.parametrize("fails", ["refuse", "export"])
def test_what_cannot_be_published_is_published_later_and_its_changes_are_not_lost(started, log, checkpoint, fails):
    book = started()
    log.changes += [put("a"), BAD, RuleChange(change="export")]
    log.fails.add(fails)
    with pytest.raises(Outage):
        book.for_batch(0)
    assert checkpoint.batches.record(0) is None
    assert checkpoint.versions.history() == []
    log.changes += [put("b")]
    assert [ran(book, 0), ran(book, 1)] == [1, 2]
    assert {refusal.origin for refusal in log.rejected} == {"log@1"}
    assert log.exported == [checkpoint.versions.rule_set(1)]


def test_an_export_gives_the_rules_with_the_changes_that_came_with_it(started, log):
    book = started()
    log.changes += [put("a"), RuleChange(change="export"), put("b")]
    ran(book, 0)
    assert [each.rule_id for each in log.exported[0].rules] == ["a", "b"]


def test_rules_that_a_batch_cannot_carry_are_refused_and_those_in_force_stay(started, log, monkeypatch):
    log.changes += [put("a")]
    book = started()
    ran(book, 0)
    monkeypatch.setattr("buckets.rules.rule_set.LARGEST_BYTES", 10)
    log.changes += [put("b"), put("c")]
    assert ran(book, 1) == 1
    assert ["takes" in refusal.reason for refusal in log.rejected] == [True, True]
    monkeypatch.undo()
    assert [each.rule_id for each in book.in_force.rules] == ["a"]


def test_a_job_does_not_begin_with_rules_that_a_batch_cannot_carry(checkpoint, monkeypatch, as_worded):
    monkeypatch.setattr("buckets.rules.rule_set.LARGEST_BYTES", 10)
    book = RuleBook(checkpoint, FixedRules([rule("a")]), SCHEMA, EngineSettings(allowed_lateness="0ms"))
    with pytest.raises(BucketsError, check=as_worded):
        book.for_batch(0)
    assert checkpoint.versions.history() == []


def test_fixed_rules_that_do_not_fit_end_the_job(checkpoint, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        RuleBook(
            checkpoint, FixedRules([rule("a", group_by=["nobody"])]), SCHEMA, EngineSettings(allowed_lateness="0ms")
        ).for_batch(0)
    assert checkpoint.versions.history() == []


# Who is told


def test_history_is_told_at_the_start_and_of_each_version_when_it_is_kept(log, checkpoint):
    seen = Seen(checkpoint.versions)
    book = RuleBook(checkpoint, LogFeed(log), SCHEMA, EngineSettings(allowed_lateness="0ms"), history=seen)
    book.start()
    log.changes += [put("a")]
    ran(book, 0)
    ran(book, 1)
    log.changes += [put("b")]
    ran(book, 2)
    assert seen.versions == [[], [1], [1, 2]]
    book.stop()
    assert seen.closed
