"""The seconds since the earliest event of the window."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.single_event import seconds_since

_FOUND = Component("first_time")


class _TimeSinceFirst(Aggregate):
    phrase = "the seconds since the first event"
    takes = ()
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_FOUND,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return seconds_since(found[_FOUND], own)


AGGREGATE = _TimeSinceFirst()
