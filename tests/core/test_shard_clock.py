"""The clock of a shard: the vote of many keys, which a few wild dates do not move."""

import zlib
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.engine.eviction import shard_clock
from buckets.engine.eviction.shard_clock import QUORUM, VOTERS, ShardClock
from buckets.engine.storage.shard_store import head_keys
from buckets.timeline.head import NO_CLOCK

ONE, OTHER = "11" * 8, "0f" * 8
NOW_MS, YEARS_AHEAD_MS = 1_700_000_000_000, 4_000_000_000_000
TIMES_MS = st.one_of(st.integers(-(10**14), 10**14), st.just(NO_CLOCK))
VOTES = st.lists(
    st.tuples(st.sampled_from([ONE, OTHER]), st.dictionaries(st.text(max_size=3), TIMES_MS, max_size=80)), max_size=6
)


def note(clock: ShardClock, group_id: str, clocks_ms: dict[str, int]) -> None:
    state_keys, moments_ms = ByteStrings.of(head_keys(group_id, clocks_ms)), np.array([*clocks_ms.values()], np.int64)
    group_start = np.array([0, state_keys.size])
    group_start.flags.writeable = False  # as a batch has it: another kind of array would compile the kernel again
    clock.note([group_id], group_start, state_keys, moments_ms)


def usual(keys: int, moment_ms: int = NOW_MS, first: int = 0) -> dict[str, int]:
    return {f"k{first + number}": moment_ms + number for number in range(keys)}


def test_without_enough_keys_there_is_no_clock():
    clock = ShardClock()
    assert clock.time_ms is None
    note(clock, ONE, usual(QUORUM - 1))
    note(clock, OTHER, usual(QUORUM - 1))
    assert clock.time_ms is None
    note(clock, ONE, usual(QUORUM))
    assert clock.time_ms == NOW_MS + (QUORUM - 1) // 2


def test_one_key_with_wild_dates_moves_nothing_however_many_events_it_has():
    clock, alone = ShardClock(), ShardClock()
    note(clock, ONE, usual(40))
    note(alone, ONE, usual(40))
    for number in range(1_000):
        note(clock, ONE, {"wild": YEARS_AHEAD_MS + number})
    assert alone.time_ms is not None
    assert clock.time_ms is not None
    assert alone.time_ms <= clock.time_ms <= alone.time_ms + 1


def test_an_event_with_a_wild_date_has_one_vote_in_each_group():
    clock = ShardClock()
    for number in range(20):
        note(clock, f"{number:016x}", usual(QUORUM, first=100 * number) | {"wild": YEARS_AHEAD_MS})
    assert clock.time_ms is not None
    assert clock.time_ms < NOW_MS + QUORUM


@given(st.integers(QUORUM, VOTERS), st.randoms())
def test_fewer_than_half_of_the_voters_do_not_move_it_beyond_the_others(keys, random):
    votes = list((usual(keys) | {f"w{n}": YEARS_AHEAD_MS for n in range((keys - 1) // 2)}).items())
    random.shuffle(votes)
    clock = ShardClock()
    for key, moment_ms in votes:
        note(clock, ONE, {key: moment_ms})
    wild = sum(moment_ms == YEARS_AHEAD_MS for _, moment_ms in votes[-VOTERS:])
    assert clock.time_ms is not None
    assert (clock.time_ms == YEARS_AHEAD_MS) == (wild > min(VOTERS, len(votes)) // 2)


def test_when_all_dates_have_been_wild_for_a_while_it_comes_back():
    clock = ShardClock()
    note(clock, ONE, usual(VOTERS, YEARS_AHEAD_MS))
    assert clock.time_ms is not None
    assert clock.time_ms >= YEARS_AHEAD_MS
    note(clock, ONE, usual(VOTERS, NOW_MS, first=VOTERS // 2))
    assert clock.time_ms < NOW_MS + VOTERS


def test_it_follows_the_keys_that_had_events_last():
    clock = ShardClock()
    for hour in range(50):
        moment_ms = NOW_MS + hour * 3_600_000
        note(clock, ONE, usual(VOTERS, moment_ms, first=hour * 10))
        assert clock.time_ms == moment_ms + VOTERS // 2


def test_keys_without_an_event_that_counted_do_not_vote():
    clock = ShardClock()
    note(clock, ONE, usual(QUORUM - 1) | {"none": NO_CLOCK})
    assert clock.time_ms is None


@given(VOTES, st.integers(1, 5))
def test_the_keys_that_had_events_last_vote_each_with_its_last_clock(votes, voters):
    with mock.patch.object(shard_clock, "VOTERS", voters):
        clock, model = ShardClock(), dict[str, dict[int, int]]()
        for group_id, clocks_ms in votes:
            note(clock, group_id, clocks_ms)
            of_group = model.setdefault(group_id, {})
            for key, clock_ms in [each for each in clocks_ms.items() if each[1] != NO_CLOCK][-voters:]:
                of_group.pop(zlib.crc32(key.encode()), None)
                of_group[zlib.crc32(key.encode())] = clock_ms
            model[group_id] = dict([*of_group.items()][-voters:])
    assert clock.voters == {group_id: [*of_group.items()] for group_id, of_group in model.items()}
    assert ShardClock.of_voters(clock.voters).to_bytes() == clock.to_bytes()


@given(VOTES)
def test_it_is_read_as_it_was_written(votes):
    clock = ShardClock()
    for group_id, clocks_ms in votes:
        note(clock, group_id, clocks_ms)
    again = ShardClock.from_bytes(clock.to_bytes())
    assert again.time_ms == clock.time_ms
    assert again.to_bytes() == clock.to_bytes()


def test_voters_of_groups_that_went_are_forgotten():
    clock = ShardClock()
    note(clock, ONE, usual(QUORUM))
    note(clock, OTHER, usual(QUORUM, YEARS_AHEAD_MS))
    clock.keep([ONE])
    again = ShardClock.from_bytes(clock.to_bytes())
    assert again.time_ms is not None
    assert again.time_ms < YEARS_AHEAD_MS
