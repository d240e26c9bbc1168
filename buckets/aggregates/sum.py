"""The sum of a field. Of no events it is NULL, as in SQL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import COUNT, Aggregate, Component, Computed, Own, Values, lowered

_SUM = Component("sum", "value")


class _Sum(Aggregate):
    phrase = "the sum of"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_SUM, COUNT)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return lowered(found[_SUM], found[COUNT], own.scale)


AGGREGATE = _Sum()
