"""The average: the exact quotient, rounded half to even at 6 more digits."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from buckets.aggregates.aggregate import Aggregate, Own, Values
from buckets.aggregates.component import EVENTS, Component, Computed, Integers, fitted, joined, with_value
from buckets.aggregates.operation import AVG, SUM
from buckets.aggregates.plain import NO_EVENT, CountedEvents, PlainValue, plain_number
from buckets.aggregates.value_range import ValueRange
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, AVERAGE_FACTOR, half_to_even

_AVERAGE, _SUM = Component(AVG, "value"), Component(SUM, "value")


class _Average(Aggregate):
    phrase = "the average of"
    short_phrase = "the average"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_AVERAGE, EVENTS) if counts_all else (_SUM, EVENTS)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        scale, of_field = own.scale + AVERAGE_EXTRA_DIGITS, computed[_AVERAGE if _AVERAGE in computed else _SUM]
        events = with_value(of_field, computed[EVENTS])
        valid, may_be_null = events.whole > 0, events.fewest == 0
        if _AVERAGE in computed:
            value = joined(of_field.whole, of_field.micro, AVERAGE_EXTRA_DIGITS)
            lower = joined(of_field.lower_whole, of_field.lower_micro, AVERAGE_EXTRA_DIGITS)
            upper = joined(of_field.upper_whole, of_field.upper_micro, AVERAGE_EXTRA_DIGITS)
            return Values(value, scale, valid, lower, upper, may_be_null, of_field.exact)
        exact = of_field.exact & (events.fewest == events.most)
        scaled = lower = upper = _quotients(of_field.whole, events.whole)
        if not exact.all():
            fewest, most = np.maximum(events.fewest, 1), np.maximum(events.most, 1)
            lower = np.minimum(_quotients(of_field.lower_whole, fewest), _quotients(of_field.lower_whole, most))
            upper = np.maximum(_quotients(of_field.upper_whole, fewest), _quotients(of_field.upper_whole, most))
            # The value takes a part of the sum and a part of the count, whose quotient may lie outside.
            scaled = np.minimum(np.maximum(scaled, lower), upper)
        return Values(scaled, scale, valid, lower, upper, may_be_null, exact)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        if not len(events):
            return NO_EVENT
        return plain_number(Fraction(sum(events.values), len(events)), scale, AVERAGE_EXTRA_DIGITS)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return field.of_events(counts_itself)


def _quotients(total: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> Integers:
    """Return sums divided by counts; 0 where nothing is counted."""
    rounded: Any = np.frompyfunc(
        lambda dividend, divisor: half_to_even(dividend * AVERAGE_FACTOR, divisor) if divisor else 0, 2, 1
    )(total.astype(object), count.astype(object))
    return fitted(np.asarray(rounded, object))


AGGREGATE = _Average()
