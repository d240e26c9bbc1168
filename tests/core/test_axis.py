"""Marks of axes: round, in order, inside, neither one nor many, and no two that say the same."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.pages.page import round_times, round_values

NUMBERS = st.fractions(-(10**12), 10**12, max_denominator=10**6)


@given(NUMBERS, st.fractions(Fraction(1, 10**6), 10**12, max_denominator=10**6))
def test_round_numbers_lie_inside_and_apart(low, size):
    found = round_values(low, low + size)
    assert 2 <= len(found) <= 6
    assert all(low <= value <= low + size for value, _ in found)
    assert len({later - value for (value, _), (later, _) in pairwise(found)}) == 1
    assert all(Fraction(text.replace(",", "")) == value for value, text in found)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0, 7, ["0", "2", "4", "6"]),
        (0, 4321, ["0", "1,000", "2,000", "3,000", "4,000"]),
        (-3, 12, ["0", "5", "10"]),
        (0, Fraction(1, 4), ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25"]),
    ],
)
def test_round_numbers_read_well(low, high, said):
    assert [text for _, text in round_values(Fraction(low), Fraction(high))] == said


@given(st.integers(-(10**13), 10**14), st.integers(0, 10**12))
def test_round_times_lie_inside_and_apart(first_ms, span_ms):
    found = round_times(first_ms, first_ms + span_ms)
    assert len(found) <= 6
    assert all(first_ms <= time_ms <= first_ms + span_ms for time_ms, _ in found)
    assert all(text != later for (_, text), (_, later) in pairwise(found))


def test_whole_numbers_have_no_fractions_between_them():
    assert [text for _, text in round_values(Fraction(0), Fraction(2), whole=True)] == ["0", "1", "2"]


def test_round_times_read_well():
    begin_ms = 1_767_225_600_000
    assert [text for _, text in round_times(begin_ms - 3_600_000, begin_ms + 5_400_000)] == [
        "12-31 23:00",
        "23:30",
        "01-01 00:00",
        "00:30",
        "01:00",
        "01:30",
    ]
    assert [text for _, text in round_times(begin_ms, begin_ms + 400)] == [
        "01-01 00:00:00.000",
        "00:00:00.100",
        "00:00:00.200",
        "00:00:00.300",
        "00:00:00.400",
    ]
    assert [text for _, text in round_times(begin_ms, begin_ms + 3 * 86_400_000)][1] == "2026-01-02"
