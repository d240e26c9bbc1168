"""Ratios, z-scores and speeds: what they are at the ends of what there can be, and how accurate a speed is."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.expressions.evaluation import matching
from buckets.expressions.number_functions import (
    FASTEST_KMH,
    OF_NUMBERS,
    Numbers,
    constant,
    numbers,
    rounded,
    scaled_down,
)
from buckets.expressions.parser import parse_expression
from tests.core.conditions import away_from_zero
from tests.core.great_circle_oracle import distance_km, speed_kmh
from tests.laws import examples

MICRO = 10**6
LATITUDES = st.integers(-90 * MICRO, 90 * MICRO)
LONGITUDES = st.integers(-180 * MICRO, 180 * MICRO)
POINTS = st.tuples(LATITUDES, LONGITUDES)
ENDS = st.sampled_from([(90, 0), (-90, 7), (90, -120), (0, 180), (0, -180), (0, 0), (51, 179), (-51, -1)]).map(
    lambda point: (point[0] * MICRO, point[1] * MICRO)
)
CLOSE = st.integers(-20, 20)


def on_earth(latitude: int, longitude: int) -> tuple[int, int]:
    return max(min(latitude, 90 * MICRO), -90 * MICRO), max(min(longitude, 180 * MICRO), -180 * MICRO)


@st.composite
def points(draw):
    """Any point, one at a pole or at the antimeridian, or a few steps of 10 cm away from one of those."""
    latitude, longitude = draw(POINTS | ENDS)
    return on_earth(latitude + draw(CLOSE), longitude + draw(CLOSE)) if draw(st.booleans()) else (latitude, longitude)


@st.composite
def pairs_of_points(draw):
    """Two points: any, a few steps apart, or nearly opposite."""
    first, kind = draw(points()), draw(st.sampled_from(["any", "close", "opposite", "over the pole"]))
    if kind == "any":
        return first, draw(points())
    latitude, longitude = first
    if kind != "close":
        latitude = -latitude if kind == "opposite" else latitude
        longitude += -180 * MICRO if longitude > 0 else 180 * MICRO
    return first, on_earth(latitude + draw(CLOSE), longitude + draw(CLOSE))


def column(*values: int | None, scale: int = 6) -> Numbers:
    return numbers(pa.array(values, pa.int64()), scale)


def results(found: Numbers) -> list[Decimal | None]:
    scaled, valid = np.atleast_1d(found.scaled), np.atleast_1d(found.valid)
    return [
        scaled_down(int(each), found.scale) if is_valid else None for each, is_valid in zip(scaled, valid, strict=True)
    ]


def speeds(*rows: tuple[int | None, ...], scales: tuple[int, ...] = (6, 6, 6, 6, 3)) -> list[Decimal | None]:
    columns = [column(*each, scale=scale) for each, scale in zip(zip(*rows, strict=True), scales, strict=True)]
    return results(OF_NUMBERS["geo_speed_kmh"](*columns))


@settings(max_examples=examples(500))
@given(st.lists(st.tuples(pairs_of_points(), st.integers(1, 10**11)), min_size=1, max_size=4))
def test_a_speed_is_right_to_fourteen_digits_and_half_a_thousandth(drawn):
    rows = [(*first, *second, milliseconds) for (first, second), milliseconds in drawn]
    for row, found in zip(rows, speeds(*rows), strict=True):
        exact = speed_kmh(*(Fraction(each, MICRO) for each in row[:4]), Fraction(row[4], 1000))
        assert abs(Fraction(found) - exact) <= Fraction(1, 2000) + exact / 10**14


@given(pairs_of_points(), st.integers(0, 10**9))
def test_there_is_as_fast_as_back_and_alone_as_fast_as_among_others(pair, milliseconds):
    first, second = pair
    there, back = (*first, *second, milliseconds), (*second, *first, milliseconds)
    found = speeds(there, *[back] * 20, (None, 0, 0, 0, 0), (0, 0, 91 * MICRO, 0, 0))
    assert found == [found[0]] * 21 + [None, None]
    assert found[0] == speeds(there)[0]
    place = (constant(Decimal(each).scaleb(-6)) for each in there[:4])
    alone = OF_NUMBERS["geo_speed_kmh"](*place, constant(Decimal(milliseconds).scaleb(-3)))
    assert results(alone) == found[:1]


@given(pairs_of_points(), st.integers(0, 10**6))
def test_digits_that_are_zeros_change_nothing(pair, milliseconds):
    row = (*pair[0], *pair[1], milliseconds)
    wide = [
        Numbers(np.array([each * 10**30], object), 30 + scale, abs(each) * 10**30, np.array([True]))
        for each, scale in zip(row, (6, 6, 6, 6, 3), strict=True)
    ]
    found = speeds(row)
    assert results(OF_NUMBERS["geo_speed_kmh"](*wide)) == found
    alone = [Numbers(np.array(each.scaled[0], object), each.scale, each.largest, np.array(True)) for each in wide]
    assert results(OF_NUMBERS["geo_speed_kmh"](*alone)) == found


def test_cities():
    paris, london, sydney = (48_856_600, 2_352_200), (51_507_400, -127_800), (-33_868_800, 151_209_300)
    assert [round(distance_km(*(Decimal(each).scaleb(-6) for each in (*paris, *to)))) for to in (london, sydney)] == [
        344,
        16961,
    ]
    hour = 3_600_000
    assert speeds((*paris, *london, hour), (*paris, *sydney, 20 * hour)) == [Decimal("343.557"), Decimal("848.026")]


@pytest.mark.parametrize(
    ("row", "speed"),
    [
        ((0, 0, 0, 0, 0), "0"),
        ((0, 180 * MICRO, 0, -180 * MICRO, 0), "0"),
        ((90 * MICRO, 17, 90 * MICRO, -120 * MICRO, 0), "0"),
        ((0, 0, 0, 1, 0), FASTEST_KMH),
        ((0, 0, 90 * MICRO, 0, 1), FASTEST_KMH),
        ((0, 0, 0, 1, -1), None),
        ((0, 0, 0, 0, -1), None),
        ((90 * MICRO + 1, 0, 0, 0, 1), None),
        ((0, 180 * MICRO + 1, 0, 0, 1), None),
        ((0, 0, -90 * MICRO - 1, 0, 1), None),
        ((0, 0, 0, -(2**63), 1), None),
        ((0, 0, 0, 1, 2**63 - 1), "0"),
        ((0, 0, 0, 0, None), None),
        ((0, None, 0, 0, 1), None),
    ],
)
def test_at_one_time_one_is_in_one_place_on_the_earth(row, speed):
    assert speeds(row) == [None if speed is None else Decimal(speed)]


HUGE = st.one_of(
    st.integers(-(10**3000), 10**3000), st.integers(-(10**40), 10**40), st.integers(-(2**64), 2**64), st.integers(-9, 9)
)
ANY_NUMBERS = st.builds(
    lambda scaled, scale: Numbers(np.array([scaled], object), scale, abs(scaled), np.array([True])),
    HUGE,
    st.sampled_from([0, 2, 18, 40, 400, 3000]),
)


@settings(max_examples=examples(300))
@given(st.lists(ANY_NUMBERS, min_size=5, max_size=5))
def test_any_numbers_have_a_result_or_none(operands):
    for name, wanted in (("ratio", 2), ("zscore", 3), ("geo_speed_kmh", 5)):
        found = OF_NUMBERS[name](*operands[:wanted])
        assert all(abs(int(each)) <= found.largest for each in found.scaled)
        assert name != "geo_speed_kmh" or found.scaled.dtype == np.int64
        alone = [
            Numbers(np.array(each.scaled[0], object), each.scale, each.largest, np.array(True)) for each in operands
        ]
        assert results(OF_NUMBERS[name](*alone[:wanted])) == results(found)


@settings(max_examples=examples(300))
@given(ANY_NUMBERS, st.sampled_from([-38, -1, 0, 1, 17]))
def test_any_number_is_rounded_and_has_a_root_and_a_logarithm_or_none(number, digits):
    alone = replace(number, scaled=np.array(number.scaled[0], object), valid=np.array(True))
    small = replace(number, scaled=number.scaled % 10, largest=9)
    for function in (partial(rounded, digits=digits), *map(OF_NUMBERS.__getitem__, ("abs", "ln", "negate", "sqrt"))):
        for each in (number, small, replace(small, scaled=small.scaled.astype(np.int64))):
            found = function(each)
            assert all(abs(int(scaled)) <= found.largest for scaled in found.scaled)
        assert results(function(alone)) == results(function(number))
        of_int64 = function(replace(small, scaled=small.scaled.astype(np.int64)))
        assert results(of_int64) == results(function(small))
    exact = Fraction(int(number.scaled[0]), 10**number.scale)
    (near,) = results(rounded(number, digits))
    assert Fraction(near) == (exact if digits >= number.scale else away_from_zero(exact, digits))


@given(st.integers(), st.integers(), st.integers())
def test_a_ratio_is_a_quotient_and_a_z_score_one_of_a_difference(x, mean, deviation):
    columns = {
        name: Numbers(np.array([each], object), 2, abs(each), np.array([True]))
        for name, each in (("x", x), ("mean", mean), ("deviation", deviation))
    }
    for function, quotient in (
        ("ratio(x, deviation)", "x / deviation"),
        ("zscore(x, mean, deviation)", "(x - mean) / deviation"),
    ):
        same = f"{function} = {quotient} OR deviation = 0 AND {function} IS NULL"
        assert matching(parse_expression(same), columns, 1).to_pylist() == [True]
