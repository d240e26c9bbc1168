"""How precisely a time is known: by the clock alone, coarser with age, and never finer again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.compiled import compiled
from buckets.config.engine import Precision
from buckets.kernel.plan import tiers_of
from buckets.timeline.tiers import Tiers, coarsest_ms, floor_to, kept_from_ms, set_borders, width_at
from tests import oracle
from tests.laws import examples
from tests.strategies import precisions

# As they run inside kernels: compiled.
coarsest_ms, floor_to, kept_from_ms, set_borders, width_at = map(
    compiled, (coarsest_ms, floor_to, kept_from_ms, set_borders, width_at)
)

TIMES_MS = st.one_of(st.integers(-500, 500), st.integers(-(10**14), 10**14))
AGES_MS = st.one_of(st.integers(-5, 200), st.integers(-5, 10**10))
WIDTHS_MS = st.one_of(st.integers(1, 30), st.integers(1, 604_800_000))
PRECISIONS = st.one_of(st.just({"tail": "all"}), precisions()).map(Precision.model_validate)


def borders_at(tiers: Tiers, clock_ms: int) -> np.ndarray:
    borders = np.zeros(len(tiers.after_ms), np.int64)
    set_borders(borders, tiers, clock_ms)
    return borders


@given(TIMES_MS, WIDTHS_MS)
def test_a_bucket_begins_at_a_multiple_of_its_width(time_ms, width_ms):
    start_ms = floor_to(time_ms, width_ms)
    assert start_ms % width_ms == 0
    assert start_ms <= time_ms < start_ms + width_ms


@settings(max_examples=examples(300))
@given(PRECISIONS, TIMES_MS, AGES_MS)
def test_the_width_at_a_time_is_that_of_the_last_tier_whose_border_lies_after_it(precision, clock_ms, age_ms):
    tiers, time_ms = tiers_of(precision), clock_ms - age_ms
    expected = oracle.width_at(oracle.tiers_of(precision), time_ms, clock_ms)
    assert width_at(tiers, borders_at(tiers, clock_ms), time_ms) == (expected or 1)


@given(PRECISIONS, TIMES_MS)
def test_borders_are_buckets_ends_no_younger_than_their_age_and_in_order(precision, clock_ms):
    tiers = tiers_of(precision)
    borders = borders_at(tiers, clock_ms).tolist()
    for border_ms, after_ms, width_ms in zip(borders, *map(np.ndarray.tolist, tiers), strict=True):
        assert border_ms % width_ms == 0
        assert clock_ms - after_ms - width_ms < border_ms <= clock_ms - after_ms
    assert borders == sorted(borders, reverse=True)


@settings(max_examples=examples(200))
@given(PRECISIONS, TIMES_MS, AGES_MS)
def test_all_times_of_a_bucket_have_its_width(precision, clock_ms, age_ms):
    tiers, time_ms = tiers_of(precision), clock_ms - age_ms
    borders = borders_at(tiers, clock_ms)
    width_ms = int(width_at(tiers, borders, time_ms))
    start_ms = time_ms // width_ms * width_ms
    assert width_at(tiers, borders, start_ms) == width_at(tiers, borders, start_ms + width_ms - 1) == width_ms


@settings(max_examples=examples(200))
@given(PRECISIONS, TIMES_MS, AGES_MS, st.integers(0, 300))
def test_a_bucket_lies_within_one_of_every_later_clock(precision, clock_ms, age_ms, later_ms):
    tiers, time_ms = tiers_of(precision), clock_ms - age_ms
    before = int(width_at(tiers, borders_at(tiers, clock_ms), time_ms))
    after = int(width_at(tiers, borders_at(tiers, clock_ms + later_ms), time_ms))
    assert after % before == 0


@given(PRECISIONS, TIMES_MS, AGES_MS)
def test_what_is_as_young_as_the_tail_is_raw(precision, clock_ms, age_ms):
    tiers = tiers_of(precision)
    if precision.tail is None or age_ms <= precision.tail:
        assert width_at(tiers, borders_at(tiers, clock_ms), clock_ms - age_ms) == 1


@settings(max_examples=examples(200))
@given(PRECISIONS, TIMES_MS, st.integers(0, 400), st.data())
def test_every_bucket_that_an_edge_inside_the_horizon_falls_into_is_kept_whole(precision, clock_ms, horizon_ms, data):
    tiers, edge_ms = tiers_of(precision), clock_ms - data.draw(st.integers(0, horizon_ms))
    width_ms = int(width_at(tiers, borders_at(tiers, clock_ms), edge_ms))
    kept_ms = kept_from_ms(tiers, clock_ms, horizon_ms)
    assert kept_ms <= edge_ms // width_ms * width_ms
    assert clock_ms - horizon_ms - coarsest_ms(tiers) < kept_ms


@pytest.mark.parametrize(
    ("written", "coarsest"),
    [
        ({"tail": "all"}, 1),
        ({"tail": "1h"}, 60_000),
        ({"tail": "1h", "tiers": [{"after": "2d", "resolution": "1h"}]}, 3_600_000),
    ],
)
def test_the_coarsest_width_is_that_of_the_last_tier(written, coarsest):
    assert coarsest_ms(tiers_of(Precision.model_validate(written))) == coarsest


def test_tiers_worked_out_by_hand():
    """The clock stands at 00:10:30: raw to 00:08, buckets of a minute to 00:05, of five minutes before."""
    written = {"tail": "2m", "resolution": "1m", "tiers": [{"after": "5m", "resolution": "5m"}]}
    tiers = tiers_of(Precision.model_validate(written))
    minute_ms = 60_000
    borders = borders_at(tiers, 10 * minute_ms + 30_000)
    assert borders.tolist() == [8 * minute_ms, 5 * minute_ms]
    assert [int(width_at(tiers, borders, at)) for at in (8 * minute_ms, 8 * minute_ms - 1)] == [1, minute_ms]
    assert [int(width_at(tiers, borders, at)) for at in (5 * minute_ms, 5 * minute_ms - 1)] == [
        minute_ms,
        5 * minute_ms,
    ]
    assert kept_from_ms(tiers, 10 * minute_ms + 30_000, 3 * minute_ms) == 5 * minute_ms
