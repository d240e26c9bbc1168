"""The variance of a field as of a sample, from exact sums of squares. Of fewer than two it is NULL.

With `n` events, `S` their sum and `Q` the sum of their squares it is `(Q - S²/n) / (n - 1)`, rounded half to even at
six digits more than a square has. The sums of squares are kept as four sums of 32 bits each: none passes 64 bits. Where
the edge is uncertain, so are `n`, `S` and `Q`; the bounds are those of any choice of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from buckets.aggregates.aggregate import (
    COUNT,
    Aggregate,
    Component,
    Computed,
    Events,
    Own,
    Values,
    fitted,
    with_value,
)
from buckets.numbers.fixed_point import half_to_even

_SUM = Component("sum", "value")
_SQUARES: Final = (
    Component("sum", "square_0"),
    Component("sum", "square_1"),
    Component("sum", "square_2"),
    Component("sum", "square_3"),
)
COMPONENTS: Final = (_SUM, *_SQUARES, COUNT)
_DIGITS: Final = 6
Quotient = Callable[[int, int], int]
"""What makes a value of a numerator and a denominator, in units of the field squared."""


class _Variance(Aggregate):
    phrase = "the variance of"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return COMPONENTS

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return spread(found, lambda above, below: half_to_even(above * 10**_DIGITS, below), 2 * own.scale + _DIGITS)


def spread(found: Mapping[Component, Computed], value: Quotient, scale: int) -> Values:
    """A value that follows from a variance and grows with it.

    Args:
        found: `COMPONENTS`.
        value: makes it of a variance, given as a quotient of integers.
        scale: its digits after the point.
    """
    total, count = found[_SUM], with_value(found[_SUM], found[COUNT])
    squares, least, most = (_squares(found, side) for side in ("whole", "lower_whole", "upper_whole"))
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


def _squares(found: Mapping[Component, Computed], side: str) -> Any:
    return sum(getattr(found[part], side).astype(object) << 32 * index for index, part in enumerate(_SQUARES))


def _bounds(total: Computed, count: Events, least: Any, most: Any, value: Quotient) -> tuple[Any, Any]:
    """The least and the greatest that a value can be, whatever count, sum and sum of squares lie between theirs."""

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
    found = [ends(row) for row in rows]
    return (np.array([lower for lower, _ in found], object), np.array([upper for _, upper in found], object))


AGGREGATE = _Variance()
