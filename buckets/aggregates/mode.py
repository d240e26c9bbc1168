"""The most frequent value of a field; of several the least. Of no events it is NULL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.single_event import of_event

_MODE = Component("mode", "value")


class _Mode(Aggregate):
    phrase = "the most frequent"
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_MODE,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return of_event(found[_MODE], own.scale)


AGGREGATE = _Mode()
