"""The value of a field in the earliest event of the window."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.single_event import of_event

_FOUND = Component("first", "value")


class _First(Aggregate):
    phrase = "the first"
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_FOUND,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return of_event(found[_FOUND], own.scale)


AGGREGATE = _First()
