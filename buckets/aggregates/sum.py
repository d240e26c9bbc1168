"""The sum, as in SQL."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from buckets.aggregates.aggregate import Aggregate, Own, Values, as_values
from buckets.aggregates.component import EVENTS, Component, Computed
from buckets.aggregates.operation import SUM
from buckets.aggregates.plain import NO_EVENT, CountedEvents, PlainValue, plain_number
from buckets.aggregates.value_range import INFINITY, ValueRange
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN

_SUM = Component(SUM, "value")


class _Sum(Aggregate):
    phrase = short_phrase = "the sum of"
    adds_up = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_SUM, EVENTS)

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


AGGREGATE = _Sum()
