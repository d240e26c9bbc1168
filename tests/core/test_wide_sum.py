"""Sums beyond 64 bits, against Python's integers."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.compiled import compiled
from buckets.numbers.wide_sum import divide, is_negative, join, join_within, share, times
from tests.core.cells import GREATEST, INT64S, LEAST, LOW_MASK
from tests.laws import examples
from tests.oracle import fits

# As they run inside kernels: compiled.
divide, is_negative, join, join_within, share, times = map(
    compiled, (divide, is_negative, join, join_within, share, times)
)

NUMBERS = st.one_of(
    INT64S,
    st.integers(-(2**93), 2**93),
    st.sampled_from([sign * (2**63 + beside) for sign in (1, -1) for beside in (-2, -1, 0, 1, 2)]),
)
WIDTHS = st.one_of(st.integers(1, 12), st.integers(1, 2**31 - 1), st.sampled_from([2, 60_000, 604_800_000, 2**31 - 1]))


def pair(number: int) -> tuple[int, int]:
    return number >> 32, number & LOW_MASK


def meant(high: int, low: int) -> int:
    return (int(high) << 32) + int(low)


@settings(max_examples=examples(300))
@given(st.lists(NUMBERS, max_size=8), st.lists(NUMBERS, max_size=8))
def test_sums_and_differences_member_by_member_are_exact_or_do_not_fit(added, taken):
    high = sum(pair(number)[0] for number in added) - sum(pair(number)[0] for number in taken)
    low = sum(pair(number)[1] for number in added) - sum(pair(number)[1] for number in taken)
    exact = sum(added) - sum(taken)
    assert join(high, low) == ((exact, True) if fits(exact) else (0, False))
    assert join_within(high, low) == min(max(exact, LEAST), GREATEST)


@settings(max_examples=examples(500))
@given(NUMBERS, WIDTHS, st.data())
def test_a_share_is_the_exact_part_rounded_half_even(number, width, data):
    part = data.draw(st.one_of(st.integers(0, width), st.sampled_from([0, width // 2, width])))
    assert meant(*share(*pair(number), part, width)) == round(Fraction(number * part, width))


@given(NUMBERS, st.integers(-(2**20), 2**20), WIDTHS)
def test_the_share_of_a_pair_that_is_not_normal_is_that_of_its_number(number, moved, width):
    high, low = pair(number)
    assert meant(*share(high - moved, low + (moved << 32), width // 2, width)) == round(
        Fraction(number * (width // 2), width)
    )


@given(NUMBERS, st.integers(-(2**20), 2**20), WIDTHS)
def test_a_number_is_divided_exactly(number, moved, divisor):
    high, low = pair(number)
    *quotient, rest = divide(high - moved, low + (moved << 32), divisor)
    assert (meant(*quotient), rest) == divmod(number, divisor)
    assert is_negative(high - moved, low + (moved << 32)) == (number < 0)


@given(NUMBERS, WIDTHS)
def test_the_whole_and_nothing_are_shares(number, width):
    assert meant(*share(*pair(number), width, width)) == number
    assert meant(*share(*pair(number), 0, width)) == 0


@pytest.mark.parametrize(("number", "expected"), [(1, 0), (2, 1), (3, 2), (5, 2), (-1, 0), (-3, -2), (-5, -2)])
def test_halves_go_to_the_even_number(number, expected):
    assert meant(*share(*pair(number), 1, 2)) == expected


@given(INT64S, st.one_of(st.integers(0, 100), st.integers(0, 2**31 - 1)))
def test_a_number_times_a_count_is_exact(number, count):
    assert meant(*times(number, count)) == number * count
