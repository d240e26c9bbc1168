"""What has arrived as stretches of time, and since when a later history is complete, against all times one by one."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from buckets.rules.completeness import (
    ALWAYS_MS,
    DAY_MS,
    MOST_STRETCHES,
    Since,
    Stretch,
    as_arrays,
    at,
    complete_behind,
    joined,
    later,
    stretches_of,
)

YEAR_MS = 365 * DAY_MS
TIMES_MS = st.lists(
    st.builds(
        lambda year, day, rest: year * YEAR_MS + day * DAY_MS + rest,
        st.integers(-20, 20),
        st.integers(0, 5),
        st.sampled_from([-1, 0, 1, 500]),
    ),
    max_size=30,
)
STRETCHES = TIMES_MS.filter(bool).map(lambda times: stretches_of(np.array(times, np.int64)))
HISTORIES = st.one_of(
    st.builds(complete_behind, STRETCHES, st.sampled_from([1, -DAY_MS, -400 * DAY_MS]), st.sampled_from([0, DAY_MS])),
    st.just((Since(ALWAYS_MS, ALWAYS_MS),)),
)
MOMENTS_MS = st.integers(-25 * YEAR_MS, 25 * YEAR_MS)


@given(TIMES_MS)
def test_stretches_hold_every_time_and_begin_and_end_with_one(times):
    found = stretches_of(np.array(times, np.int64))
    assert len(found) <= MOST_STRETCHES
    assert all(any(first <= time <= last for first, last in found) for time in times)
    assert {moment for stretch in found for moment in stretch} <= set(times)
    assert all(after.first_ms - before.last_ms > DAY_MS for before, after in pairwise(found))


@given(st.lists(TIMES_MS, max_size=5))
def test_stretches_of_parts_hold_what_those_of_the_whole_hold(parts):
    found = joined(stretch for part in parts for stretch in stretches_of(np.array(part, np.int64)))
    times = [time for part in parts for time in part]
    assert all(any(first <= time <= last for first, last in found) for time in times)
    assert [found[0].first_ms, found[-1].last_ms] == [min(times), max(times)] if times else not found
    assert len(found) <= MOST_STRETCHES


def test_a_stream_is_one_stretch_and_a_wild_date_is_another():
    hours = np.arange(0, 30 * DAY_MS, 3_600_000)
    assert stretches_of(hours) == (Stretch(0, int(hours[-1])),)
    assert stretches_of(np.append(hours, 70 * YEAR_MS)) == (
        Stretch(0, int(hours[-1])),
        Stretch(70 * YEAR_MS, 70 * YEAR_MS),
    )


@given(TIMES_MS.filter(bool), MOMENTS_MS, st.integers(0, 800 * DAY_MS), st.sampled_from([0, DAY_MS]))
def test_a_complete_window_holds_no_time_that_had_arrived_before(times, moment_ms, length_ms, lateness_ms):
    """Of any key: its clock had come to one of those times, none of which lies further ahead than the lateness."""
    begun = complete_behind(stretches_of(np.array(times, np.int64)), 1, lateness_ms)
    if moment_ms - length_ms >= at(begun, moment_ms):
        reachable = [time for time in times if time <= moment_ms + lateness_ms]
        assert all(time < moment_ms - length_ms for time in reachable)


@given(TIMES_MS.filter(bool), st.integers(1, 100))
def test_after_the_first_stretch_a_wild_date_makes_no_difference(times, days):
    latest = max(times)
    wild = stretches_of(np.array([*times, latest + 80 * YEAR_MS], np.int64))
    usual = stretches_of(np.array(times, np.int64))
    moment_ms = latest + days * DAY_MS
    if len(usual) < MOST_STRETCHES:
        assert at(complete_behind(wild, 1, 0), moment_ms) == at(complete_behind(usual, 1, 0), moment_ms)


@given(HISTORIES, HISTORIES, MOMENTS_MS)
def test_what_is_complete_in_both_is_complete_in_each(one, other, moment_ms):
    both = later(one, other)
    assert at(both, moment_ms) >= max(at(one, moment_ms), at(other, moment_ms))
    assert len(both) <= MOST_STRETCHES
    assert both[0].from_ms == ALWAYS_MS
    if len({since.from_ms for since in (*one, *other)}) <= MOST_STRETCHES:
        assert at(both, moment_ms) == max(at(one, moment_ms), at(other, moment_ms))


@given(st.lists(HISTORIES, max_size=4), MOMENTS_MS)
def test_arrays_say_the_same(many, moment_ms):
    from_ms, since_ms = as_arrays(many)
    step = int(np.searchsorted(from_ms, moment_ms, side="right")) - 1
    assert since_ms.shape == (len(many), len(from_ms))
    assert since_ms[:, step].tolist() == [at(each, moment_ms) for each in many]
