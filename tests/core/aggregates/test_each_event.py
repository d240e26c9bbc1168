"""Sums that decay, entropy and ranks: weights by comparing whole powers, all else by loops."""

from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.aggregates.each_event import WEIGHT_DIGITS, weights
from buckets.events.schema import EventSchema
from buckets.rules.feature import Feature
from buckets.rules.rule import Rule
from tests.core.aggregates.oracle import SCHEMA, AggregateOracle, Seen, of_values, values_at
from tests.core.longer_tail import behind_a_longer_tail


def weight(age_ms: int, half_life_ms: int) -> Fraction:
    """The number of 9 digits nearest to `2 ** (-age / half_life)`, of two the even one; in whole numbers alone."""
    above, below = age_ms // gcd(age_ms, half_life_ms), half_life_ms // gcd(age_ms, half_life_ms)
    unit = 10**WEIGHT_DIGITS

    def side(halves: int) -> int:
        """On which side of the weight `halves / 2` units lie: the powers of both are compared."""
        left, right = max(halves, 0) ** below * 2**above, (2 * unit) ** below
        return (left > right) - (left < right)

    near = round(2 ** (-age_ms / half_life_ms) * unit)
    while side(2 * near + 1) < 0 or (side(2 * near + 1) == 0 and near % 2):
        near += 1
    while side(2 * near - 1) > 0 or (side(2 * near - 1) == 0 and near % 2):
        near -= 1
    return Fraction(near, unit)


def decayed(seen: Seen, values: list[Any]) -> Fraction:
    pairs = zip(values, seen.counted, strict=True)
    return sum((value * weight(seen.row["time"] - each["time"], seen.half_life) for value, each in pairs), Fraction(0))


def entropy(values: list[Any]) -> Fraction:
    with localcontext(prec=60):
        shares = [Decimal(times) / len(values) for times in Counter(values).values()]
        bits = sum((-share * share.log10() / Decimal(2).log10() for share in shares), Decimal(0))
        return Fraction(bits.quantize(Decimal("1e-30")))


def rank(seen: Seen) -> Fraction | None:
    if len(seen.counted) == len(seen.before):
        return None
    others = Counter(kept for kept in Seen(seen.row, seen.before, [], seen.of).values)
    own = others[Seen(seen.row, [seen.row], [], seen.of).values[0]]
    return Fraction(1 + sum(times > own for times in others.values()))


ORACLES = {
    "decayed_count": AggregateOracle(lambda seen: decayed(seen, [1] * len(seen.counted)), digits=lambda scale: 9),
    "decayed_sum": AggregateOracle(
        lambda seen: decayed(seen, seen.values) if seen.counted else None, digits=lambda scale: scale + 9
    ),
    "entropy": of_values(entropy, digits=lambda scale: 6),
    "rank": AggregateOracle(rank, digits=lambda scale: 0),
}


@given(st.lists(st.integers(0, 10**12), min_size=1), st.integers(1, 40))
def test_weights_are_the_nearest_numbers_of_nine_digits(ages_ms, half_life_ms):
    for age_ms, found in zip(ages_ms, weights(np.array(ages_ms), half_life_ms).tolist(), strict=True):
        if age_ms > 64 * half_life_ms:
            assert found == 0
        else:
            assert Fraction(found, 10**WEIGHT_DIGITS) == weight(age_ms, half_life_ms)


def test_weights_in_the_middle_of_two_go_to_the_even_one():
    assert weights(np.arange(0, 13), 1).tolist() == [
        1_000_000_000, 500_000_000, 250_000_000, 125_000_000, 62_500_000, 31_250_000, 15_625_000, 7_812_500, 3_906_250,
        1_953_125, 976_562, 488_281, 244_141,
    ]  # fmt: skip


def test_half_of_an_event_counts_after_each_half_life():
    amounts = ["8.00", None, "1.00"]
    assert values_at("decayed_sum", amounts, of="amount", half_life="1s") == [8, 4, 3]
    assert values_at("decayed_count", amounts, half_life="1s") == [1, Decimal("1.5"), Decimal("1.75")]
    assert values_at("decayed_sum", ["9007199254740993.01"] * 2, of="amount", half_life="1h") == [
        Decimal("9007199254740993.01"),
        Decimal("9007199254740993.01") * (1 + Decimal("0.999807478")),
    ]


def test_entropy_is_in_bits_and_a_rank_leaves_the_event_itself_out():
    amounts = ["1.00", "1.00", "2.00", "2.00", None, "3.00", "1.00"]
    assert values_at("entropy", amounts[:4], of="amount") == [0, 0, Decimal("0.918296"), 1]
    assert values_at("rank", amounts, of="amount") == [1, 1, 2, 2, None, 3, 1]


@pytest.mark.parametrize(
    "feature",
    [
        {"function": "decayed_sum", "of": "amount"},
        {"function": "decayed_count", "half_life": "0ms"},
        {"function": "decayed_count", "half_life": "x"},
        {"function": "decayed_count", "of": "amount", "half_life": "1d"},
        {"function": "sum", "of": "amount", "half_life": "1d"},
        {"function": "rank", "of": "amount", "window": {"length": "1d", "exclude": "current"}},
        {"function": "decayed_count", "half_life": "1d", "of": {"function": "count", "every": "1d"}},
        {"function": "sum", "of": "amount", "half_life": "0ms"},
    ],
)
def test_what_does_not_go_together_is_refused(feature, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Feature.model_validate({"window": "1d"} | feature)


def test_a_half_life_is_written_as_it_was():
    written = {"function": "decayed_count", "window": {"length": "90d", "left": "closed"}, "half_life": "7d"}
    feature = Feature.model_validate(written)
    assert feature.model_dump(mode="json", by_alias=True) == written
    assert feature.aggregate.phrase == "the number of events that halves every 7d"


def test_where_buckets_lie_in_the_window_there_is_no_value():
    """The tail was made longer; an event is evaluated once its window holds single events alone."""
    features = {
        "faded": {"function": "decayed_count", "half_life": "1h", "window": "9h"},
        "larger": {"function": "count", "window": "9h", "where": "amount >= this.amount"},
    }
    rule = Rule.model_validate(
        {"rule_id": "r", "group_by": ["card"], "features": features, "when": "faded > 0 OR larger > 0"}
    )
    rows = [{"id": f"e{hour}", "time": hour * 3_600_000, "card": "c", "amount": "1.00"} for hour in range(40)]
    found = behind_a_longer_tail(
        rule, EventSchema.model_validate(SCHEMA), pa.Table.from_pylist(rows), 20, {"resolution": "1h"}
    )
    assert {term["event_id"] for term in found} == {f"e{hour}" for hour in range(23, 40)}
    assert all(term["exact"] for term in found)
