"""Numbers as people read them."""

from decimal import Decimal
from fractions import Fraction

import pytest

from buckets.numbers.fixed_point import money_text, percent_text, readable, short_decimal_text, short_percent_text


@pytest.mark.parametrize(
    ("value", "shown"), [("1234.500", "1,234.50"), ("0.00", "0"), ("-0.125", "-0.125"), ("1000000", "1,000,000")]
)
def test_a_value_is_shown_without_the_zeros_that_pad_it(value, shown):
    assert readable(value) == readable(Decimal(value)) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(Fraction(2000), "2,000"), (Fraction(10, 3), "3.3333"), (Fraction(5, 2), "2.5")]
)
def test_a_number_has_up_to_four_digits_after_the_point(number, shown):
    assert short_decimal_text(number) == shown


@pytest.mark.parametrize(
    ("share", "exact", "short"),
    [(0.0, "0.0 %", "0 %"), (0.123, "12.3 %", "12.3 %"), (0.456, "45.6 %", "46 %"), (0.995, "99.5 %", "99.5 %")],
)
def test_a_share_has_a_digit_after_the_point_where_that_may_matter(share, exact, short):
    assert (percent_text(share), short_percent_text(share)) == (exact, short)


def test_what_is_not_known_is_not_shown():
    assert percent_text(None) == money_text(None) == ""
    assert money_text(Decimal("1234.50")) == "1,234.50"
