"""The eviction schedule of a shard on a map in memory: who is due and when, and that nothing is lost or doubled."""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import count
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.engine.eviction import schedule as schedule_module
from buckets.engine.eviction.chunks import NOT_NOTED, read_chunks
from buckets.engine.eviction.schedule import CLOCK, OVERVIEW, EvictionSchedule, Scheduled
from buckets.engine.eviction.shard_clock import VOTERS
from buckets.engine.storage.shard_store import GROUP_BYTES, GroupedKeys, head_key, head_keys, split_head_key
from buckets.errors import BucketsError
from buckets.timeline.head import NO_CLOCK
from tests.core.pipeline import CountedEntries
from tests.laws import examples

ONE, OTHER, CROWD = "11" * 8, "0f" * 8, "22" * 8
CHUNK = 3
HORIZONS_MS = st.sampled_from([1, 7, 8, 40, 100])
PLENTY = 10**6
Due = dict[str, list[tuple[str, int | None]]]
STEPS = st.one_of(
    st.tuples(st.just("enter"), st.sampled_from([ONE, OTHER]), st.integers(-60, 60), st.integers(1, 2 * CHUNK + 1)),
    st.tuples(st.just("advance"), st.sampled_from([-30, 0, 1, 2, 5, 20, 60, 150])),
    st.tuples(st.just("take"), st.sampled_from([0, 1, 2, CHUNK, 2 * CHUNK, PLENTY])),
    st.tuples(st.just("save"), st.booleans()),
    st.tuples(st.just("horizons"), st.one_of(st.none(), HORIZONS_MS), st.one_of(st.none(), HORIZONS_MS)),
)


def advance(schedule: EvictionSchedule, clock_ms: int) -> None:
    """Let all voters of a group of their own say how late it is."""
    voters = head_keys(CROWD, [f"voter{number}" for number in range(VOTERS)])
    group_start = np.array([0, VOTERS])
    group_start.flags.writeable = False  # as a batch has it: another kind of array would compile the kernel again
    schedule.clock.note([CROWD], group_start, ByteStrings.of(voters), np.full(VOTERS, clock_ms))


def enter(schedule: EvictionSchedule, group_id: str, keys: Iterable[str], clock_ms: int, horizon_ms: int) -> None:
    """Enter keys that have one clock."""
    entered = GroupedKeys.of(group_id, ByteStrings.of(head_keys(group_id, keys)))
    schedule.enter(entered, np.full(entered.size, clock_ms), {group_id: horizon_ms})


def take(schedule: EvictionSchedule, entries: CountedEntries, horizons_ms: dict[str, int], most: int = PLENTY) -> Due:
    """Who is due, by group, with the clock that is noted; checks that each group stands together."""
    keys, noted_ms = schedule.take_due(entries, horizons_ms, most)
    found: Due = {}
    for group_id, of_group in keys.stretches():
        state_keys = map(split_head_key, keys.state_keys.slice(of_group.start, of_group.stop).to_list())
        clocks_ms = [None if clock_ms == NOT_NOTED else clock_ms for clock_ms in noted_ms[of_group].tolist()]
        found[group_id] = [(key, clock_ms) for (_, key), clock_ms in zip(state_keys, clocks_ms, strict=True)]
    written = [(group_id, key) for group_id, due in found.items() for key, _ in due]
    assert [*map(split_head_key, keys.state_keys.to_list())] == written
    return found


def chunk_entries(state_key: bytes, chunk: bytes) -> list[tuple[bytes, int]]:
    """Where the heads of the keys of a chunk lie, each with the clock that is noted of it."""
    keys, noted_ms, _ = read_chunks(ByteStrings.of([chunk]), ByteStrings.of([state_key[:GROUP_BYTES]]))
    return list(zip(keys.to_list(), noted_ms.tolist(), strict=True))


def save(schedule: EvictionSchedule, entries: CountedEntries, *live: str) -> None:
    """Write the schedule, with the voters."""
    schedule.save(entries, (*live, CROWD))


def slot_end_ms(clock_ms: int, horizon_ms: int) -> int:
    """The first multiple of an eighth of the horizon after a clock."""
    step_ms = max(1, horizon_ms // 8)
    return next(moment for moment in count(clock_ms + 1) if moment % step_ms == 0)


def entered(entries: CountedEntries) -> Counter[tuple[str, str]]:
    """Who stands in the chunks; checks that those are exactly the chunks that the overview counts."""
    if OVERVIEW not in entries.data:
        assert not entries.data
        return Counter()
    found: Counter[tuple[str, str]] = Counter()
    counted = {OVERVIEW, CLOCK}
    for group_id, slots in json.loads(entries.data[OVERVIEW])["slots"].items():
        for until_ms, keys in slots.items():
            sizes = [min(CHUNK, keys - first) for first in range(0, keys, CHUNK)]
            assert sizes
            for number, size in enumerate(sizes):
                state_key = head_key(group_id, f"{until_ms}/{number}")
                chunk = chunk_entries(state_key, entries.data[state_key])
                assert len(chunk) == size
                found.update(split_head_key(key) for key, _ in chunk)
                counted.add(state_key)
    assert counted == entries.data.keys()
    return found


class Model:
    """Who is entered where, beside the schedule of a shard that does the same."""

    def __init__(self, start_ms: int) -> None:
        self.entries = CountedEntries()
        self.schedule = EvictionSchedule.load(self.entries)
        self.horizons_ms = {ONE: 40, OTHER: 100}
        self.clock_ms = start_ms
        self.new: dict[tuple[str, str], int] = {}
        self.slots: dict[tuple[str, str], int] = {}
        self.noted_ms: dict[tuple[str, str], int | None] = {}
        advance(self.schedule, start_ms)

    def enter(self, group_id: str, ago_ms: int, keys: int) -> None:
        if group_id in self.horizons_ms:
            first, clock_ms = len(self.new) + len(self.slots), self.clock_ms - ago_ms
            names = [f"é{first + number}-{self.clock_ms}" for number in range(keys)]
            names = [name for name in names if (group_id, name) not in self.new.keys() | self.slots.keys()]
            enter(self.schedule, group_id, names, clock_ms, self.horizons_ms[group_id])
            lags = clock_ms < self.clock_ms - self.horizons_ms[group_id]
            until_ms = slot_end_ms(self.clock_ms if lags else clock_ms, self.horizons_ms[group_id])
            self.noted_ms |= {(group_id, name): clock_ms if lags else None for name in names}
            self.new |= {(group_id, name): until_ms for name in names}

    def advance(self, by_ms: int) -> None:
        self.clock_ms += by_ms
        advance(self.schedule, self.clock_ms)

    def horizons(self, *horizons_ms: int | None) -> None:
        self.horizons_ms = {
            group_id: horizon_ms
            for group_id, horizon_ms in zip((ONE, OTHER), horizons_ms, strict=True)
            if horizon_ms is not None
        }

    def due(self) -> set[tuple[str, str]]:
        """Those whose slot the clock has passed by the horizon, and those of groups that are no more."""
        return {
            (group_id, key)
            for (group_id, key), until_ms in self.slots.items()
            if group_id not in self.horizons_ms or until_ms + self.horizons_ms[group_id] < self.clock_ms
        }

    def take(self, most: int) -> None:
        due = self.due()
        found = take(self.schedule, self.entries, self.horizons_ms, most)
        taken = [(group_id, key) for group_id, keys in found.items() for key, _ in keys]
        for group_id, keys in found.items():
            assert all(self.noted_ms[group_id, key] == noted_ms for key, noted_ms in keys)
        assert len(taken) == len(set(taken))
        assert set(taken) <= due
        assert min(most, len(due)) <= len(taken) < most + CHUNK
        for each in taken:
            del self.slots[each]

    def save(self, is_last: bool) -> None:
        """Write the schedule; after the last batch of a run, another run reads it."""
        save(self.schedule, self.entries, *self.horizons_ms)
        self.slots |= self.new
        self.new = {}
        assert entered(self.entries) == Counter(list(self.slots))
        if is_last:
            self.schedule = EvictionSchedule.load(self.entries)


@settings(max_examples=examples(400))
@given(st.sampled_from([-1_000, 0, 1_700_000_000_000]), st.lists(STEPS, max_size=60))
def test_keys_are_taken_once_and_only_when_their_slot_is_due_whatever_happens_between(start_ms, steps):
    with mock.patch.object(schedule_module, "CHUNK_KEYS", CHUNK):
        model = Model(start_ms)
        for name, *arguments in steps:
            getattr(model, name)(*arguments)
        model.save(True)
        model.advance(100_000)
        model.take(PLENTY)
        model.save(True)
        assert not model.slots
        assert model.entries.data.keys() == {OVERVIEW, CLOCK}


@settings(max_examples=examples(200))
@given(st.sampled_from([-1_000, 0, 1_700_000_000_000]), st.lists(STEPS, max_size=60), st.integers(1, 20))
def test_a_schedule_that_this_process_has_left_goes_on_as_the_one_that_is_read(start_ms, steps, most):
    with mock.patch.object(schedule_module, "CHUNK_KEYS", CHUNK):
        models = [Model(start_ms), Model(start_ms)]
        begun = [("enter", group_id, 0, 2) for group_id in (ONE, OTHER)]  # Not in the order in which they are written.
        for name, *arguments in [*begun, *steps, ("advance", 100_000), *[("take", most)] * 5]:
            for model, left in zip(models, (64, 0), strict=True):
                getattr(model, name)(*arguments)
                model.save(False)
                with mock.patch.object(schedule_module, "MOST_LEFT", left):
                    model.schedule.leave(model.entries, [*model.horizons_ms, CROWD])
                before, model.schedule = model.schedule, EvictionSchedule.load(model.entries)
                assert (model.schedule is before) == (left > 0)
            assert models[0].entries.data == models[1].entries.data


@settings(max_examples=examples(100))
@given(st.integers(0, 40), st.integers(1, 10))
def test_what_is_left_over_stays_due_and_comes_next(keys, most):
    with mock.patch.object(schedule_module, "CHUNK_KEYS", CHUNK):
        entries = CountedEntries()
        schedule = EvictionSchedule()
        for number in range(keys):
            enter(schedule, ONE, [f"k{number}"], number, 16)
        advance(schedule, 1_000)
        save(schedule, entries, ONE)
        taken: list[tuple[str, int | None]] = []
        for _ in range(-(-keys // most)):
            schedule = EvictionSchedule.load(entries)
            taken += take(schedule, entries, {ONE: 16}, most).get(ONE, [])
            save(schedule, entries, ONE)
        assert Counter(taken) == Counter((f"k{number}", None) for number in range(keys))


@pytest.mark.parametrize("clock_ms", [-1_700_000_000_001, -1_000, -1, 0, 1, 999, 1_700_000_000_000])
def test_a_key_falls_due_when_the_clock_has_passed_its_slot_by_the_horizon(clock_ms):
    horizon_ms = 800
    due_ms = slot_end_ms(clock_ms, horizon_ms) + horizon_ms + 1
    assert clock_ms + horizon_ms < due_ms <= clock_ms + horizon_ms + 101
    entries, schedule = CountedEntries(), EvictionSchedule()
    enter(schedule, ONE, ["k"], clock_ms, horizon_ms)
    advance(schedule, due_ms - 1)
    save(schedule, entries, ONE)
    assert take(schedule, entries, {ONE: horizon_ms}) == {}
    advance(schedule, due_ms)
    assert take(schedule, entries, {ONE: horizon_ms}) == {ONE: [("k", None)]}


VISITED = st.lists(
    st.tuples(
        st.sampled_from([ONE, OTHER, CROWD]),
        st.one_of(st.just(NO_CLOCK), st.integers(-60, 60)),
        st.one_of(st.just(NOT_NOTED), st.just(NO_CLOCK), st.integers(-60, 60)),
    ),
    max_size=12,
)


@settings(max_examples=examples(300))
@given(VISITED, st.integers(-40, 80))
def test_visited_keys_stay_as_each_of_them_would_alone(visited, shard_ms):
    """CROWD is a group that is gone."""
    horizons_ms = {ONE: 40, OTHER: 17}
    visited = sorted(visited, key=lambda each: each[0])
    group_ids = [*dict.fromkeys(group_id for group_id, _, _ in visited)]
    entries, schedule = CountedEntries(), EvictionSchedule()
    advance(schedule, shard_ms)
    names = [f"k{number}" for number in range(len(visited))]
    state_keys = [head_key(group_id, name) for (group_id, _, _), name in zip(visited, names, strict=True)]
    groups = np.array([group_ids.index(group_id) for group_id, _, _ in visited], np.int64)
    clocks_ms = np.array([NO_CLOCK if each[0] == CROWD else each[1] for each in visited], np.int64)
    noted_ms = np.array([noted_ms for _, _, noted_ms in visited], np.int64)
    due = Scheduled(GroupedKeys(group_ids, groups, ByteStrings.of(state_keys)), noted_ms)
    stays = schedule.enter_visited(due, clocks_ms, horizons_ms)
    save(schedule, entries, ONE, OTHER)
    expected, evicted_ms, slots = [], {}, {}
    for (group_id, clock_ms, before_ms), name in zip(visited, names, strict=True):
        is_known, horizon_ms = group_id != CROWD and clock_ms != NO_CLOCK, horizons_ms.get(group_id, 0)
        is_noted, is_within = before_ms != NOT_NOTED, clock_ms >= shard_ms - horizon_ms
        if is_known and (is_within or (is_noted and clock_ms > before_ms)):
            until_ms = slot_end_ms(clock_ms if is_within else shard_ms, horizon_ms)
            slots.setdefault((group_id, until_ms), []).append((name, NOT_NOTED if is_within else clock_ms))
        elif is_known and not is_noted:
            slots.setdefault((group_id, slot_end_ms(shard_ms, horizon_ms) - horizon_ms), []).append((name, clock_ms))
        elif is_known:
            evicted_ms[group_id] = max(clock_ms, evicted_ms.get(group_id, clock_ms))
        expected.append(is_known and (is_within or not is_noted or clock_ms > before_ms))
    assert stays.tolist() == expected
    assert schedule.evicted_until_ms == evicted_ms
    chunks = {key: chunk_entries(key, data) for key, data in entries.data.items() if key not in (OVERVIEW, CLOCK)}
    assert {at: sorted(chunk) for at, chunk in chunks.items()} == {
        head_key(group_id, f"{until_ms}/0"): sorted((head_key(group_id, key), noted_ms) for key, noted_ms in chunk)
        for (group_id, until_ms), chunk in slots.items()
    }


def test_nothing_of_a_live_group_is_due_before_enough_keys_say_how_late_it_is():
    entries, schedule = CountedEntries(), EvictionSchedule()
    enter(schedule, ONE, ["k"], 5, 8)
    save(schedule, entries, ONE)
    assert take(EvictionSchedule.load(entries), entries, {ONE: 8}) == {}


def test_keys_of_a_group_that_is_no_more_are_due_at_once():
    entries, schedule = CountedEntries(), EvictionSchedule()
    enter(schedule, ONE, ["k"], 5, 1_000)
    enter(schedule, OTHER, ["l"], 5, 1_000)
    save(schedule, entries, ONE, OTHER)
    assert schedule.clock.time_ms is None
    assert take(schedule, entries, {ONE: 1_000}) == {OTHER: [("l", None)]}


def test_what_was_evicted_is_remembered_with_its_group_and_forgotten_with_it():
    entries, schedule = CountedEntries(), EvictionSchedule()
    for until_ms in (5, 9, 7):
        schedule.note_evicted(ONE, until_ms)
    schedule.note_evicted(OTHER, -3)
    schedule.save(entries, [ONE, OTHER])
    again = EvictionSchedule.load(entries)
    assert again.evicted_until_ms == {ONE: 9, OTHER: -3}
    again.save(entries, [OTHER])
    assert EvictionSchedule.load(entries).evicted_until_ms == {OTHER: -3}


def test_a_batch_that_changes_nothing_writes_nothing():
    entries, schedule = CountedEntries(), EvictionSchedule()
    enter(schedule, ONE, ["k"], 5, 8_000)
    advance(schedule, 2_000)
    save(schedule, entries, ONE)
    writes = entries.writes
    for _ in range(3):
        schedule = EvictionSchedule.load(entries)
        assert take(schedule, entries, {ONE: 8_000}) == {}
        save(schedule, entries, ONE)
    assert entries.writes == writes
    advance(schedule, 3_000)
    save(schedule, entries, ONE)
    assert entries.writes == writes + 1


def test_a_schedule_of_a_later_release_is_refused_in_one_line(as_worded):
    entries = CountedEntries()
    EvictionSchedule().save(entries, [])
    later = json.loads(entries.data[OVERVIEW]) | {"version": 99}
    entries.put([(OVERVIEW, json.dumps(later).encode())])
    with pytest.raises(BucketsError, check=as_worded) as error:
        EvictionSchedule.load(entries)
    assert "\n" not in error.value.message


@given(st.sampled_from([ONE, OTHER]), st.text())
def test_a_head_lies_where_its_group_and_key_can_be_read_again(group_id, key):
    assert split_head_key(head_key(group_id, key)) == (group_id, key)
