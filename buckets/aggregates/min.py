"""The smallest value of a field. Of no events it is NULL."""

from collections.abc import Mapping

import numpy as np

from buckets.aggregates.aggregate import COUNT, Aggregate, Component, Computed, Own, Values, lowered

_NEVER = np.iinfo(np.int64).max
"""What an event that does not count has in the column."""


class _Min(Aggregate):
    phrase = "the smallest"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_component(counts_all), COUNT)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        counts_all = _component(True) in found
        values = lowered(found[_component(counts_all)], found[COUNT], own.scale)
        return values if counts_all else values._replace(valid=values.valid & (values.scaled != _NEVER))


def _component(counts_all: bool) -> Component:
    return Component("min", "value" if counts_all else "least")


AGGREGATE = _Min()
