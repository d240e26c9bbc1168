"""The number of events."""

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar

from buckets.aggregates.aggregate import Aggregate, FieldKind, Own, Values, as_values
from buckets.aggregates.component import EVENTS, Component, Computed
from buckets.aggregates.plain import CountedEvents, PlainValue, plain_number
from buckets.aggregates.value_range import ValueRange


class Count(Aggregate):
    """The number of events that count."""

    phrase = "the number of events"
    short_phrase = "the number"
    takes: ClassVar[tuple[FieldKind, ...]] = ()
    null_when = "never"
    adds_up: ClassVar[bool] = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """Return the count."""
        return (EVENTS,)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        """Return the count, which is never NULL."""
        return as_values(computed[EVENTS], None, 0)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Return how many events there are."""
        return plain_number(len(events), 0)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return that it is at least 1 where the event counts itself."""
        return ValueRange(lower=Decimal(int(counts_itself)), digits=0, may_be_null=False)


AGGREGATE = Count()
