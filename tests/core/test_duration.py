"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.duration import (
    LONGEST_MS,
    MS_PER_UNIT,
    format_duration,
    parse_duration_ms,
    rounded_duration,
    spoken_duration,
)


@given(st.one_of(st.integers(0, LONGEST_MS), st.integers(0, 3660).map(lambda days: days * 86_400_000)))
def test_reading_what_was_written_gives_the_duration_back(milliseconds):
    assert parse_duration_ms(format_duration(milliseconds)) == milliseconds


@given(st.integers(0, 3660), st.sampled_from(list(MS_PER_UNIT)))
def test_a_duration_is_its_number_times_its_unit(number, unit):
    assert parse_duration_ms(f"{number}{unit}") == number * MS_PER_UNIT[unit]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (250, "250ms"), (90_000, "90s"), (300_000, "5m"), (86_400_000, "24h"), (172_800_000, "2d")],
)
def test_a_duration_is_written_with_its_largest_unit_and_one_day_as_24h(milliseconds, text):
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "+5m", "1.5h", "5M", "5min", "5m\n5m", 5, 5.0, None])
def test_anything_else_is_refused_with_examples(text, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_duration_ms(text)


def test_ten_years_are_the_longest_duration(as_worded):
    assert parse_duration_ms("3660d") == LONGEST_MS
    with pytest.raises(ValueError, check=as_worded):
        parse_duration_ms("316224001s")


def test_digits_are_ascii(as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_duration_ms("\N{ARABIC-INDIC DIGIT FIVE}m")


@pytest.mark.parametrize(
    ("milliseconds", "rounded", "spoken"),
    [
        (1, "1 ms", "0.001 s"),
        (1_499, "1 s", "1 s"),
        (90_000, "2 min", "1 min 30 s"),
        (7_500_000, "2 h", "2 h 5 min"),
        (86_400_000 + 1_000, "1 d", "1 d 1 s"),
        (1_000 * 86_400_000, "1,000 d", "1,000 d"),
    ],
)
def test_a_duration_is_said_in_its_largest_unit_or_in_two(milliseconds, rounded, spoken):
    assert rounded_duration(milliseconds) == rounded
    assert spoken_duration(milliseconds) == spoken
    assert spoken_duration(-60_000 * milliseconds).startswith("-")
