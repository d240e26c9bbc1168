"""The seconds since the latest event before this one. Without one in the window it is NULL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.single_event import seconds_since

_FOUND = Component("previous_time")


class _TimeSincePrevious(Aggregate):
    phrase = "the seconds since the previous event"
    takes = ()
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_FOUND,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return seconds_since(found[_FOUND], own)


AGGREGATE = _TimeSincePrevious()
