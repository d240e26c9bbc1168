"""The number of events with the value that this event has in a field: a count by one more grouping field."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import (
    ANY_FIELD,
    COUNT,
    Aggregate,
    Component,
    Computed,
    Own,
    Values,
    lowered,
)


class _SameCount(Aggregate):
    phrase = "the number of events with the same"
    takes = ANY_FIELD
    by_value = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (COUNT,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return lowered(found[COUNT], None, 0)


AGGREGATE = _SameCount()
