"""The variance of a sample, from exact squares, at 6 more digits than a square has.

With `n` events, `S` their sum and `Q` the sum of their squares it is `(Q - S²/n) / (n - 1)`, rounded half to even. The
sums of squares are kept as four sums of 32 bits each: none passes 64 bits. Where the edge is uncertain, so are `n`, `S`
and `Q`; the bounds are those of any choice of them.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np

from buckets.aggregates.aggregate import Aggregate, Own, Values
from buckets.aggregates.component import EVENTS, Component, Computed, EventCounts, fitted, with_value
from buckets.aggregates.operation import SUM
from buckets.aggregates.plain import NO_EVENT, CountedEvents, PlainValue, plain_number
from buckets.aggregates.value_range import ValueRange
from buckets.numbers.fixed_point import half_to_even

_SUM = Component(SUM, "value")
_SQUARES: Final = (
    Component(SUM, "square_0"),
    Component(SUM, "square_1"),
    Component(SUM, "square_2"),
    Component(SUM, "square_3"),
)
_DIGITS: Final = 6
_ONE_EVENT: Final = PlainValue(None, None, "only one event in its window counts, and it takes two")
Quotient = Callable[[int, int], int]  # Makes a value of a numerator and a denominator, in units of the field squared


class Spread(Aggregate):
    """An aggregate that follows from a variance."""

    null_when = "of fewer than 2"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """Return the sums of values and squares, and the count."""
        return (_SUM, *_SQUARES, EVENTS)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return that it is not negative."""
        return ValueRange(lower=Decimal(0))


class _Variance(Spread):
    phrase = "the variance of"

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        scale = 2 * own.scale + _DIGITS
        return spread(computed, lambda above, below: half_to_even(above * 10**_DIGITS, below), scale)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_variance(events, scale)


def plain_variance(events: CountedEvents, scale: int) -> PlainValue:
    """Return the variance of a list, in units of the field squared."""
    count, total = len(events), sum(events.values) if len(events) else 0
    if count < 2:
        return _ONE_EVENT if count else NO_EVENT
    if total % count == 0:
        exact = Fraction(sum((value - total // count) ** 2 for value in events.values), count - 1)
    else:
        exact = Fraction(count * sum(value * value for value in events.values) - total * total, count * (count - 1))
    return plain_number(exact, 2 * scale, _DIGITS)


def spread(computed: Mapping[Component, Computed], value: Quotient, scale: int) -> Values:
    """Return values that follow from a variance and grow with it.

    Args:
        computed: the components of `Spread`.
        value: makes it of a variance, given as a quotient of integers.
        scale: its digits after the point.
    """
    total, count = computed[_SUM], with_value(computed[_SUM], computed[EVENTS])
    squares, least, most = (_squares(computed, side) for side in ("whole", "lower_whole", "upper_whole"))
    exact = total.exact & (count.fewest == count.most) & (least == most)

    def of(numbers: Any, sums: Any, quadratic: Any) -> Any:
        return np.frompyfunc(lambda n, s, q: value(max(n * q - s * s, 0), n * (n - 1)) if n > 1 else 0, 3, 1)(
            numbers.astype(object), sums.astype(object), quadratic
        )

    scaled = lower = upper = of(count.whole, total.whole, squares)
    if not exact.all():
        lower, upper = _bounds(total, count, least, most, value)
        scaled = np.where(exact, scaled, np.minimum(np.maximum(scaled, lower), upper))
        lower, upper = np.where(exact, scaled, lower), np.where(exact, scaled, upper)
    return Values(
        scaled=fitted(np.asarray(scaled, object)),
        scale=scale,
        valid=count.whole > 1,
        lower=fitted(np.asarray(lower, object)),
        upper=fitted(np.asarray(upper, object)),
        may_be_null=count.fewest < 2,
        exact=exact,
    )


def _squares(computed: Mapping[Component, Computed], side: str) -> Any:
    return sum(getattr(computed[part], side).astype(object) << 32 * index for index, part in enumerate(_SQUARES))


def _bounds(total: Computed, count: EventCounts, least: Any, most: Any, value: Quotient) -> tuple[Any, Any]:
    """Return the least and the greatest value for any count, sum and sum of squares between their bounds."""

    def ends(row: tuple[int, ...]) -> tuple[int, int]:
        fewest, largest, sum_lower, sum_upper, square_lower, square_upper = row
        near = 0 if sum_lower <= 0 <= sum_upper else min(abs(sum_lower), abs(sum_upper))
        far = max(abs(sum_lower), abs(sum_upper))
        few, many = max(fewest, 2), max(largest, 2)
        # Q - S²/n is greatest for the most events, and the division by n - 1 for the fewest; and the other way round.
        upper = value(max(many * square_upper - near * near, 0), many * (few - 1))
        lower = value(max(few * square_lower - far * far, 0), few * (many - 1))
        return lower, upper

    columns = (count.fewest, count.most, total.lower_whole, total.upper_whole)
    rows = zip(*(column.tolist() for column in columns), least.tolist(), most.tolist(), strict=True)
    bounds = [ends(row) for row in rows]
    return (np.array([lower for lower, _ in bounds], object), np.array([upper for _, upper in bounds], object))


AGGREGATE = _Variance()
