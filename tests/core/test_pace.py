"""Whether a job keeps up: known of simulated jobs by their rates, whatever their delay is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.monitor.pace import Moment, Pace, RecentMoments, pace_of
from tests.core.done_batches import batch
from tests.laws import examples


def job(
    come_per_s, each_s, fixed_s, *, interval_s=0.0, most=None, has_lag=True, has_delay=True, waiting=0, seconds=180
):
    """Moments of a job: events come at a rate, a batch takes all that is there, or `most`, and a time that follows."""
    moments, now_s, taken = RecentMoments(), 0.0, 0.0
    while now_s < seconds:
        there = waiting + come_per_s * now_s
        size = there - taken if most is None else min(there - taken, most)
        took_s = fixed_s + each_s * size
        came_s = (taken + size / 2 - waiting) / come_per_s
        taken += size
        done_s = now_s + took_s
        ingested = [(round(came_s * 1000), 1.0)] if has_delay and size else []
        lag = round(there - taken) if has_lag else None
        moments.add(batch(round(size), round(done_s * 1000), ingested, duration_s=took_s), lag)
        now_s = max(done_s, now_s + interval_s)
    return pace_of(moments.latest())


def test_a_job_that_keeps_up_says_so():
    pace = job(500, 0.0001, 0.05)
    assert (pace.state, pace.batch_ms) == ("keeps up", pytest.approx(53, abs=2))
    assert pace.done_per_s == pytest.approx(500, rel=0.05)


def test_a_job_is_slow_whose_delay_is_long_and_stays():
    slow = job(500, 0.0001, 7.0)
    assert slow.state == "slow"
    assert slow.delay_ms == pytest.approx(7_000 + 3_500, rel=0.2)
    assert slow.busy > 0.95


def test_a_job_that_waits_for_its_next_batch_is_slow_and_not_busy():
    waits = job(500, 0.0001, 0.1, interval_s=20.0)
    assert (waits.state, waits.busy < 0.2) == ("slow", True)


@pytest.mark.parametrize(
    "how", [{"most": 2_000}, {"most": 2_000, "has_lag": False}, {"most": 2_000, "has_delay": False}]
)
def test_a_job_that_gets_less_done_than_comes_falls_behind_with_both_rates(how):
    pace = job(1_000, 0.002, 0.1, **how)
    assert pace.state == "falls behind"
    assert pace.done_per_s == pytest.approx(488, rel=0.05)
    assert pace.come_per_s == pytest.approx(1_000, rel=0.1)


def test_batches_that_take_all_there_is_and_grow_are_of_a_job_that_falls_behind_though_its_lag_is_none():
    pace = job(1_000, 0.0014, 0.5, seconds=120)
    assert pace.state == "falls behind"


def test_a_job_that_works_off_what_has_waited_catches_up():
    assert job(100, 0.001, 0.1, most=1_000, waiting=100_000).state == "catches up"


def test_a_backlog_that_gets_no_less_is_one_that_the_job_does_not_work_off():
    assert job(900, 0.001, 0.1, most=900, waiting=200_000).state == "falls behind"


def test_a_source_that_says_neither_when_events_came_nor_how_many_wait_is_not_judged():
    assert job(1_000, 0.002, 0.1, has_lag=False, has_delay=False).state == "unknown"


def test_nothing_is_said_of_few_batches_or_little_time():
    assert pace_of([]) == pace_of([Moment(0, 1, 1, 1, 1, 1)]) == Pace()
    assert job(500, 0.0001, 7.0, seconds=30).state == "unknown"
    assert job(500, 0.0001, 0.05, seconds=15).state == "unknown"


@settings(max_examples=examples(200))
@given(
    load=st.floats(0.05, 0.8) | st.floats(1.25, 3),
    fixed_s=st.floats(0.01, 5),
    rate=st.integers(50, 20_000),
    has_lag=st.booleans(),
)
def test_a_job_falls_behind_just_where_more_comes_than_it_can_do(load, fixed_s, rate, has_lag):
    most = 20 * rate
    each_s = load * (1 - fixed_s / 20) / rate if load < 1 else load / rate
    pace = job(rate, each_s, fixed_s, most=most, has_lag=has_lag, seconds=600)
    assert (pace.state == "falls behind") == (load > 1)


@settings(max_examples=examples(200))
@given(st.lists(st.integers(500, 9_000), min_size=60, max_size=120), st.randoms(use_true_random=False))
def test_a_delay_that_only_jitters_is_not_one_that_grows(delays_ms, random):
    delays_ms = sorted(delays_ms)
    random.shuffle(delays_ms)
    steady = [5_000 + delay_ms % 500 for delay_ms in delays_ms]
    moments = [Moment(1_000 * at, 100, 1, 900, delay_ms, 0) for at, delay_ms in enumerate(steady)]
    assert pace_of(moments).state == "slow"


QUIET = [Moment(3_000 * at, 60, 3, 150, 100, 0) for at in range(20)]


def after_quiet(*batches: tuple[float, float]) -> list[Moment]:
    """Quiet moments, and then long batches one after the other: how long each takes, and how late its results are."""
    moments, now_ms = list(QUIET), QUIET[-1].time_ms
    for took_s, late_s in batches:
        now_ms += round(took_s * 1000)
        moments.append(Moment(now_ms, 100_000, 1, round(took_s * 1000), round(late_s * 1000), 0))
    return moments


def test_a_burst_is_told_by_a_few_long_batches_and_nothing_wrong_is_said_before():
    batches = [(5.0, 5.7), (17.3, 14.0), (21.9, 26.0), (21.5, 37.0), (21.3, 47.0)]
    said = [pace_of(after_quiet(*batches[:count])).state for count in range(len(batches) + 1)]
    assert said == ["keeps up", "unknown", "unknown", "unknown", "falls behind", "falls behind"]


def test_a_job_that_becomes_slow_does_not_fall_behind_while_it_does():
    batches = [(7.0, 7.1), (7.2, 10.3), (7.0, 10.4), (7.1, 10.5), (7.0, 10.7), (7.3, 10.8), (7.0, 10.5), (7.1, 10.4)]
    said = [pace_of(after_quiet(*batches[:count])).state for count in range(len(batches) + 1)]
    assert "falls behind" not in said
    assert said[-1] == "slow"
