"""The standard deviation of a field as of a sample: the root of its variance, with six more digits than the field."""

import math
from collections.abc import Mapping

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.variance import COMPONENTS, spread

_DIGITS = 6


class _StandardDeviation(Aggregate):
    phrase = "the standard deviation of"

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return COMPONENTS

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return spread(found, _root, own.scale + _DIGITS)


def _root(above: int, below: int) -> int:
    """The root of a quotient, times `10**_DIGITS`, to the nearest integer."""
    return (math.isqrt(4 * above * 10 ** (2 * _DIGITS) // below) + 1) // 2


AGGREGATE = _StandardDeviation()
