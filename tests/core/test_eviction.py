"""Eviction in a shard: what stays of its state, and that it costs no result and no batch too much."""

import json
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.engine.eviction import eviction, shard_clock
from buckets.engine.eviction import schedule as eviction_schedule
from buckets.engine.eviction.chunks import NOT_NOTED
from buckets.engine.eviction.schedule import CHUNK_KEYS, CLOCK, OVERVIEW, SPARE_VISITS
from buckets.engine.stages import shard
from buckets.engine.storage.shard_store import (
    GroupedKeys,
    ShardStore,
    head_key,
    page_key,
    split_head_key,
    split_page_key,
)
from buckets.kernel import score
from buckets.kernel.plan import plan_group
from buckets.outputs import columns
from buckets.rules.group import group_id
from buckets.rules.rule_set import first_rule_set, next_rule_set
from buckets.timeline.inspection import TimelineView, pages_of, view_timeline
from buckets.timeline.tiers import Paging
from tests.core.examples import SCHEMA, rule, until
from tests.core.pipeline import Pipeline
from tests.core.test_eviction_schedule import chunk_entries
from tests.laws import examples

SMALL = Paging(page_cells=3, hot_cells=2, most_pages=64)
LATENESS_MS = 10
LONG, SHORT = 80, 40
"""Windows of the two groups, in ms."""
RULES = [rule("long", length="80ms"), rule("short", "fee", length="40ms", where={"kind": "a"})]
HORIZON_MS = {"long": LONG + LATENESS_MS, "short": SHORT + LATENESS_MS}
GROUP = {each.rule_id: group_id(each.group_by, each.where) for each in RULES}


@pytest.fixture(autouse=True)
def one_voter():
    """The key that had an event last says how late it is; who votes is tested with the shard's clock."""
    with mock.patch.multiple(shard_clock, VOTERS=1, QUORUM=1):
        yield


@contextmanager
def small(chunk_keys: int = 3, spare_visits: int = 2):
    """Chunks, visits and pages so small that short streams have many."""
    with ExitStack() as changes:
        changes.enter_context(mock.patch.object(eviction_schedule, "CHUNK_KEYS", chunk_keys))
        changes.enter_context(mock.patch.object(eviction, "SPARE_VISITS", spare_visits))
        changes.enter_context(mock.patch.object(shard, "score_all", partial(score.score_all, paging=SMALL)))
        changes.enter_context(mock.patch.object(eviction, "score_all", partial(score.score_all, paging=SMALL)))
        yield


class Shard(Pipeline):
    """One shard, whose rows have positions of their own."""

    def __init__(self, rules=RULES, **engine) -> None:
        engine = {"shards": 1, "allowed_lateness": f"{LATENESS_MS}ms"} | engine
        super().__init__(first_rule_set(rules), SCHEMA, **engine)
        self.rows = 0

    def take(self, *events: tuple[str, int], kind: str = "a") -> None:
        """A micro-batch of events, each a payer and a time in ms."""
        self.batch([[self.row(payer, at, kind=kind) for payer, at in events]])

    def pass_by(self, payer: str, at: int) -> None:
        """Events of a payer at a time and an eighth of the longest horizon later: idle keys are visited twice."""
        for moment in (at, at + HORIZON_MS["long"] // 8 + 1):
            self.take((payer, moment))

    def row(self, payer: str, at: int, **changes) -> dict:
        self.rows += 1
        fields = {"id": f"e{self.rows}", "at": at, "payer": payer, "kind": "a", "account": 1, "vip": "true"}
        return fields | {"amount": "1.00", "fee": 2, "position": self.rows} | changes

    @property
    def store(self) -> ShardStore:
        return self.stores[0]

    def keys(self, rule_id: str = "long") -> set[str]:
        """The keys of a group that have a timeline."""
        owners = map(split_head_key, self.store.heads.data)
        return {key for group, key in owners if group == GROUP[rule_id]}

    def view(self, state_key: bytes) -> TimelineView:
        """A stored timeline."""
        (group,) = [each for each in self.rule_set.groups if each.group_id == split_head_key(state_key)[0]]
        read = partial(self._pages, state_key)
        return view_timeline(self.store.heads.data[state_key], read, [False] * len(group.measures))

    def _pages(self, state_key: bytes, numbers) -> list[bytes]:
        return [self.store.pages.data[page_key(state_key, number)] for number in numbers]

    def content(self, state_key: bytes) -> tuple:
        """Clock and cells of a timeline, however it is laid down."""
        view = self.view(state_key)
        return view.clock_ms, [(cell.first_ms, cell.event_id, cell.least) for cell in view.cells]

    def check(self) -> None:
        """Check that every key is in the schedule once, every page in one head, and nothing else lies there."""
        entries = self.store.schedule.data
        overview = json.loads(entries[OVERVIEW])["slots"]
        scheduled = Counter(
            key
            for state_key, chunk in entries.items()
            if state_key not in (OVERVIEW, CLOCK)
            for key, _ in chunk_entries(state_key, chunk)
        )
        assert scheduled == Counter(list(self.store.heads.data))
        assert scheduled.total() == sum(keys for slots in overview.values() for keys in slots.values())
        heads = self.store.heads.data
        named = [
            page_key(state_key, number)
            for state_key, head in heads.items()
            for number in pages_of(ByteStrings.of([head]))[1].tolist()
        ]
        assert Counter(named) == Counter(list(self.store.pages.data))


def slot_end_ms(clock_ms: int, horizon_ms: int) -> int:
    step_ms = max(1, horizon_ms // 8)
    return (clock_ms // step_ms + 1) * step_ms


# An idle key


@pytest.mark.parametrize("start_ms", [-1_000, 0, 1_700_000_000_000])
def test_an_idle_key_goes_when_the_clock_of_its_shard_has_passed_it_by_the_horizon_and_not_before(start_ms):
    one = Shard()
    one.take(("idle", start_ms), ("busy", start_ms))
    one.take(("busy", start_ms + HORIZON_MS["long"]))
    assert one.keys() == {"idle", "busy"}
    one.take(("busy", slot_end_ms(start_ms, HORIZON_MS["long"]) + HORIZON_MS["long"]))
    assert one.keys() == {"idle", "busy"}
    assert one.keys("short") == {"busy"}
    due_ms = slot_end_ms(start_ms, HORIZON_MS["long"]) + HORIZON_MS["long"] + 1
    one.take(("busy", due_ms))
    one.take(("busy", slot_end_ms(due_ms, HORIZON_MS["long"])))
    assert one.keys() == {"idle", "busy"}
    one.take(("busy", slot_end_ms(due_ms, HORIZON_MS["long"]) + 1))
    assert one.keys() == {"busy"}
    one.check()


@pytest.mark.parametrize(("beyond_ms", "stays"), [(0, True), (1, False)])
def test_a_key_that_has_moved_on_since_it_was_entered_stays_to_the_last_moment_of_its_horizon(beyond_ms, stays):
    one = Shard()
    one.take(("key", 0))
    one.take(("key", 50))
    assert slot_end_ms(0, HORIZON_MS["long"]) < 50
    due_ms = slot_end_ms(0, HORIZON_MS["long"]) + HORIZON_MS["long"] + 1
    one.take(("busy", due_ms))
    assert slot_end_ms(50, HORIZON_MS["long"]) + HORIZON_MS["long"] > 50 + HORIZON_MS["long"]
    visited_ms = slot_end_ms(50, HORIZON_MS["long"]) + HORIZON_MS["long"] + 1
    one.take(("busy", visited_ms))
    one.take(("busy", slot_end_ms(visited_ms, HORIZON_MS["long"]) + beyond_ms))
    assert one.keys() == ({"key", "busy"} if stays else {"busy"})
    one.check()


def test_a_key_that_lags_behind_its_shard_stays_as_long_as_it_moves_on():
    one, step_ms = Shard([RULES[0]]), HORIZON_MS["long"] // 2
    for at in range(0, 20 * HORIZON_MS["long"], step_ms):
        one.take(("slow", at // 2))
        one.take(("busy", at))
        assert one.keys() == {"slow", "busy"}
        one.check()
    counts = [row["count"] for row in one.output(columns.EVALUATIONS) if "slow" in row["key"]]
    assert counts == [1, 2, 3, *[4] * 37]
    for at in range(20 * HORIZON_MS["long"], 24 * HORIZON_MS["long"], step_ms):
        one.take(("busy", at))
        one.check()
    assert one.keys() == {"busy"}


def test_the_clock_that_counts_is_that_of_the_shard_and_of_all_its_groups():
    one = Shard()
    one.take(("idle", 0))
    one.take(("other", 1_000), kind="b")
    one.take(("other", 1_100), kind="b")
    assert one.keys() == {"other"}
    assert one.keys("short") == set()
    one.check()


def test_the_other_shards_do_not_move_a_clock():
    pipeline = Shard(shards=2)
    pipeline.take(*((f"p{number}", 0) for number in range(20)))
    before = {shard: dict(store.heads.data) for shard, store in pipeline.stores.items()}
    assert len([heads for heads in before.values() if heads]) == 2
    for at in (10_000, 10_100):
        pipeline.take(("p0", at), kind="b")
    changed = [shard for shard, store in pipeline.stores.items() if store.heads.data != before[shard]]
    assert len(changed) == 1
    assert {key for _, key in map(split_head_key, pipeline.stores[changed[0]].heads.data)} == {"p0"}


def test_pages_go_with_their_key():
    with small():
        one = Shard()
        one.take(*(("idle", at) for at in range(30)), ("busy", 0))
        assert len(one.store.pages.data) >= 4
        one.pass_by("busy", 1_000)
        assert one.keys() == {"busy"}
        assert one.store.pages.data == {}
        one.check()


def test_a_key_that_was_evicted_begins_anew():
    one = Shard()
    one.take(("back", 0), ("busy", 0))
    one.pass_by("busy", 1_000)
    one.take(("back", 1_000))
    assert one.content(head_key(GROUP["long"], "back")) == (1_000, [(1_000, "e5", (100,))])
    one.check()


def test_a_batch_that_evicts_a_key_and_one_that_is_run_again_in_its_place_leave_the_same():
    """What a restarted batch sees is the state before it."""
    states = []
    for _ in range(2):
        one = Shard()
        one.take(*((f"idle{number}", number) for number in range(20)))
        one.pass_by("busy", 1_000)
        states.append((one.store.heads.data, one.store.pages.data, one.store.schedule.data))
    assert states[0] == states[1]


# Any stream


STEPS_MS = st.sampled_from([0, 0, 1, 1, 2, 3, 5, 9, 12, 40, 55, 100, 300, -1, -4, -10])
PARTS = st.lists(
    st.tuples(st.integers(0, 9), STEPS_MS, st.sampled_from("aab"), st.sampled_from([1, 1, 1, 2, 12])), max_size=50
)
CUTS = st.lists(st.integers(0, 120), max_size=12)
STARTS_MS = st.sampled_from([-1_000, 0, 1_700_000_000_000])


def stream(start_ms: int, parts) -> list[dict]:
    """Events of ten keys, none of them later than allowed after all that came before it; bursts make pages."""
    clock_ms, rows, maker = start_ms, [], Shard()
    for key, step_ms, kind, times in parts:
        for _ in range(times):
            at = clock_ms + step_ms
            clock_ms = max(clock_ms, at)
            rows.append(maker.row(f"p{key}", at, kind=kind))
    return rows


def batches(rows, cuts):
    ends = sorted({min(index, len(rows)) for index in cuts} | {0, len(rows)})
    return [rows[start:end] for start, end in pairwise(ends)]


def run(rows, cuts=()) -> Shard:
    one = Shard()
    for batch in batches(rows, cuts):
        one.batch([batch])
    return one


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(STARTS_MS, PARTS, CUTS)
def test_after_any_stream_the_state_is_that_of_the_keys_that_are_not_idle(start_ms, parts, cuts):
    with small():
        rows = stream(start_ms, parts)
        one = Shard()
        one.rows = len(rows)
        for batch in batches(rows, cuts):
            one.batch([batch])
            one.check()
        clock_ms = max((row["at"] for row in rows), default=start_ms)
        for _ in range(7):
            one.take(("driver", clock_ms))
            one.check()
        for rule_id, horizon_ms in HORIZON_MS.items():
            mine = [row for row in rows if rule_id == "long" or row["kind"] == "a"]
            clocks_ms = {
                payer: max(x["at"] for x in mine if x["payer"] == payer) for payer in {x["payer"] for x in mine}
            }
            inside = {payer for payer, own_ms in clocks_ms.items() if own_ms + horizon_ms >= clock_ms}
            assert inside <= one.keys(rule_id) - {"driver"}
            for payer in inside - {"driver"}:
                fresh = run([row for row in mine if row["payer"] == payer])
                state_key = head_key(GROUP[rule_id], payer)
                assert one.content(state_key) == fresh.content(state_key)
        longest_ms = max(HORIZON_MS.values())
        for last_ms in (clock_ms + 2 * longest_ms, clock_ms + 4 * longest_ms, clock_ms + 6 * longest_ms):
            for _ in range(12):
                one.take(("driver", last_ms))
                one.check()
        assert one.keys("long") == one.keys("short") == {"driver"}


@settings(max_examples=examples(100))
@given(STARTS_MS, PARTS, CUTS)
def test_other_keys_of_the_shard_and_their_eviction_change_no_result(start_ms, parts, cuts):
    with small():
        rows = stream(start_ms, parts)
        together, alone = run(rows, cuts), run([row for row in rows if row["payer"] == "p0"])
        for output in together.found.keys() | alone.found.keys():
            mine = [row for row in together.output(output) if json.loads(row["key"])["payer"] == "p0"]
            assert mine == alone.output(output)


@settings(max_examples=examples(60))
@given(STARTS_MS, PARTS, CUTS)
def test_no_batch_visits_more_keys_than_it_holds_events_and_a_little(start_ms, parts, cuts):
    with small(chunk_keys=3, spare_visits=2):
        rows = stream(start_ms, parts)
        one = Shard()
        for batch in batches(rows, cuts):
            before = one.store.heads.reads if one.stores else 0
            one.batch([batch])
            own = {row["payer"] for row in batch}, {row["payer"] for row in batch if row["kind"] == "a"}
            events = len(batch) + sum(row["kind"] == "a" for row in batch)
            visits = one.store.heads.reads - before - sum(map(len, own)) if one.stores else 0
            assert visits < events + 2 + 3


def test_a_batch_of_one_event_does_not_pay_for_all_that_is_due():
    one = Shard([RULES[0]])
    keys = 3 * (CHUNK_KEYS + SPARE_VISITS)
    one.take(*((f"idle{number}", 0) for number in range(keys)))
    left, reads = [], []
    while one.keys() != {"busy"}:
        before = one.store.heads.reads
        one.take(("busy", 1_000 + len(left)))
        reads.append(one.store.heads.reads - before - 1)
        left.append(len(one.keys()))
        one.check()
    assert max(reads) <= 1 + SPARE_VISITS + CHUNK_KEYS
    assert len(left) <= 2 * (keys // CHUNK_KEYS + 1) + HORIZON_MS["long"] // 8
    assert sum(reads) == 2 * keys


@pytest.mark.slow
def test_a_key_that_lives_is_visited_once_a_horizon_however_many_events_it_has():
    one = Shard([RULES[0]])
    one.take(*((f"live{number}", 0) for number in range(50)))
    before = one.store.heads.reads
    horizons = 4
    batches_run = horizons * HORIZON_MS["long"]
    for at in range(1, batches_run + 1):
        one.take(("busy", at), *((f"live{number}", at) for number in range(50) if at % 45 == 0))
    own = batches_run + 50 * (batches_run // 45)
    assert one.store.heads.reads - before - own <= 50 * horizons


# Groups and horizons that change


def test_the_timelines_of_a_deleted_group_go_as_batches_come():
    with small():
        one = Shard()
        one.take(*((f"p{number}", at) for at in range(12) for number in range(12)))
        assert len(one.keys("short")) == 12
        state_keys = [split_page_key(page)[0] for page in one.store.pages.data]
        assert any(split_head_key(state_key)[0] == GROUP["short"] for state_key in state_keys)
        one.rule_set = next_rule_set(one.rule_set, [RULES[0]], until(11), LATENESS_MS)
        sizes = []
        while one.keys("short"):
            one.take(("p0", 12))
            one.check()
            sizes.append(len(one.keys("short")))
        assert len(sizes) > 1
        assert sizes == sorted(sizes, reverse=True)
        assert len(one.keys("long")) == 12
        state_keys = [split_page_key(page)[0] for page in one.store.pages.data]
        assert {split_head_key(state_key)[0] for state_key in state_keys} == {GROUP["long"]}


@pytest.mark.slow
@pytest.mark.parametrize("gap", [1, 30], ids=["before its timelines are all gone", "after they are"])
def test_a_group_that_comes_back_begins_anew_and_leaves_nothing_of_its_first_life(gap):
    with small():
        one = Shard()
        one.take(*((f"p{number}", at) for at in range(12) for number in range(12)))
        one.rule_set = next_rule_set(one.rule_set, [RULES[0]], until(11), LATENESS_MS)
        for _ in range(gap):
            one.take(("busy", 12))
        assert bool(one.keys("short")) == (gap == 1)
        one.rule_set = next_rule_set(one.rule_set, RULES, until(12), LATENESS_MS)
        one.take(*((f"p{number}", 13) for number in range(0, 12, 2)))
        one.check()
        counts = [row["count"] for row in one.output(columns.EVALUATIONS) if row["rule_id"] == "short"]
        assert counts[-6:] == [1] * 6
        for number in range(0, 12, 2):
            clock_ms, cells = one.content(head_key(GROUP["short"], f"p{number}"))
            assert (clock_ms, len(cells)) == (13, 1)
        for _ in range(30):
            one.take(("busy", 70))
            one.check()
        for _ in range(30):
            one.take(("busy", 140))
            one.check()
        assert one.keys("short") == {"busy"}


def test_timelines_of_a_groups_first_life_go_when_they_are_visited_however_young_they_are():
    with small():
        one = Shard()
        for at in (0, 11):
            one.take(*((f"p{number}", at) for number in range(12)))
        one.rule_set = next_rule_set(one.rule_set, [RULES[0]], until(11), LATENESS_MS)
        one.take(("busy", 12))
        one.rule_set = next_rule_set(one.rule_set, RULES, until(12), LATENESS_MS)
        one.take(("busy", 13))
        assert len(one.keys("short")) > 2
        visited_ms = slot_end_ms(0, HORIZON_MS["short"]) + HORIZON_MS["short"] + 1
        assert visited_ms <= 11 + HORIZON_MS["short"]
        for at in range(visited_ms, visited_ms + 10):
            one.take(("busy", at))
            one.check()
        assert one.keys("short") == {"busy"}
        assert len(one.keys("long")) == 13


def test_when_the_longest_rule_goes_eviction_trims_keys_to_the_shorter_horizon():
    with small():
        rules = [rule("brief", length="20ms"), rule("long", length="400ms")]
        one = Shard(rules)
        for at in range(0, 300, 3):
            one.take(("key", at))
        state_key = head_key(GROUP["long"], "key")
        assert one.content(state_key)[1][0][0] == 0
        pages = len(one.store.pages.data)
        one.rule_set = next_rule_set(one.rule_set, rules[:1], until(297), LATENESS_MS)
        one.take(("other", 300))
        clock_ms, cells = one.content(state_key)
        assert clock_ms == 297
        assert [cell[0] for cell in cells] == [at for at in range(0, 300, 3) if at >= 297 - 20 - LATENESS_MS]
        assert len([page for page in one.store.pages.data if split_page_key(page)[0] == state_key]) < pages
        one.check()
        one.pass_by("other", 400)
        assert one.keys() == {"other"}
        one.check()


def test_when_a_longer_rule_comes_keys_stay_for_its_horizon():
    rules = [rule("brief", length="20ms"), rule("long", length="400ms")]
    one = Shard(rules[:1])
    one.take(("idle", 0))
    one.rule_set = next_rule_set(one.rule_set, rules, until(0), LATENESS_MS)
    one.take(("busy", 400 + LATENESS_MS))
    assert one.keys() == {"idle", "busy"}
    one.take(("busy", 1_000))
    one.take(("busy", 1_060))
    assert one.keys() == {"busy"}
    one.check()


def test_eviction_folds_an_idle_key_to_the_precision_that_is_in_force():
    with small():
        rules = [rule("long", length="400ms")]
        one = Shard(rules)
        for at in range(0, 300, 3):
            one.take(("key", at))
        coarse = Shard(rules, precision={"tail": "30ms", "resolution": "50ms"})
        coarse.stores, coarse.rows = one.stores, one.rows
        coarse.take(("other", 520))
        view = coarse.view(head_key(GROUP["long"], "key"))
        assert view.clock_ms == 297
        assert sum(cell.events for cell in view.cells) == 100
        assert [cell.events for cell in view.cells if cell.event_id is None] == [17, 17, 16, 17, 17]
        coarse.check()


def test_of_a_key_that_was_scored_twice_in_a_batch_the_last_clock_counts():
    """As one is that is filled from the archive: it is entered again by that clock, and needs no look."""
    one = Shard()
    one.take(("a", 0), ("b", 0))
    plan = plan_group(one.rule_set.groups[0], SCHEMA, one.scorer.engine)
    group_id, horizon_ms = plan.group.state_id, plan.horizon_ms
    scored = eviction.Eviction.begin(one.store, {group_id: plan})
    for key, clock_ms in (("b", 1), ("a", 3 * horizon_ms), ("a", 4 * horizon_ms)):
        of_key = GroupedKeys.of(group_id, ByteStrings.of([head_key(group_id, key)]))
        scored.note(of_key, np.array([clock_ms]), np.zeros(1, np.bool_), 1)
    scored.end()
    lagging = slot_end_ms(4 * horizon_ms, horizon_ms)
    assert json.loads(one.store.schedule.data[OVERVIEW])["slots"][group_id] == {str(lagging): 2}
    chunk = one.store.schedule.data[head_key(group_id, f"{lagging}/0")]
    noted = [(head_key(group_id, "a"), NOT_NOTED), (head_key(group_id, "b"), 1)]
    assert chunk_entries(head_key(group_id, ""), chunk) == noted
