"""What a job needs follows from its events: more of anything never needs less, and all numbers are ones."""

from dataclasses import replace
from math import isfinite

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.size.constants import FITTED, TERM_WORDS, State, batch_amounts, different, is_paged, read_constants
from buckets.size.forecast import LIMITS, Forecast, forecast
from buckets.size.workload import Cluster, Width, Workload
from tests.core.size.workloads import CONSTANTS, DAY_MS, HOUR_MS, STORED, grouping, groupings, workload, workloads
from tests.laws import examples

ALMOST = 1 + 1e-6


def needs(found: Forecast) -> dict[str, float]:
    """All that a job needs, which more work never makes less."""
    return {
        "cores": found.cores,
        "memory": found.memory_bytes,
        "state": found.state.state_bytes,
        "duration": found.duration_s,
        "put": found.put_bytes_s,
    }


def assert_no_less(more: Workload, less: Workload, *names: str) -> None:
    needed, before = (needs(forecast(each, CONSTANTS)) for each in (more, less))
    for name in names:
        assert needed[name] * ALMOST >= before[name], name


@settings(max_examples=examples(400), deadline=None)
@given(workloads())
def test_all_numbers_are_positive(given_workload):
    found = forecast(given_workload, CONSTANTS)
    for number in (*needs(found).values(), found.delay_s, found.period_s, found.python_cores, found.jvm_cores):
        assert isfinite(number)
        assert number > 0
    assert all(amount >= 0 and isfinite(amount) for amount in found.batch.amounts.model_dump().values())
    for logged, remembered in zip(found.state.logged, found.state.remembered, strict=True):
        assert 0 <= logged <= remembered <= 1
    assert found.bill
    busy = found.python_cores + found.jvm_cores
    assert sum(item.cores for item in found.bill) == pytest.approx(busy)
    assert found.limits == sorted(found.limits, key=lambda limit: -limit.used)
    if found.keeps_up:
        assert found.duration_s <= found.period_s * 1.001


@settings(max_examples=examples(400), deadline=None)
@given(workloads(), st.floats(1, 1000))
def test_a_higher_rate_needs_no_less(given_workload, factor):
    faster = replace(given_workload, rate=given_workload.rate * factor)
    assert_no_less(faster, given_workload, "state")
    paged = any(is_paged(grouping.kept(faster.rate)) for grouping in faster.groupings)
    if given_workload.most_rows is None and not paged:  # what goes into a page leaves the memory, and is not rewritten
        assert_no_less(faster, given_workload, "cores", "duration", "memory")


def test_the_first_page_of_timelines_leaves_the_memory():
    of_bucket = grouping(keys=1_000, tail_ms=0, widths=(Width(0, DAY_MS, DAY_MS // 200),))
    unpaged, paged = (forecast(workload(of_bucket, rate=rate), CONSTANTS) for rate in (7, 70))
    assert [is_paged(found.state.kept[0]) for found in (unpaged, paged)] == [False, True]
    assert paged.state.state_bytes > unpaged.state.state_bytes
    assert paged.state.memory_bytes < unpaged.state.memory_bytes


@settings(max_examples=examples(400), deadline=None)
@given(workloads(), st.floats(1, 1000))
def test_more_keys_need_no_less(given_workload, factor):
    more = [replace(each, keys=each.keys * factor) for each in given_workload.groupings]
    assert_no_less(replace(given_workload, groupings=tuple(more)), given_workload, "state")


@settings(max_examples=examples(400), deadline=None)
@given(st.floats(1, 1e9), st.floats(1, 1000), st.floats(0.1, 1e6), st.integers(0, 1 << 40))
def test_among_more_keys_more_are_different_and_more_are_cold(keys, factor, rate, log_bytes):
    fewer, more = (
        forecast(workload(grouping(keys=each), rate=rate, log_bytes=log_bytes), CONSTANTS)
        for each in (keys, keys * factor)
    )
    assert more.batch.amounts.keys * ALMOST >= fewer.batch.amounts.keys
    assert more.batch.amounts.cold * ALMOST >= fewer.batch.amounts.cold - 1e-6
    assert more.remembered <= fewer.remembered * ALMOST


@settings(max_examples=examples(400), deadline=None)
@given(workloads(), groupings())
def test_one_more_grouping_needs_no_less(given_workload, other):
    more = replace(given_workload, groupings=(*given_workload.groupings, other))
    assert_no_less(more, given_workload, "cores", "memory", "state", "duration")


@pytest.mark.parametrize(("keys", "events"), [(1, 5), (10, 3), (50, 200), (1_000, 1_000)])
def test_different_keys_among_events_are_those_of_random_draws(keys, events):
    random = np.random.default_rng(1)
    drawn = [len(np.unique(random.integers(0, keys, events))) for _ in range(400)]
    assert different(keys, events) == pytest.approx(np.mean(drawn), rel=0.02)


def test_a_timeline_holds_the_events_of_its_horizon():
    kept = grouping(keys=100, tail_ms=DAY_MS).kept(rate=100 * 24 / 86_400)
    assert kept.keys == pytest.approx(100)
    assert kept.raw == pytest.approx(24)
    assert kept.buckets == 0


def test_keys_that_come_less_often_than_the_horizon_are_not_all_alive():
    kept = grouping(keys=1e9, horizon_ms=HOUR_MS, tail_ms=HOUR_MS).kept(rate=1)
    assert kept.keys == pytest.approx(3_600, rel=0.001)
    assert kept.raw == pytest.approx(1, rel=0.001)


def test_nothing_is_cold_while_the_log_has_room_for_all():
    one = workload(grouping(keys=1_000))
    state = State.of(one, STORED, [each.kept(one.rate) for each in one.groupings])
    amounts = batch_amounts(one, state, 5_000)
    assert (state.remembered, amounts.cold, amounts.moved) == ((1.0,), 0, 0)


def test_without_room_every_key_of_a_batch_is_cold():
    one = workload(grouping(keys=1e6), log_bytes=0, cache_bytes=0)
    state = State.of(one, STORED, [each.kept(one.rate) for each in one.groupings])
    amounts = batch_amounts(one, state, 5_000)
    assert amounts.cold == amounts.moved == amounts.keys


def test_batches_that_begin_when_the_last_has_ended_are_as_long_as_they_take():
    found = forecast(workload(interval_s=0.0), CONSTANTS)
    assert found.keeps_up
    assert found.duration_s == pytest.approx(found.period_s, rel=1e-3)
    assert found.delay_s == pytest.approx(1.5 * found.duration_s, rel=1e-3)


def test_a_job_without_enough_cores_does_not_keep_up():
    found = forecast(workload(interval_s=0.0, rate=1e6, cluster=Cluster(1), tasks=1), CONSTANTS)
    assert not found.keeps_up
    assert found.limits[0].used > 1


def test_a_batch_that_may_not_take_all_that_comes_does_not_keep_up():
    found = forecast(workload(rate=1_000, interval_s=5.0, most_rows=4_000), CONSTANTS)
    assert not found.keeps_up
    assert {limit.name: limit.used for limit in found.limits}["rows"] == pytest.approx(1.25)


def test_one_key_of_all_events_is_a_bound_of_its_own():
    found = forecast(workload(grouping(fields=0, keys=1.0)), CONSTANTS)
    assert "one key" in {limit.name for limit in found.limits}


@settings(max_examples=examples(100), deadline=None)
@given(workloads())
def test_all_terms_and_bounds_have_words(given_workload):
    found = forecast(given_workload, CONSTANTS)
    assert {item.name for item in found.bill} <= TERM_WORDS.keys()
    assert {limit.name for limit in found.limits} <= LIMITS.keys()


def test_the_constants_of_the_program_are_there():
    constants = read_constants(FITTED)
    assert constants.python_us.keys > 0
    assert constants.python_us.cold > 0
    assert constants.jvm_us.batches > 0
    assert constants.stored.head > 0
    assert constants.machine["cpu"]
