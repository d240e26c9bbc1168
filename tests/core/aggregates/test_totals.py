"""Counts, sums and averages."""

from decimal import Decimal
from fractions import Fraction

from tests.core.aggregates.oracle import AggregateOracle, of_values, rounded, values_at

COUNT = AggregateOracle(lambda seen: Fraction(len(seen.counted)), digits=lambda scale: 0)
ORACLES = {
    "count": COUNT,
    "same_count": COUNT,
    "count_distinct": AggregateOracle(
        lambda seen: Fraction(len({each[seen.of] for each in seen.counted})), digits=lambda scale: 0
    ),
    "sum": of_values(sum),
    "avg": AggregateOracle(
        lambda seen: rounded(sum(seen.values) / len(seen.values), seen.scale + 6) if seen.counted else None,
        digits=lambda scale: scale + 6,
    ),
}


def test_what_has_no_value_is_left_out_of_sums_and_averages():
    amounts = [None, "1.00", None, "2.50"]
    assert values_at("count", amounts) == [1, 2, 3, 4]
    assert values_at("sum", amounts, of="amount") == [None, 1, 1, Decimal("3.50")]
    assert values_at("avg", amounts, of="amount") == [None, 1, 1, Decimal("1.75")]


def test_equal_values_are_counted_once_or_alone():
    amounts = ["1.00", "2.50", "1.00", None]
    assert values_at("count_distinct", amounts, of="amount") == [1, 2, 2, 2]
    assert values_at("same_count", amounts, of="card") == [1, 2, 3, 4]
