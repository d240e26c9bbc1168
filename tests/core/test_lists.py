"""Lists: found as a dictionary finds, whatever hashes collide, and the same again for a batch that is run again."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.list_versions import ListVersions, PinnedLists
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.config.engine import EngineSettings
from buckets.config.lists import ListSettings, list_faults
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.errors import BucketsError, refuse
from buckets.expressions.certainty import possible_truths
from buckets.expressions.evaluation import matching
from buckets.expressions.expression import normalise, to_sql
from buckets.expressions.number_functions import numbers
from buckets.expressions.parser import parse_expression
from buckets.expressions.wording import in_words
from buckets.feeds.feed import ListRead
from buckets.feeds.lists import ListBook, WholeList
from buckets.feeds.rules.rule_book import RuleBook
from buckets.lists import base as base_module
from buckets.lists.base import Entry, ListBase, open_base, table_of
from buckets.lists.index import ListIndex, ListsAt, difference
from buckets.lists.list_file import load_list
from buckets.moment import parse_moment_ms
from buckets.rules.filter import canonical_filter, parse_filter
from buckets.rules.rule_set import first_rule_set
from tests.core.checkpoints import written_in
from tests.core.examples import SCHEMA, rule, written_rule
from tests.core.pipeline import arrivals
from tests.fixed_rules import FixedRules
from tests.laws import examples

KEYS = st.sampled_from(["", "a", "b", "c", "é", "a b", "it's", "7", "-1.5", "true", "\U0001f600"])
ENTRIES = st.builds(
    Entry,
    values=st.dictionaries(st.sampled_from(["category", "tier"]), st.sampled_from(["x", "y", ""]), max_size=2),
    until_ms=st.none() | st.integers(-5, 5),
    author=st.sampled_from(["", "ann"]),
    reason=st.sampled_from(["", "fraud ring"]),
)
LISTS = st.dictionaries(KEYS, ENTRIES, max_size=8)
CHANGES = st.dictionaries(KEYS, st.none() | ENTRIES, max_size=6)
TIMES_MS = st.integers(-6, 6)
OPEN = (
    "hour(at AT TIME ZONE 'Europe/Berlin') BETWEEN 9 AND 16 AND NOT is_weekend(at AT TIME ZONE 'Europe/Berlin') "
    "AND date(at AT TIME ZONE 'Europe/Berlin') NOT IN LIST holidays"
)
"""Hours of business, on days that are no holidays."""


def changed(entries: dict[str, Entry], changes: dict[str, Entry | None]) -> dict[str, Entry]:
    return {key: entry for key, entry in (entries | changes).items() if entry is not None}


def counts(entries: dict[str, Entry], key: str | None, time_ms: int) -> bool | None:
    """What a list says, by a dictionary."""
    if key is None:
        return None
    entry = entries.get(key)
    return entry is not None and (entry.until_ms is None or time_ms < entry.until_ms)


def value(entries: dict[str, Entry], key: str | None, time_ms: int, name: str) -> str | None:
    return entries[key].values.get(name) if key is not None and counts(entries, key, time_ms) else None


def at(lists: dict[str, ListIndex], *times_ms: int) -> ListsAt:
    return ListsAt(lists, np.array(times_ms, np.int64))


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-12-23T07:59:59Z", False),
        ("2026-12-23T08:00:00Z", True),
        ("2026-12-23T16:00:00Z", False),
        ("2026-12-24T23:30:00Z", False),
        ("2026-12-25T09:00:00Z", False),  # a holiday
        ("2026-12-26T09:00:00Z", False),  # a Saturday
        ("2026-12-28T09:00:00Z", True),
        ("2039-07-15T07:00:00Z", True),  # summer time, after the years that files of zones list
        ("2039-07-15T15:00:00Z", False),
    ],
)
def test_hours_of_business_and_holidays_are_a_condition(moment, is_open):
    when, moment_ms = normalise(parse_expression(OPEN)), parse_moment_ms(moment)
    lists = at({"holidays": ListIndex.of({"2026-12-25": Entry()})}, moment_ms)
    columns = {"at": pa.array([moment_ms]).cast(pa.timestamp("ms", "UTC"))}
    assert matching(when, columns, 1, lists).to_pylist() == [is_open]
    assert possible_truths(when, {"at": moment_ms}, lists) == {is_open}


# The index


@pytest.fixture(params=["hashes", "collisions", "one hash"])
def hashed(request, monkeypatch):
    """With hashes as they are, with those that collide often, and with a single one for all keys."""
    if request.param != "hashes":
        modulus = np.uint64(3 if request.param == "collisions" else 1)
        hashes_of = base_module.hashes_of
        monkeypatch.setattr("buckets.lists.base.hashes_of", lambda keys: hashes_of(keys) % modulus)


@pytest.mark.usefixtures("hashed")
class TestIndex:
    @settings(deadline=None)
    @given(LISTS, st.lists(CHANGES, max_size=3), st.booleans(), st.lists(st.tuples(st.none() | KEYS, TIMES_MS)))
    def test_it_finds_what_a_dictionary_finds(self, entries, steps, is_compacted, asked):
        index = ListIndex.of(entries)
        for changes in steps:
            index, entries = index.with_changes(changes), changed(entries, changes)
        index = index.compacted() if is_compacted else index
        keys, times_ms = pa.array([key for key, _ in asked], pa.string()), np.array([t for _, t in asked], np.int64)
        assert index.contain(keys, times_ms).to_pylist() == [counts(entries, *each) for each in asked]
        for name in ("category", "tier", "unknown"):
            found = index.values(keys, times_ms, name).to_pylist()
            assert found == [value(entries, *each, name) for each in asked]
        assert index.entries() == len(entries)
        assert {key: index.get(key) for key in entries} == entries

    @settings(deadline=None)
    @given(LISTS, CHANGES, LISTS)
    def test_the_difference_of_two_lists_makes_one_of_the_other(self, entries, changes, wanted):
        index = ListIndex.of(entries).with_changes(changes)
        found, made, count = difference(index, ListBase.of(table_of(wanted)))
        before = changed(entries, changes)
        different = {key for key in before | wanted if before.get(key) != wanted.get(key)}
        assert made == {key: wanted.get(key) for key in different}
        assert count == len(different)
        assert found.entries() == len(wanted)
        assert {key: found.get(key) for key in wanted} == wanted

    @settings(deadline=None)
    @given(LISTS)
    def test_a_file_of_it_holds_the_same(self, tmp_path_factory, entries):
        path = str(tmp_path_factory.mktemp("base") / "base.arrow")
        ListBase.of(table_of(entries)).write(path)
        index = ListIndex(open_base(path))
        assert {key: index.get(key) for key in [*entries, "none"]} == {**entries, "none": None}


def test_an_entry_counts_before_its_until_and_not_at_it():
    index = ListIndex.of({"a": Entry(until_ms=1_000)})
    keys = pa.array(["a", "a", "a"])
    assert index.contain(keys, np.array([999, 1_000, 1_001])).to_pylist() == [True, False, False]


def test_a_key_with_the_same_hash_is_not_in_the_list(monkeypatch):
    monkeypatch.setattr("buckets.lists.base.hashes_of", lambda keys: np.zeros(len(keys), np.uint64))
    index = ListIndex.of({"a": Entry(), "b": Entry()})
    assert index.contain(pa.array(["a", "c", "b"]), np.zeros(3, np.int64)).to_pylist() == [True, False, True]


# Conditions


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        ("payer in list payroll", "payer IN LIST payroll", "payer is in the list payroll"),
        ("NOT payer IN LIST payroll", "payer NOT IN LIST payroll", "payer is not in the list payroll"),
        ("payer NOT IN LIST `payroll`", "payer NOT IN LIST payroll", "payer is not in the list payroll"),
        (
            "NOT ((payer, kind)) in list pairs",
            "(payer, kind) NOT IN LIST pairs",
            "(payer, kind) is not in the list pairs",
        ),
        (
            "lookup(pairs, (payer, date(at)), 'a') = 'b'",
            "lookup(pairs, (payer, date(at)), 'a') = 'b'",
            "a of (payer, date of at) in the list pairs is b",
        ),
        (
            "LOOKUP(shops, payer, 'category') = 'casino'",
            "lookup(shops, payer, 'category') = 'casino'",
            "category of payer in the list shops is casino",
        ),
        (
            "vip IN LIST v OR payer IN LIST p AND kind IN ('list')",
            "kind = 'list' AND payer IN LIST p OR vip IN LIST v",
            "vip is in the list v or (payer is in the list p and kind is one of list)",
        ),
    ],
)
def test_conditions_have_one_form_and_a_sentence(text, form, words):
    expression = parse_expression(text)
    assert to_sql(normalise(expression)) == form
    assert normalise(parse_expression(form)) == normalise(expression)
    assert in_words(expression).replace("`list`", "list") == words


@settings(deadline=None)
@given(LISTS, st.lists(st.tuples(st.none() | KEYS, st.none() | st.integers(-9, 9), TIMES_MS), min_size=1))
def test_conditions_follow_sql_with_nulls(entries, rows):
    kinds, cents, times_ms = zip(*rows, strict=True)
    columns = {"kind": pa.array(kinds, pa.string()), "account": numbers(pa.array(cents, pa.int64()), 0)}
    columns["amount"] = numbers(pa.array(cents, pa.int64()), 1)
    lists = at({"l": ListIndex.of(entries)}, *times_ms)
    texts = {
        "kind": list(kinds),
        "account": [None if each is None else str(each) for each in cents],
        "amount": [None if each is None else f"{each / 10:.1f}".removesuffix(".0") for each in cents],
    }
    texts["amount"] = ["0" if text == "-0" else text for text in texts["amount"]]
    for field, keys in texts.items():
        expected = [counts(entries, *each) for each in zip(keys, times_ms, strict=True)]
        for condition, truths in {
            f"{field} IN LIST l": [each is True for each in expected],
            f"{field} NOT IN LIST l": [each is False for each in expected],
            f"({field} IN LIST l) IS NULL": [each is None for each in expected],
            f"lookup(l, {field}, 'tier') = 'x'": [
                value(entries, key, time_ms, "tier") == "x" for key, time_ms in zip(keys, times_ms, strict=True)
            ],
        }.items():
            assert matching(normalise(parse_expression(condition)), columns, len(rows), lists).to_pylist() == truths


@settings(deadline=None)
@given(LISTS, st.lists(st.tuples(st.none() | st.lists(st.none() | KEYS, max_size=4), TIMES_MS), min_size=1))
def test_an_array_is_in_a_list_where_one_of_its_elements_is(entries, rows):
    arrays, times_ms = zip(*rows, strict=True)
    columns, lists = {"tags[]": pa.array(arrays, pa.list_(pa.string()))}, at({"l": ListIndex.of(entries)}, *times_ms)
    expected: list[bool | None] = []
    for keys, time_ms in rows:
        found = [None if keys is None else False, *(counts(entries, key, time_ms) for key in keys or ())]
        expected.append(True if True in found else None if None in found else False)
    for condition, wanted in (("tags[] IN LIST l", True), ("tags[] NOT IN LIST l", False)):
        expression = parse_expression(condition)
        truths = matching(normalise(expression), columns, len(rows), lists).to_pylist()
        assert truths == [each is wanted for each in expected]
        for row, keys in enumerate(arrays):
            now = ListsAt(lists.lists, lists.times_ms[row : row + 1])
            possible = {each if wanted or each is None else not each for each in [expected[row]]}
            assert possible_truths(expression, {"tags[]": None if keys is None else list(keys)}, now) == possible


@settings(deadline=None)
@given(LISTS, st.none() | KEYS, st.none() | st.integers(-9, 9), st.none() | st.booleans(), TIMES_MS)
def test_known_values_have_exactly_the_truth_of_the_evaluation(entries, kind, account, vip, time_ms):
    row = {"kind": kind, "account": account, "vip": vip}
    columns = {
        "kind": pa.array([kind], pa.string()),
        "account": numbers(pa.array([account], pa.int64()), 0),
        "vip": pa.array([vip], pa.bool_()),
    }
    lists = at({"l": ListIndex.of(entries)}, time_ms)
    for text in ("kind IN LIST l", "account IN LIST l", "vip IN LIST l", "lookup(l, kind, 'tier') = 'x'"):
        expression = parse_expression(text)
        true = matching(expression, columns, 1, lists)[0].as_py()
        null = matching(parse_expression(f"({text}) IS NULL"), columns, 1, lists)[0].as_py()
        assert possible_truths(expression, row, lists) == {None if null else true}


@pytest.mark.parametrize(
    "where",
    [
        "payer IN LIST",
        "payer IN LIST 'payroll'",
        "payer IN LIST (payroll)",
        "at IN LIST payroll",
        "account + 1 IN LIST payroll",
        "(payer, account + 1) IN LIST payroll",
        "(payer, at) IN LIST payroll",
        "(payer, kind, payer, kind, payer) IN LIST payroll",
        "() IN LIST payroll",
        "((payer, kind), payer) IN LIST payroll",
        "(payer, kind) IN ('a')",
        "(payer, kind) = 'a'",
        "payer IN LIST payroll OR (payer, kind) IN LIST payroll",
        "lookup(shops, payer) = 'x'",
        "lookup(shops, payer, kind) = 'x'",
        "lookup(shops, payer, 'category')",
        "lookup(shops, payer, 'category') > 3",
    ],
)
def test_what_is_no_condition_is_refused_in_one_line(where, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        canonical_filter(parse_filter(where), SCHEMA)


def test_a_feature_is_no_key(as_worded):
    looked = features_rule("payments IN LIST l")
    with pytest.raises(BucketsError, check=as_worded):
        buckets.evaluate(events([]), [looked], SCHEMA, lists={"l": ListIndex.of({})})


def test_a_rule_names_the_lists_that_it_looks_into(as_worded):
    named = features_rule("payments > 1 AND lookup(shops, kind, 'a') = 'b'", where="payer NOT IN LIST payroll")
    assert named.lists == {"shops", "payroll"}
    with pytest.raises(BucketsError, check=as_worded):
        refuse(list_faults("conf", [named], {"payroll": ListIndex.of({})}))


# Events


def features_rule(when: str, **changes) -> buckets.Rule:
    features = {"payments": {"function": "count", "window": "1h"}}
    written = {"rule_id": "f", "group_by": ["payer"], "features": features, "when": when}
    return buckets.Rule.model_validate(written | changes)


def events(rows: list[tuple[str, int, str, str | None]]) -> pa.Table:
    """Events as (id, time in ms, payer, kind)."""
    ids, times_ms, payers, kinds = zip(*rows, strict=True) if rows else ((), (), (), ())
    texts = {"id": ids, "payer": payers, "kind": kinds}
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    columns |= {"account": pa.array([1] * len(rows), pa.int64()), "vip": pa.array([True] * len(rows))}
    amounts = {"amount": pa.array(["60.00"] * len(rows)), "fee": pa.array(["1"] * len(rows))}
    return pa.table(columns | amounts | {"at": pa.array(times_ms, pa.int64())})


def test_filters_conditions_and_filters_of_features_look_into_lists():
    payroll = ListIndex.of({"p1": Entry(until_ms=2_000)})
    shops = ListIndex.of({"k1": Entry({"category": "casino"})})
    filtered = buckets.Rule.model_validate(written_rule(rule_id="w", where="payer NOT IN LIST payroll"))
    judged = features_rule(
        "casinos >= 1 AND lookup(shops, kind, 'category') = 'casino' AND payer NOT IN LIST payroll",
        features={
            "casinos": {"function": "count", "window": "1h", "where": "lookup(shops, kind, 'category') = 'casino'"}
        },
    )
    rows = [("e1", 1_000, "p1", "k1"), ("e2", 1_999, "p1", "k1"), ("e3", 2_000, "p1", "k1"), ("e4", 2_001, "p1", None)]
    rows += [("e5", 2_002, "p2", "k2"), ("e6", 2_003, "p2", "k1")]
    lists = {"payroll": payroll, "shops": shops}
    results = buckets.Evaluator([filtered, judged], SCHEMA, lists=lists).recorded(events(rows))
    found = results.evaluations.to_pylist()
    assert [row["event_id"] for row in found if row["rule_id"] == "w"] == ["e3", "e4", "e5", "e6"]
    fired = [(row["event_id"], row["rule_id"]) for row in results.alerts.to_pylist()]
    assert fired == [("e3", "f"), ("e4", "w"), ("e6", "w"), ("e6", "f")]
    terms = [json.loads(row["terms"])[0]["value"] for row in found if row["rule_id"] == "f"]
    assert terms == ["1", "2", "3", "3", "0", "1"]
    said = next(row["condition"] for row in results.alerts.to_pylist() if row["rule_id"] == "f")
    assert "payer (p1) is not in the list payroll" in said


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["p1", "p2"]), st.none() | st.sampled_from(["a", "b"])), max_size=12
)
RULES = (
    buckets.Rule.model_validate(written_rule(rule_id="w", where="kind IN LIST l")),
    features_rule("payments > 1 AND lookup(l, kind, 'tier') = 'x' OR kind NOT IN LIST l"),
    features_rule(
        "payments > 0 AND total > 0 AND kind IN LIST l",
        rule_id="spanning",
        features={
            "payments": {"function": "count", "window": "1h", "where": "kind IN LIST l"},
            "total": {"function": "count", "window": "1h", "group_by": ["kind"]},
        },
    ),
)


KEPT = ("event_id", "rule_id", "value", "terms", "fired", "key")


def scored(rows, cuts: set[int], lists_at: dict[int, ListIndex], shards: int) -> dict[str, list]:
    """Rows in batches that begin at `cuts`, with the list as it is from some rows on; what comes out."""
    engine, rule_set = EngineSettings(shards=shards, allowed_lateness="1h"), first_rule_set(RULES)
    job, decoder = InMemoryJob(Scorer(SCHEMA, engine, evaluations=True)), OutputDecoder(rule_set, SCHEMA, engine)
    found: dict[str, list] = {"evaluations": [], "alerts": [], "late_events": []}
    lists, batch = {"l": ListIndex.of({})}, []

    def score() -> None:
        job.scorer = replace(job.scorer, lists=lists)
        for output, payloads in job.score_batch([arrivals(batch, SCHEMA)], rule_set).payloads.items():
            for table in decoder.tables(output, payloads) if output in found else ():
                found[output] += table.select([name for name in KEPT if name in table.column_names]).to_pylist()

    for index, (step_ms, payer, kind) in enumerate(rows):
        if index in cuts | set(lists_at) and batch:
            score()
            batch = []
        lists = {"l": lists_at[index]} if index in lists_at else lists
        row = {"id": f"e{index}", "at": index * 2 + step_ms, "payer": payer, "kind": kind, "account": 1, "vip": True}
        batch.append(row | {"amount": "60.00", "fee": "1", "position": index + 1})
    if batch:
        score()
    return {output: sorted(map(repr, rows)) for output, rows in found.items()}


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(40))
@given(
    ROWS,
    st.sets(st.integers(1, 11)),
    st.dictionaries(st.integers(0, 11), st.dictionaries(st.sampled_from(["a", "b"]), ENTRIES), max_size=3),
    st.integers(1, 3),
)
def test_batches_may_be_cut_anywhere_while_lists_change_between_them(rows, cuts, lists_at, shards):
    indices = {index: ListIndex.of(entries) for index, entries in lists_at.items()}
    patched = {index: ListIndex.of({"c": Entry()}).with_changes(entries) for index, entries in lists_at.items()}
    once = scored(rows, set(), indices, 1)
    assert scored(rows, cuts, indices, shards) == once
    assert scored(rows, cuts, patched, shards) == once


# Versions


def pinned(checkpoint: Checkpoint, batch_id: int) -> dict[str, ListIndex]:
    """The lists of a batch, as a task that has read nothing yet sees them."""
    record = checkpoint.batches.record(batch_id)
    assert record is not None
    return dict(PinnedLists(ListVersions(checkpoint.path), record.lists))


class Told:
    """A feed that says what it is told to, in the thread of the test."""

    fault = None
    origin = "told"

    def __init__(self) -> None:
        self.reads = [ListRead()]
        self.started_at: int | None = None

    def start(self, position):
        self.started_at = position

    def read(self):
        return self.reads.pop(0) if self.reads else ListRead()

    def stop(self):
        pass


def book_of(checkpoint: Checkpoint, feed: Told) -> tuple[RuleBook, ListBook]:
    lists = ListBook(checkpoint, {"l": feed})
    book = RuleBook(checkpoint, FixedRules(RULES), SCHEMA, EngineSettings(allowed_lateness="0ms"), lists=lists)
    return book, lists


def tell(lists: ListBook, feed: Told, changes, position: TopicPosition | None = None) -> None:
    """One look at a feed that has found changes."""
    feed.reads.append(ListRead(changes=changes, position=position))
    lists.look()


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=6), st.sampled_from([0, 2, 500]))
def test_a_batch_that_is_run_again_sees_the_lists_it_saw(tmp_path_factory, steps, chain):
    """Whatever is compacted or removed in the meantime, and from whichever version a task goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("buckets.checkpoint.list_versions.LONGEST_CHAIN", chain)
        checkpoint = Checkpoint(tmp_path_factory.mktemp("checkpoint"))
        feed, entries, seen = Told(), {}, {}
        book, lists = book_of(checkpoint, feed)
        lists.start_reading()
        book_rules = book.for_batch(0)
        seen[0] = {}
        for batch_id, (changes, is_restarted) in enumerate(steps, 1):
            tell(lists, feed, changes)
            entries = changed(entries, changes)
            if is_restarted:
                feed = Told()
                book, lists = book_of(Checkpoint(checkpoint.path), feed)
                lists.start_reading()
            book.for_batch(batch_id)
            book.done(batch_id, book_rules, ())
            seen[batch_id] = entries
        warm = ListVersions(checkpoint.path)
        for batch_id, expected in seen.items():
            fresh = pinned(checkpoint, batch_id)["l"]
            record = checkpoint.batches.record(batch_id)
            for index in (fresh, warm.index("l", record.lists["l"])):
                assert index.entries() == len(expected)
                assert {key: index.get(key) for key in expected} == expected


def test_a_start_goes_on_at_the_position_of_the_newest_version(checkpoint):
    feed = Told()
    _, lists = book_of(checkpoint, feed)
    lists.start_reading()
    tell(lists, feed, {"a": Entry()}, position=TopicPosition(17, "id"))
    again = Told()
    _, lists = book_of(Checkpoint(checkpoint.path), again)
    lists.start_reading()
    assert (again.started_at, lists.newest()) == (TopicPosition(17, "id"), {"l": 2})


def test_changes_that_could_not_be_written_are_written_later(checkpoint, monkeypatch, as_worded):
    said: list[str] = []
    feed = Told()
    lists = ListBook(checkpoint, {"l": feed}, said.append)
    lists.start_reading()
    with monkeypatch.context() as patch:
        patch.setattr("buckets.checkpoint.record_files.write_whole", full_disk)
        tell(lists, feed, {"a": Entry()})
        lists.look()
    assert (lists.newest(), len(said)) == ({"l": 1}, 1)
    assert as_worded(said[0])
    lists.look()
    index = PinnedLists(ListVersions(checkpoint.path), lists.newest())["l"]
    assert (lists.newest(), index.get("a")) == ({"l": 2}, Entry())


def full_disk(*_: object) -> None:
    message = "no room"
    raise OSError(message)


def test_versions_that_no_batch_is_recorded_with_are_removed(checkpoint, monkeypatch):
    monkeypatch.setattr("buckets.checkpoint.list_versions.LONGEST_CHAIN", 2)
    monkeypatch.setattr("buckets.checkpoint.batch_records.KEPT_BATCHES", 3)
    feed = Told()
    book, lists = book_of(checkpoint, feed)
    lists.start_reading()
    for batch_id in range(20):
        tell(lists, feed, {f"k{batch_id}": Entry()})
        book.for_batch(batch_id)
    assert pinned(checkpoint, 19)["l"].entries() == 20
    assert pinned(checkpoint, 17)["l"].entries() == 18
    left = sorted(int(file.stem) for file in (checkpoint.path / "buckets" / "lists" / "l").glob("*.json"))
    assert left[0] > 10


def test_records_of_batches_without_lists_are_written_and_read_as_before(checkpoint):
    checkpoint.batches.keep(3, BatchRecord(1, (), done=True))
    written = written_in(checkpoint.path / "buckets" / "batches" / "000000003.json")
    assert written == {"ruleset_version": 1, "arrived": [], "done": True}
    assert checkpoint.batches.record(3) == BatchRecord(1, (), done=True)


def test_a_rule_that_looks_into_an_unknown_list_is_refused(checkpoint, as_worded):
    book = RuleBook(checkpoint, FixedRules(RULES), SCHEMA, EngineSettings(allowed_lateness="0ms"))
    with pytest.raises(BucketsError, check=as_worded):
        book.for_batch(0)


# Files and tables


def write(path: Path, text: str, modified_s: int) -> None:
    path.write_text(text)
    os.utime(path, (modified_s, modified_s))


def test_a_file_is_read_again_when_it_has_changed_and_a_fault_keeps_the_list(checkpoint, tmp_path, as_worded):
    path, said = tmp_path / "l.csv", []
    write(path, "key,until,author,reason,category\na,1970-01-01T00:00:01Z,ann,because,casino\nb,,,,\n", 1)
    lists = ListBook(checkpoint, {"l": WholeList(path)}, said.append)
    lists.start_reading()
    index = PinnedLists(ListVersions(checkpoint.path), lists.newest())["l"]
    assert index.get("a") == Entry({"category": "casino"}, 1_000, "ann", "because")
    assert index.get("b") == Entry()
    write(path, "key\na\na\n", 2)
    lists.look()
    lists.look()
    assert lists.newest() == {"l": 1}
    assert len(said) == 1
    assert as_worded(said[0])
    faults = checkpoint.lists.faults()
    assert as_worded(faults["l"])
    write(path, "key\na\nc\n", 3)
    lists.look()
    assert lists.newest() == {"l": 2}
    index = PinnedLists(ListVersions(checkpoint.path), lists.newest())["l"]
    assert [index.get(key) for key in "abc"] == [Entry(), None, Entry()]
    assert checkpoint.lists.faults() == {}


def test_a_yaml_file_holds_keys_or_mappings(tmp_path):
    path = tmp_path / "l.yaml"
    path.write_text("- p1\n- 7\n- true\n- {key: p2, until: 1970-01-02, tier: 3, reason: moved}\n")
    index = load_list(path)
    assert [index.get(key) for key in ("p1", "7", "true")] == [Entry()] * 3
    assert index.get("p2") == Entry({"tier": "3"}, 86_400_000, "", "moved")


@pytest.mark.parametrize(
    ("name", "text"),
    [("l.yaml", "- p1\n- {key: p2, tier: 3, reason: moved}\n"), ("l.csv", "key,tier\np1,\np2,3\n")],
)
def test_a_file_that_has_not_changed_is_no_new_version_at_the_next_start(checkpoint, tmp_path, name, text):
    write(tmp_path / name, text, 1)
    for _ in range(3):
        lists = ListBook(Checkpoint(checkpoint.path), {"l": WholeList(tmp_path / name)})
        lists.start_reading()
        assert lists.newest() == {"l": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.csv", "name\na\n"),
        ("l.csv", "key,a,a\n1,2,3\n"),
        ("l.csv", "key,a\n1\n"),
        ("l.csv", ""),
        ("l.csv", 'key\np1\n"x\np2\n'),
        ("l.csv", 'key,reason\np1,"he said\np2,b\n'),
        ("l.csv", "key,a\n,1\n"),
        ("l.csv", f"key\n{'x' * 1001}\n"),
        ("l.csv", "key,until\na,soon\n"),
        ("l.yaml", "a: b\n"),
        ("l.yaml", "- {key: {a: b}}\n"),
        ("none.csv", None),
    ],
)
def test_what_is_no_list_is_refused_in_one_line(tmp_path, name, text, as_worded):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(BucketsError, check=as_worded):
        load_list(path)


def test_a_moment_is_in_utc_and_rounded_up_to_the_millisecond():
    assert parse_moment_ms("1970-01-01") == 0
    assert parse_moment_ms("1970-01-01T01:00:00+01:00") == 0
    assert parse_moment_ms("1970-01-01T00:00:00.000001Z") == 1
    assert parse_moment_ms("1969-12-31T23:59:59.9999Z") == 0


def test_a_table_is_read_again_after_a_commit(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("buckets.feeds.feed.LOOK_EVERY_S", 0)
    path = tmp_path / "table"
    until = pa.array([1_500_500, None], pa.timestamp("us", "UTC"))
    write_deltalake(path, pa.table({"merchant": [7, 8], "until": until, "category": ["casino", None]}))
    lists = ListBook(checkpoint, {"l": WholeList(path, "merchant", is_table=True)})
    lists.start_reading()
    index = PinnedLists(ListVersions(checkpoint.path), lists.newest())["l"]
    assert [index.get("7"), index.get("8")] == [Entry({"category": "casino"}, 1_501), Entry()]
    DeltaTable(path).delete("merchant = 7")
    lists.look()
    index = PinnedLists(ListVersions(checkpoint.path), lists.newest())["l"]
    assert [index.get("7"), index.get("8")] == [None, Entry()]


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "file"},
        {"kind": "kafka", "path": "x"},
        {"kind": "kafka", "topic": "x", "key": "a"},
        {"kind": "delta", "path": "x", "topic": "y"},
    ],
)
def test_settings_of_another_kind_are_refused(settings, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        ListSettings.model_validate(settings)


def test_a_rule_without_lists_is_as_it_was():
    assert rule().lists == frozenset()
