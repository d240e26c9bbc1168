"""The first event, the last and the one before, and how long ago they were."""

from fractions import Fraction

from tests.core.aggregates.oracle import AggregateOracle, Row, Seen, kept, of_values, values_at


def seconds_since(seen: Seen, events: list[Row]) -> Fraction | None:
    return Fraction(seen.row["time"] - events[0]["time"], 1000) if events else None


ORACLES = {
    "is_first": AggregateOracle(lambda seen: not seen.before),
    "first": of_values(lambda values: values[0]),
    "last": of_values(lambda values: values[-1]),
    "previous": AggregateOracle(lambda seen: kept(seen.before[-1][seen.of]) if seen.before else None),
    "time_since_first": AggregateOracle(lambda seen: seconds_since(seen, seen.counted[:1]), digits=lambda scale: 3),
    "time_since_previous": AggregateOracle(lambda seen: seconds_since(seen, seen.before[-1:]), digits=lambda scale: 3),
}


def test_single_events_are_those_that_have_a_value():
    amounts = ["1.00", None, "2.00", "3.00"]
    assert values_at("is_first", amounts) == [True, False, False, False]
    assert values_at("first", amounts, of="amount") == [1, 1, 1, 1]
    assert values_at("last", amounts, of="amount") == [1, 1, 2, 3]
    assert values_at("previous", amounts, of="amount") == [None, 1, 1, 2]


def test_seconds_are_between_events_whatever_their_values_are():
    amounts = ["1.00", None, "2.00"]
    assert values_at("time_since_first", amounts) == [0, 1, 2]
    assert values_at("time_since_previous", amounts) == [None, 1, 1]
