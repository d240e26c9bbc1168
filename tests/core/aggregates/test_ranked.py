"""Values in their order: percentiles, the median and the mode."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.core.aggregates.oracle import AggregateOracle, Seen, of_values, values_at


def median(values: list[Fraction]) -> Fraction:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def mode(values: list[Any]) -> Any:
    """Of several the one that came last."""
    return max(reversed(values), key=values.count)


def percentile(seen: Seen) -> Fraction | None:
    values = sorted(seen.values)
    share = Fraction(seen.p) / 100 * len(values)
    return next((each for each in values if sum(other <= each for other in values) >= share), None)


ORACLES = {
    "median": of_values(median, digits=lambda scale: scale + 1),
    "mode": of_values(mode),
    "percentile": AggregateOracle(percentile),
}


def test_ranks_are_those_of_the_values_in_order():
    amounts = ["3.00", "1.00", "2.00", "3.00"]
    assert values_at("median", amounts, of="amount") == [3, 2, 2, Decimal("2.5")]
    assert values_at("mode", amounts, of="amount") == [3, 1, 2, 3]
    assert values_at("percentile", amounts, of="amount", p=50) == [3, 1, 2, 2]
