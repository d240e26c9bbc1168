"""Decimal text as scaled integers."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN, format_scaled, parse_decimal, to_scaled

INT64S = st.one_of(st.integers(-500, 500), st.integers(INT64_MIN, INT64_MAX), st.sampled_from([INT64_MIN, INT64_MAX]))
SCALES = st.integers(0, 12)


@given(INT64S, SCALES)
def test_reading_what_was_written_gives_the_number_back(scaled, scale):
    assert to_scaled(format_scaled(scaled, scale), scale) == scaled


@given(INT64S, SCALES)
def test_the_text_has_exactly_the_digits_of_its_scale_and_the_value(scaled, scale):
    text = format_scaled(scaled, scale)
    assert Decimal(text) == Decimal(f"{scaled}e-{scale}")
    assert len(text.partition(".")[2]) == scale


@given(INT64S, SCALES, st.integers(-8, 8))
def test_an_exponent_moves_the_point_and_nothing_else(scaled, scale, exponent):
    written = f"{format_scaled(scaled, scale + exponent if scale + exponent > 0 else 0)}"
    shift = -scale + max(scale + exponent, 0)
    assert to_scaled(f"{written}e{shift}", scale) == scaled


@given(st.integers(-(10**24), 10**24), st.integers(0, 20), SCALES)
def test_a_number_is_read_exactly_or_refused(digits, places, scale):
    exact = Decimal(digits).scaleb(-places)
    text = format(exact, "f")
    scaled = digits * 10 ** (scale - places) if scale >= places else None
    if scaled is None and digits % 10 ** (places - scale) == 0:
        scaled = digits // 10 ** (places - scale)
    if scaled is not None and INT64_MIN <= scaled <= INT64_MAX:
        assert to_scaled(text, scale) == scaled
    else:
        with pytest.raises(ValueError, match=r"too large|more than \d+ digits after the point"):
            to_scaled(text, scale)


@pytest.mark.parametrize("text", ["0", "-0", "+0.00", "0e9999", "0e-9999", ".0", "0."])
def test_zero_is_zero_however_it_is_written(text):
    assert to_scaled(text, 2) == 0


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1_000", "1,5", "0x1F", "NaN", "Infinity", "-inf", "٣", "1e", "e1", "--1", ".", "1\n"],
)
def test_what_is_no_plain_decimal_is_refused(text, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        to_scaled(text, 2)


def test_of_a_rule_64_characters_are_read_and_65_are_not(as_worded):
    assert parse_decimal("0" * 63 + "7") == 7
    with pytest.raises(ValueError, check=as_worded):
        parse_decimal("0" * 64 + "7")


@pytest.mark.parametrize(
    ("text", "scaled"),
    [
        ("0" * 5000 + "7", 700),
        ("-7." + "0" * 5000, -700),
        ("7" + "0" * 5000 + "e-5000", 700),
        ("0." + "0" * 5000 + "7e5001", 700),
        ("7e" + "0" * 5000 + "1", 7000),
        ("0e" + "9" * 5000, 0),
    ],
)
def test_a_number_may_be_written_at_any_length(text, scaled):
    assert to_scaled(text, 2) == scaled


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        "1e" + "9" * 5000,
        "1e-" + "9" * 5000,
        "1." + "0" * 5000 + "1",
        "9" * 5000 + "x",
    ],
)
def test_a_number_of_any_length_that_does_not_fit_is_refused_in_one_short_line(text, as_worded):
    with pytest.raises(ValueError, check=as_worded) as error:
        to_scaled(text, 2)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("1.005", 2),
        ("1e-9999", 2),
        ("92233720368547758.08", 2),
        ("-92233720368547758.09", 2),
        ("1e9999", 2),
        ("1e99999", 2),
        ("9223372036854775808", 0),
    ],
)
def test_the_reason_names_the_value_and_the_limit(text, scale, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        to_scaled(text, scale)
