"""The average: the exact quotient, shown rounded half-even to millionths."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from buckets.compiled import compiled
from buckets.numbers.wide_sum import is_less, quotient, rounded
from tests.core.cells import LOW_MASK
from tests.laws import examples

# As they run inside kernels: compiled.
is_less, quotient, rounded = map(compiled, (is_less, quotient, rounded))

LEAST, GREATEST = -(2**63), 2**63 - 1
COUNTS = st.one_of(st.integers(1, 20), st.integers(1, 10**6), st.sampled_from([2, 64, 128, 3 * 2**7, 10**6]))
SUMS = st.one_of(
    st.integers(-1000, 1000), st.integers(LEAST, GREATEST), st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST])
)


WIDE_SUMS = st.one_of(SUMS, st.integers(-(2**93), 2**93))


def divided(summed: int, count: int) -> tuple[int, int, int]:
    """The quotient of a sum of any size: whole, rest and count."""
    whole, rest = quotient(summed >> 32, summed & LOW_MASK, count)
    assert 0 <= rest < count
    return int(whole), int(rest), count


def millionths(summed: int, count: int) -> int:
    """What is shown of a quotient, as one count of millionths."""
    whole, micro = rounded(*divided(summed, count))
    assert 0 <= micro < 10**6
    return int(whole) * 10**6 + int(micro)


@settings(max_examples=examples(500))
@given(WIDE_SUMS, COUNTS)
def test_a_quotient_is_exact_or_the_nearest_that_fits_64_bits(summed, count):
    whole, rest, _ = divided(summed, count)
    if LEAST <= summed // count <= GREATEST:
        assert whole * count + rest == summed
    else:
        assert (whole, rest) == (GREATEST if summed > 0 else LEAST, 0)


@settings(max_examples=examples(500))
@given(SUMS, COUNTS, st.data())
def test_quotients_are_told_apart_however_near_they_are(summed, count, data):
    other_count = data.draw(COUNTS)
    near = summed * other_count // count + data.draw(st.integers(-1, 1))
    other = data.draw(st.one_of(SUMS, st.just(near))) if LEAST <= near <= GREATEST else data.draw(SUMS)
    less = is_less(*divided(summed, count), *divided(other, other_count))
    assert less == (Fraction(summed, count) < Fraction(other, other_count))


@settings(max_examples=examples(1000))
@given(SUMS, COUNTS)
def test_a_quotient_is_shown_rounded_half_even(summed, count):
    assert millionths(summed, count) == round(Fraction(summed * 10**6, count))


@given(st.integers(-(10**9), 10**9), st.integers(7, 13))
def test_ties_go_to_the_even_millionth(odd, power):
    """An odd number over 2**7 or more lies between two millionths, and over 2**7 exactly halfway."""
    assume(odd % 2)
    exact = Fraction(odd * 10**6, 2**power)
    got = millionths(odd, 2**power)
    assert abs(got - exact) <= Fraction(1, 2)
    if power == 7:
        assert abs(got - exact) == Fraction(1, 2)
        assert got % 2 == 0


@pytest.mark.parametrize(
    ("summed", "count", "expected"),
    [
        (1, 128, 7812),  # 7812.5
        (3, 128, 23438),  # 23437.5
        (-1, 128, -7812),
        (-3, 128, -23438),
        (1, 3, 333_333),
        (2, 3, 666_667),
        (-2, 3, -666_667),
        (-1, 3, -333_333),
        (1_999_999, 10**6, 1_999_999),
        (2**24 - 1, 2**24, 10**6),  # 999,999.94 millionths: rounds up into the next whole
        (-1, 2**24, 0),  # just below 0: rounds up into 0
        (GREATEST, 1, GREATEST * 10**6),
        (LEAST, 1, LEAST * 10**6),
        (LEAST, 3, round(Fraction(LEAST * 10**6, 3))),
    ],
)
def test_averages_worked_out_by_hand(summed, count, expected):
    assert millionths(summed, count) == expected
