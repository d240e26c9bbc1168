"""The smallest value of a field. Of no events it is NULL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import COUNT, Aggregate, Component, Computed, Own, Values, lowered


class _Min(Aggregate):
    phrase = "the smallest"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_component(counts_all), COUNT)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return lowered(found[_component(_component(True) in found)], found[COUNT], own.scale)


def _component(counts_all: bool) -> Component:
    return Component("min", "value" if counts_all else "least")


AGGREGATE = _Min()
