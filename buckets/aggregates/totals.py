"""Aggregates that follow from the sums, counts and extremes of cells: sum, avg, min, max, counts, and is_first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from buckets.aggregates.aggregate import ANY_FIELD, INFINITY, Aggregate, FieldKind, Own, ValueRange, Values, as_values
from buckets.aggregates.component import (
    AVG,
    EVENTS,
    MAX,
    MIN,
    SUM,
    ColumnKind,
    Component,
    Computed,
    Integers,
    fitted,
    joined,
    with_value,
)
from buckets.aggregates.plain import NO_EVENT, CountedEvents, PlainValue, plain_number
from buckets.arrays import Int64s
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, AVERAGE_FACTOR, INT64_MAX, INT64_MIN, half_to_even

_AVERAGE, _SUM = Component(AVG, "value"), Component(SUM, "value")


class _Count(Aggregate):
    description = "The number of events."
    phrase = "the number of events"
    made_of = (EVENTS,)
    short_phrase = "the number"
    takes: ClassVar[tuple[FieldKind, ...]] = ()
    null_when = "never"
    adds_up: ClassVar[bool] = True

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        return as_values(computed[EVENTS], None, 0)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_number(len(events), 0)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return ValueRange(lower=Decimal(int(counts_itself)), digits=0, may_be_null=False)


class _SameCount(_Count):
    description = "The number of events with this event's value: a count by one more grouping field."
    phrase = "the number of events with the same"
    short_phrase = ""
    takes = ANY_FIELD
    by_value = True
    adds_up = False


class _IsFirst(Aggregate):
    description = "Whether no event before this one counts: true or false."
    phrase = "whether this is the first event"
    made_of = (EVENTS,)
    takes = ()
    null_when = "never"
    is_boolean = True

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        count, itself = computed[EVENTS], own.counts().astype(np.int64)
        lower, upper = (count.upper_whole == itself), (count.lower_whole == itself)
        everywhere = np.ones(len(itself), np.bool_)
        return Values(
            scaled=(count.whole == itself).astype(np.int64),
            scale=0,
            valid=everywhere,
            lower=lower.astype(np.int64),
            upper=upper.astype(np.int64),
            may_be_null=~everywhere,
            exact=lower == upper,
            kind="boolean",
        )

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        is_first = not len(events.others())
        return PlainValue(is_first, is_first)


class _Sum(Aggregate):
    description = "The sum, as in SQL."
    phrase = short_phrase = "the sum of"
    made_of = (_SUM, EVENTS)
    adds_up = True

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        return as_values(computed[_SUM], computed[EVENTS], own.scale)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_number(sum(events.values), scale) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        least, greatest = -INFINITY, INFINITY
        if field.digits is not None:
            least, greatest = (Decimal(end).scaleb(-field.digits) for end in (INT64_MIN, INT64_MAX))
        lower, upper = field.lower if field.lower >= 0 else least, field.upper if field.upper <= 0 else greatest
        return replace(field.of_events(counts_itself), lower=lower, upper=upper, digits=field.digits)


class _Average(Aggregate):
    description = "The average: the exact quotient, rounded half to even at 6 more digits."
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


def _quotients(total: Int64s, count: Int64s) -> Integers:
    """Divide sums by counts; 0 where the count is 0."""
    rounded: Any = np.frompyfunc(
        lambda dividend, divisor: half_to_even(dividend * AVERAGE_FACTOR, divisor) if divisor else 0, 2, 1
    )(total.astype(object), count.astype(object))
    return fitted(np.asarray(rounded, object))


class Extreme(Aggregate):
    """The least or the greatest value of a field."""

    def __init__(
        self, adjective: str, operation: int, neutral: ColumnKind, pick: Callable[[Sequence[int]], int]
    ) -> None:
        """Name it; in the column `neutral`, events that do not count are never the extreme."""
        self.description, self.phrase = f"The {adjective} value.", f"the {adjective}"
        self.short_phrase = self.phrase
        self._of_all, self._of_some = Component(operation, "value"), Component(operation, neutral)
        self._pick = pick

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """Return the components: the extreme of all events or of those that count, and the count."""
        return (self._of_all if counts_all else self._of_some, EVENTS)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        """Return the extreme; NULL where nothing counts."""
        extreme = computed[self._of_all if self._of_all in computed else self._of_some]
        return as_values(extreme, computed[EVENTS], own.scale)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Return the extreme of a list."""
        return plain_number(self._pick(events.values), scale) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return the range of the field."""
        return field.of_events(counts_itself)


AGGREGATES: dict[str, Aggregate] = {
    "avg": _Average(),
    "count": _Count(),
    "is_first": _IsFirst(),
    "max": Extreme("largest", MAX, "greatest", max),
    "min": Extreme("smallest", MIN, "least", min),
    "same_count": _SameCount(),
    "sum": _Sum(),
}
