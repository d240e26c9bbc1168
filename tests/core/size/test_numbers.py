"""Numbers of things: what is read, and what is refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.size.forecast import amount_text, size_text
from buckets.size.workload import MOST, keys_of, parse_keys, parse_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("20000", 20_000),
        ("50M", 5e7),
        ("50m", 5e7),
        ("1.5k", 1_500),
        ("1G", 1e9),
        ("1B", 1e9),
        (" 7 ", 7),
        ("0.5", 0.5),
    ],
)
def test_numbers_are_read(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["", "0", "0.0M", "-1", "1e6", "5X", "50 MB", "1,000", "many", "nan", "1001G", "٣"])
def test_what_is_no_number_of_things_is_refused(text, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_number(text)


@given(st.integers(1, MOST))
def test_a_whole_number_is_read_as_it_is_written(number):
    assert parse_number(str(number)) == number


def test_keys_of_all_and_of_named_groupings():
    counts = parse_keys(["50M", "card=1k", "payer, card = 80M"])
    assert keys_of(counts, ["payer"]) == 5e7
    assert keys_of(counts, ["card"]) == 1_000
    assert keys_of(counts, ["card", "payer"]) == 8e7
    assert keys_of(counts, []) == 1


def test_keys_of_named_groupings_alone():
    assert keys_of(parse_keys(["card=5"]), ["payer"]) is None


@pytest.mark.parametrize("texts", [["0.5"], ["card=0"], ["=5"], ["card,=5"], ["card=x"], ["5", "6"], ["a=1", "a=2"]])
def test_keys_that_say_nothing_are_refused(texts, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        parse_keys(texts)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (4.5678, "4.57"),
        (99.95, "100"),
        (12_345, "12,300"),
        (1_530_000, "1.53M"),
        (2.5e13, "25T"),
    ],
)
def test_numbers_are_written_with_three_digits(number, text):
    assert amount_text(number) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_500_000_000, "1.5 GB"), (1.5e22, "15,000 EB")]
)
def test_sizes_are_written_with_three_digits(size, text):
    assert size_text(size) == text
