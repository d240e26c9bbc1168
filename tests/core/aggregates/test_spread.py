"""The variance, and its root."""

import math
from decimal import Decimal
from fractions import Fraction

from tests.core.aggregates.oracle import AggregateOracle, Seen, rounded, values_at


def variance(values: list[Fraction]) -> Fraction:
    mean = sum(values) / len(values)
    return sum((each - mean) ** 2 for each in values) / (len(values) - 1)


def root(number: Fraction, digits: int) -> Fraction:
    """To the nearest digit."""
    low = math.isqrt(int(number * 10 ** (2 * digits)))
    return Fraction(low + ((2 * low + 1) ** 2 <= 4 * number * 10 ** (2 * digits)), 10**digits)


def of_two(seen: Seen, value) -> Fraction | None:
    return value(variance(seen.values)) if len(seen.counted) > 1 else None


ORACLES = {
    "variance": AggregateOracle(
        lambda seen: of_two(seen, lambda exact: rounded(exact, 2 * seen.scale + 6)), digits=lambda scale: 2 * scale + 6
    ),
    "stddev": AggregateOracle(
        lambda seen: of_two(seen, lambda exact: root(exact, seen.scale + 6)), digits=lambda scale: scale + 6
    ),
}


def test_a_spread_is_of_two_values_at_least():
    amounts = ["1.00", None, "2.00", "3.00"]
    assert values_at("variance", amounts, of="amount") == [None, None, Decimal("0.5"), 1]
    assert values_at("stddev", amounts, of="amount") == [None, None, Decimal("0.70710678"), 1]
