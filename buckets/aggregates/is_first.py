"""Whether no event before this one counts: true for the first payment of a window."""

from collections.abc import Mapping

import numpy as np

from buckets.aggregates.aggregate import COUNT, Aggregate, Component, Computed, Own, Values


class _IsFirst(Aggregate):
    phrase = "whether this is the first event"
    takes = ()
    is_boolean = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (COUNT,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        count, itself = found[COUNT], own.counts.astype(np.int64)
        lower, upper = (count.upper_whole == itself), (count.lower_whole == itself)
        everywhere = np.ones(len(itself), np.bool_)
        return Values(
            scaled=(count.whole == itself).astype(np.int64),
            scale=0,
            valid=everywhere,
            lower=lower.astype(np.int64),
            upper=upper.astype(np.int64),
            may_be_null=~everywhere,
            exact=lower == upper,
        )


AGGREGATE = _IsFirst()
