"""The average of a field: the exact quotient, rounded half to even at six more digits. Of no events it is NULL."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from buckets.aggregates.aggregate import (
    COUNT,
    Aggregate,
    Component,
    Computed,
    Integers,
    Own,
    Values,
    fitted,
    joined,
    with_value,
)
from buckets.numbers.fixed_point import half_to_even

_DIGITS, _UNIT = 6, 10**6
_AVERAGE, _SUM = Component("avg", "value"), Component("sum", "value")


class _Average(Aggregate):
    phrase = "the average of"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_AVERAGE, COUNT) if counts_all else (_SUM, COUNT)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        scale, of = own.scale + _DIGITS, found[_AVERAGE if _AVERAGE in found else _SUM]
        events = with_value(of, found[COUNT])
        valid, may_be_null = events.whole > 0, events.fewest == 0
        if _AVERAGE in found:
            lower = joined(of.lower_whole, of.lower_micro, _DIGITS)
            upper = joined(of.upper_whole, of.upper_micro, _DIGITS)
            return Values(joined(of.whole, of.micro, _DIGITS), scale, valid, lower, upper, may_be_null, of.exact)
        exact = of.exact & (events.fewest == events.most)
        scaled = lower = upper = _quotients(of.whole, events.whole)
        if not exact.all():
            fewest, most = np.maximum(events.fewest, 1), np.maximum(events.most, 1)
            lower = np.minimum(_quotients(of.lower_whole, fewest), _quotients(of.lower_whole, most))
            upper = np.maximum(_quotients(of.upper_whole, fewest), _quotients(of.upper_whole, most))
            # The value takes a part of the sum and a part of the count, whose quotient may lie outside.
            scaled = np.minimum(np.maximum(scaled, lower), upper)
        return Values(scaled, scale, valid, lower, upper, may_be_null, exact)


def _quotients(total: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> Integers:
    """Sums by counts; 0 where nothing is counted."""
    rounded: Any = np.frompyfunc(lambda of, by: half_to_even(of * _UNIT, by) if by else 0, 2, 1)(
        total.astype(object), count.astype(object)
    )
    return fitted(np.asarray(rounded, object))


AGGREGATE = _Average()
