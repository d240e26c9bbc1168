"""Values as Arrow decimals against Python's exact arithmetic."""

from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from buckets.numbers.decimal128 import decimals

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
