"""The variance and the standard deviation of a sample, from exact squares.

With `n` events, `S` their sum and `Q` the sum of their squares a variance is `(Q - S²/n) / (n - 1)`, rounded half to
even. The sums of squares are kept as four sums of 32 bits each, none of which passes 64 bits. With an uncertain edge,
`n`, `S` and `Q` are uncertain; the bounds hold for any choice of them.
"""

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

import numpy as np

from buckets.aggregates.aggregate import Aggregate, Own, ValueRange, Values
from buckets.aggregates.component import EVENTS, SQUARES, SUM, Component, Computed, EventCounts, fitted, with_value
from buckets.aggregates.plain import ENOUGH_DIGITS, NO_EVENT, CountedEvents, PlainValue, plain_number
from buckets.numbers.fixed_point import half_to_even

_SUM = Component(SUM, "value")
_SQUARES: Final = [Component(SUM, part) for part in SQUARES]
_DIGITS: Final = 6
_ONE_EVENT: Final = PlainValue(None, None, "only one event in its window counts, and it takes two")
Quotient = Callable[[int, int], int]  # Makes a value of a numerator and a denominator, in units of the field squared


class _Spread(Aggregate):
    made_of = (_SUM, *_SQUARES, EVENTS)
    null_when = "of fewer than 2"

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return ValueRange(lower=Decimal(0))


class _Variance(_Spread):
    description = "The variance of a sample, from exact squares, at 6 more digits than a square has."
    phrase = "the variance of"

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        scale = 2 * own.scale + _DIGITS
        return _spread(computed, lambda above, below: half_to_even(above * 10**_DIGITS, below), scale)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return _plain_variance(events, scale)


class _StandardDeviation(_Spread):
    description = "The standard deviation of a sample: the root of its variance, at 6 more digits than the field has."
    phrase = "the standard deviation of"

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        return _spread(computed, _root, own.scale + _DIGITS)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        variance = _plain_variance(events, scale)
        if not isinstance(variance.exact, Fraction):
            return variance
        with localcontext(Context(prec=ENOUGH_DIGITS)):
            root = (Decimal(variance.exact.numerator) / Decimal(variance.exact.denominator)).sqrt()
            shown = root.quantize(Decimal(1).scaleb(-scale - _DIGITS), ROUND_HALF_UP)
        return PlainValue(Fraction(shown), shown)


def _root(above: int, below: int) -> int:
    """Return the square root of a quotient, times `10**_DIGITS`, rounded to the nearest integer."""
    return (math.isqrt(4 * above * 10 ** (2 * _DIGITS) // below) + 1) // 2


def _plain_variance(events: CountedEvents, scale: int) -> PlainValue:
    """Return the variance of a list, in units of the field squared."""
    count, total = len(events), sum(events.values) if len(events) else 0
    if count < 2:
        return _ONE_EVENT if count else NO_EVENT
    if total % count == 0:
        exact = Fraction(sum((value - total // count) ** 2 for value in events.values), count - 1)
    else:
        exact = Fraction(count * sum(value * value for value in events.values) - total * total, count * (count - 1))
    return plain_number(exact, 2 * scale, _DIGITS)


def _spread(computed: Mapping[Component, Computed], value: Quotient, scale: int) -> Values:
    """Compute values that grow with the variance; `value` computes one from a variance's numerator and denominator."""
    total, count = computed[_SUM], with_value(computed[_SUM], computed[EVENTS])
    squares, least, most = (
        sum(getattr(computed[part], side).astype(object) << 32 * index for index, part in enumerate(_SQUARES))
        for side in ("whole", "lower_whole", "upper_whole")
    )
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


def _bounds(total: Computed, count: EventCounts, least: Any, most: Any, value: Quotient) -> tuple[Any, Any]:
    """Return the least and greatest value over all counts, sums and sums of squares between their bounds."""

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


AGGREGATES: dict[str, Aggregate] = {"stddev": _StandardDeviation(), "variance": _Variance()}
