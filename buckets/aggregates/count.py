"""The number of events."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import COUNT, Aggregate, Component, Computed, Own, Values, lowered


class _Count(Aggregate):
    phrase = "the number of events"
    takes = ()

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (COUNT,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return lowered(found[COUNT], None, 0)


AGGREGATE = _Count()
