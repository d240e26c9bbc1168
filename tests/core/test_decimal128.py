"""Values as Arrow decimals against Python's exact arithmetic."""

from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.numbers.wide_sum import decimals, decimals_of

LEAST, GREATEST = -(2**63), 2**63 - 1
SCALE = 18
WHOLES = st.one_of(
    st.integers(-5, 5), st.integers(LEAST, GREATEST), st.sampled_from([LEAST, GREATEST, 2**32, -(2**32)])
)
MICROS = st.one_of(st.just(0), st.integers(0, 999_999))
ROWS = st.lists(st.tuples(WHOLES, MICROS, st.integers(6, 18)), max_size=20)


def shown(rows) -> list[Decimal]:
    wholes, micros, powers = zip(*rows, strict=True) if rows else ((), (), ())
    factors = np.array([10**power for power in powers], np.int64)
    kind = pa.decimal128(38, SCALE)
    return decimals(np.array(wholes, np.int64), np.array(micros, np.int32), factors, kind).to_pylist()


@given(ROWS)
def test_a_decimal_is_whole_units_and_millionths_times_the_factor(rows):
    with localcontext() as context:
        context.prec = 60
        expected = [Decimal(w * 10**p + m * 10 ** (p - 6)).scaleb(-SCALE) for w, m, p in rows]
    assert shown(rows) == expected


def test_millionths_carry_into_the_upper_word():
    assert shown([(18, 999_999, 18), (-1, 999_999, 18)]) == [Decimal("18.999999"), Decimal("-0.000001")]


def test_the_least_and_the_greatest_value_at_the_largest_factor():
    assert shown([(LEAST, 0, 18), (GREATEST, 999_999, 18)]) == [
        Decimal("-9223372036854775808"),
        Decimal("9223372036854775807.999999"),
    ]


SCALED = st.one_of(st.none(), WHOLES, st.integers(-(10**38) + 1, 10**38 - 1))


@given(st.lists(SCALED, max_size=20))
def test_scaled_integers_of_any_size_are_decimals_and_some_are_null(numbers):
    valid = np.array([number is not None for number in numbers], np.bool_)
    filled = [0 if number is None else number for number in numbers]
    fits = all(LEAST <= number <= GREATEST for number in filled)
    found = decimals_of(np.array(filled, np.int64 if fits else object), valid, pa.decimal128(38, SCALE))
    with localcontext() as context:
        context.prec = 60
        assert found.to_pylist() == [None if each is None else Decimal(each).scaleb(-SCALE) for each in numbers]
    found.validate(full=True)


@pytest.mark.parametrize("number", [10**38, -(10**38)])
def test_more_digits_than_a_decimal_has_room_for_are_refused_unless_they_are_null(number, as_worded):
    numbers = np.array([1, number], object)
    with pytest.raises(OverflowError, check=as_worded):
        decimals_of(numbers, None, pa.decimal128(38, 0))
    assert decimals_of(numbers, np.array([True, False]), pa.decimal128(38, 0)).to_pylist() == [1, None]
