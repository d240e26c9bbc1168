"""Fills as a matter of rules, and their chunks: what begins, what begins again, what ends, and what is written."""

import pytest

from buckets.backfill.fill_chunks import FIRST_ROWS, Chunk, FillChunks, FillPace, read_fills
from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.record_files import BackfillRequest, BackfillRequests
from buckets.config.engine import EngineSettings
from buckets.feeds.rules.rule_book import RuleBook
from buckets.rules.backfill import Wanted, begun, completed, refitted
from buckets.rules.change import RuleChange, changes_between
from buckets.rules.completeness import FROM_THE_FIRST, Fill, Filled, complete_behind
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.examples import SCHEMA, rule, until
from tests.core.test_rule_book import Log, LogFeed

OLD, ASKED = rule("old"), rule("asked", group_by=["kind"])


def revised(before: RuleSet, rules: list[Rule], batch_id: int = 9, arrived_ms: int = 10_000) -> RuleSet:
    """The rule set that follows with other rules."""
    after = revise(before, changes_between(before.rules, rules), SCHEMA, until(arrived_ms), 0).rule_set
    return refitted(before, after, batch_id)


def wanted(of: Rule, complete=None) -> Wanted:
    return Wanted(of, complete, "ann", "new", 1)


def filling(*rules: Rule, asked: Rule = ASKED) -> RuleSet:
    """Rules of which one is being filled from batch 5 on; the others were there from the start."""
    first = revise(RuleSet(0, (), (), {}), changes_between((), rules), SCHEMA, (), 0).rule_set
    return begun(revised(first, [*rules, asked]), wanted(asked), 5)


def group_of(rule_set: RuleSet, *fields: str):
    return next(group for group in rule_set.groups if set(group.fields) == set(fields))


def test_a_group_that_has_missed_something_is_filled_and_others_are_not():
    (fill,) = filling(OLD).fills
    assert (fill.number, fill.rule_ids, fill.first_batch, fill.complete) == (1, ("asked",), 5, None)
    assert fill.group_id == group_of(filling(OLD), "kind").group_id


def test_a_rule_that_has_seen_everything_is_not_filled():
    first = revise(RuleSet(0, (), (), {}), changes_between((), [OLD]), SCHEMA, (), 0).rule_set
    assert begun(first, wanted(OLD), 5) is first


def test_a_rule_that_needs_groups_is_filled_in_each_that_has_missed_something():
    features = {
        "mine": {"function": "count", "window": "1h"},
        "of_kind": {"function": "count", "window": "1h", "group_by": ["kind"]},
        "of_account": {"function": "count", "window": "1h", "group_by": ["account"]},
    }
    of_three = {"rule_id": "asked", "group_by": ["payer"], "features": features, "when": "mine > of_kind + of_account"}
    asked = Rule.model_validate(of_three)
    found = filling(OLD, asked=asked)
    assert {fill.group_id for fill in found.fills} == {group_of(found, each).group_id for each in ("kind", "account")}


def test_when_a_fill_is_complete_its_group_goes_over_to_it_and_is_complete_from_the_first_event_on():
    before = filling(OLD)
    after = completed(before, {1})
    group = group_of(after, "kind")
    assert group.timelines == before.fills[0].timelines != group.group_id
    assert group.completeness("amount") == FROM_THE_FIRST != group_of(before, "kind").completeness("amount")
    assert (after.fills, after.fills_begun) == ((), 1)
    assert completed(before, set()) is before


def test_a_rule_set_with_fills_is_read_back_as_it_was_written():
    for each in (filling(OLD), completed(filling(OLD), {1})):
        assert RuleSet.from_json(each.to_json()) == each


def test_an_archive_that_begins_later_fills_as_far_as_it_goes():
    late = complete_behind(until(2_000), 1, 0)
    cold = revised(revise(RuleSet(0, (), (), {}), changes_between((), [OLD]), SCHEMA, (), 0).rule_set, [OLD, ASKED])
    found = completed(begun(cold, wanted(ASKED, late), 5), {1})
    assert group_of(found, "kind").completeness("amount") == late


def test_an_archive_that_begins_later_than_what_other_rules_of_the_group_have_is_not_taken():
    late = complete_behind(until(2_000), 1, 0)
    fee = rule("asked", measure="fee")
    cold = revised(revise(RuleSet(0, (), (), {}), changes_between((), [OLD]), SCHEMA, (), 0).rule_set, [OLD, fee])
    assert begun(cold, wanted(fee, late), 5) is cold


@pytest.mark.parametrize(
    ("other", "begins_again"),
    [
        (rule("other", group_by=["kind"], measure="fee"), True),
        (rule("other", group_by=["kind"], length="2h"), True),
        (rule("other", group_by=["kind"], cooldown="1h"), True),
        (rule("other", group_by=["kind"], length="30m"), False),
        (rule("other", group_by=["account"]), False),
    ],
)
def test_a_fill_begins_again_when_its_group_needs_more(other, begins_again):
    before = filling(OLD)
    (fill,) = revised(before, [OLD, ASKED, other], batch_id=9).fills
    again = Fill(2, before.fills[0].group_id, ("asked",), 9)
    assert fill == (again if begins_again else before.fills[0])


@pytest.mark.parametrize("state", ["PAUSE", "DELETE"])
def test_a_fill_ends_with_the_last_rule_that_asked_for_it(state):
    before = filling(OLD)
    after = revised(before, [OLD, ASKED.model_copy(update={"state": state})])
    assert (after.fills, after.fills_begun) == ((), 1)
    assert not any(group.timelines for group in after.groups)


def test_a_fill_ends_when_its_group_is_cleared():
    before = filling(OLD)
    clear = RuleChange(change="clear_state", rule_id="asked")
    after = revise(before, [clear], SCHEMA, until(10_000), 0).rule_set
    assert refitted(before, after, 9).fills == ()


# The rule book


class Asked:
    """Requests in memory."""

    can_fill = True

    def __init__(self, *requests: Wanted) -> None:
        self.waiting = list(requests)

    def start(self) -> None:
        pass

    def wanted(self) -> list[Wanted]:
        return list(self.waiting)

    def taken(self, wanted: Wanted) -> None:
        self.waiting.remove(wanted)

    def stop(self) -> None:
        pass


def book_of(checkpoint, log: Log, asked: Asked) -> RuleBook:
    book = RuleBook(checkpoint, LogFeed(log), SCHEMA, EngineSettings(allowed_lateness="0ms"), backfills=asked)
    book.start()
    return book


def ran(book: RuleBook, batch_id: int, **filled: bool) -> RuleSet:
    rule_set = book.for_batch(batch_id)
    fills = {fill.number: Filled(1, 0, filled.get("done", False)) for fill in rule_set.fills}
    book.done(batch_id, rule_set, until(1000 * (batch_id + 1)), fills)
    return rule_set


def put(each: Rule) -> RuleChange:
    return RuleChange(change="put", rule=each)


def test_a_request_waits_for_its_rule_and_history_says_when_it_began_and_was_complete(checkpoint):
    log, asked = Log(), Asked(wanted(ASKED))
    log.changes += [put(OLD)]
    book = book_of(checkpoint, log, asked)
    assert ran(book, 0).fills == ()
    assert asked.waiting
    log.changes += [put(ASKED)]
    assert [fill.first_batch for fill in ran(book, 1).fills] == [1]
    assert not asked.waiting
    assert ran(book, 2, done=True).version == 2
    whole = ran(book, 3)
    assert (whole.version, whole.fills) == (3, ())
    assert ran(book, 4) is whole
    made = [[change.change for change in version.changes] for version in checkpoint.versions.history()]
    assert made == [["put"], ["put", "backfill"], ["backfilled"]]


def test_a_batch_that_is_run_again_decides_again_whether_a_fill_is_complete(checkpoint):
    """It may have had less time: what counts is what it says the last time it runs."""
    log = Log()
    log.changes += [put(OLD)]
    book = book_of(checkpoint, log, Asked(wanted(ASKED)))
    ran(book, 0)
    log.changes += [put(ASKED)]
    ran(book, 1, done=True)
    again = book_of(checkpoint, log, Asked())
    assert ran(again, 1).version == 2
    assert ran(again, 2).fills


def test_a_job_that_has_no_archive_any_more_ends_its_fills(checkpoint):
    log = Log()
    log.changes += [put(OLD)]
    book = book_of(checkpoint, log, Asked(wanted(ASKED)))
    ran(book, 0)
    log.changes += [put(ASKED)]
    assert ran(book, 1).fills
    without = RuleBook(checkpoint, LogFeed(log), SCHEMA, EngineSettings(allowed_lateness="0ms"))
    without.start()
    found = ran(without, 2)
    assert (found.version, found.fills, found.fills_begun) == (3, (), 1)
    assert ran(without, 3) is found


def test_how_far_fills_are_is_read_back(checkpoint):
    record = BatchRecord(1, until(5), True, {}, {3: Filled(2, 7, False)})
    checkpoint.batches.keep(4, record)
    assert checkpoint.batches.record(4) == record
    assert checkpoint.batches.latest_done()[1].fills == {3: Filled(2, 7, False)}


# Chunks, requests, pace


def chunk(end: int, **packed: bytes) -> Chunk:
    return Chunk({int(shard[1:]): data for shard, data in packed.items()}, 10, end, {"staff": 3})


def test_each_shard_reads_its_part_of_a_chunk(tmp_path):
    chunks = FillChunks(tmp_path, 1)
    assert (chunks.ready(), chunks.total(), chunks.end()) == (0, None, 0)
    chunks.write(0, chunk(10, s0=b"a", s2=b"c"))
    found = [chunks.read(0, shard) for shard in range(3)]
    assert [each.packed for each in found] == [b"a", None, b"c"]
    assert {(each.rows, each.lists) for each in found} == {(10, '{"staff": 3}')}
    assert (chunks.ready(), chunks.end()) == (1, 10)


def test_chunks_go_that_all_have_taken_and_writing_goes_on_after_the_newest(tmp_path):
    chunks = FillChunks(tmp_path, 1)
    for number in range(4):
        chunks.write(number, chunk(10 * (number + 1), s0=b"x"))
    chunks.forget(2)
    assert sorted(file.name for file in chunks.folder.glob("*.arrow")) == ["000000002.arrow", "000000003.arrow"]
    chunks.forget(9)
    assert (chunks.ready(), chunks.end()) == (4, 40)
    chunks.finish(4)
    assert chunks.total() == 4


def test_a_request_is_read_once_and_the_newest_of_a_rule_counts(tmp_path):
    requests = BackfillRequests(tmp_path)
    first, second = (BackfillRequest(ASKED, "ann", reason, 1) for reason in ("one", "two"))
    requests.ask(first)
    requests.ask(second)
    assert requests.read() == [second]
    requests.forget(first)
    assert requests.read() == [second]
    assert [status.words for status in read_fills(tmp_path)] == ["history asked for, not begun"]
    requests.forget(second)
    assert requests.read() == []


def test_the_pace_grows_while_batches_stay_short_and_shrinks_when_they_grow_long():
    pace = FillPace()
    for _ in range(3):
        assert pace.rows() == 0
        pace.took(0, 1.0)
    rows = FIRST_ROWS
    for took_s in (1.1, 1.1, 1.1):
        assert pace.rows() == rows
        pace.took(rows, took_s)
        rows = rows * 3 // 2
    assert pace.rows() == rows
    pace.took(rows, 1.4)
    assert pace.rows() == rows
    pace.took(rows, 1.9)
    assert pace.rows() == 0
    pace.took(0, 1.0)
    assert pace.rows() == rows // 2
