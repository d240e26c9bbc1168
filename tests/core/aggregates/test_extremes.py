"""The smallest and the largest value."""

from decimal import Decimal

from tests.core.aggregates.oracle import of_values, values_at

ORACLES = {"min": of_values(min, best=min), "max": of_values(max, best=max)}


def test_extremes_grow_apart_and_are_null_of_no_value():
    amounts = [None, "2.00", "1.00", "3.50"]
    assert values_at("min", amounts, of="amount") == [None, 2, 1, 1]
    assert values_at("max", amounts, of="amount") == [None, 2, 2, Decimal("3.50")]
