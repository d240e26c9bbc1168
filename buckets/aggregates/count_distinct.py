"""How many different values a field has.

Numbers and booleans are compared as they are, texts by a digest of 126 bits: that two of a billion texts share one has
a chance of less than one in 10**19.
"""

from collections.abc import Mapping

from buckets.aggregates.aggregate import ANY_FIELD, Aggregate, Component, Computed, Own, Values, lowered

_DISTINCT = Component("count_distinct", "digest_high", "digest_low")


class _CountDistinct(Aggregate):
    phrase = "the number of different values of"
    takes = ANY_FIELD
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_DISTINCT,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        return lowered(found[_DISTINCT], None, 0)


AGGREGATE = _CountDistinct()
