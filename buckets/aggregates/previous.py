"""The value of a field in the latest event before this one. Without one in the window it is NULL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.single_event import of_event

_FOUND = Component("previous", "value")


class _Previous(Aggregate):
    phrase = "the previous"
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_FOUND,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return of_event(found[_FOUND], own.scale)


AGGREGATE = _Previous()
