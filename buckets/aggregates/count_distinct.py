"""The number of different values.

Numbers and booleans are compared as they are, texts by a digest of 126 bits: that two of a billion texts share one has
a chance of less than one in 10**19.
"""

from collections.abc import Mapping
from decimal import Decimal

from buckets.aggregates.aggregate import ANY_FIELD, Aggregate, Own, Values, as_values
from buckets.aggregates.component import Component, Computed
from buckets.aggregates.operation import COUNT_DISTINCT
from buckets.aggregates.plain import CountedEvents, PlainValue, plain_number
from buckets.aggregates.value_range import INFINITY, ValueRange

_DISTINCT = Component(COUNT_DISTINCT, "digest_high", "digest_low")


class _CountDistinct(Aggregate):
    phrase = "the number of different values of"
    takes = ANY_FIELD
    null_when = "never"
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_DISTINCT,)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        return as_values(computed[_DISTINCT], None, 0)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_number(len(set(events.values)), 0)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        fewest = int(counts_itself and not field.may_be_null)
        most = INFINITY if field.size is None else Decimal(max(field.size, 1))
        return ValueRange(Decimal(fewest), most, digits=0, may_be_null=False)


AGGREGATE = _CountDistinct()
