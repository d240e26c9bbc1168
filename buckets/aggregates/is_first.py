"""Whether no event before this one counts: true or false."""

from collections.abc import Mapping

import numpy as np

from buckets.aggregates.aggregate import Aggregate, Own, Values
from buckets.aggregates.component import EVENTS, Component, Computed
from buckets.aggregates.plain import CountedEvents, PlainValue


class _IsFirst(Aggregate):
    phrase = "whether this is the first event"
    takes = ()
    null_when = "never"
    is_boolean = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (EVENTS,)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        count, itself = computed[EVENTS], own.counts.astype(np.int64)
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

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        is_first = not len(events.others())
        return PlainValue(is_first, is_first)


AGGREGATE = _IsFirst()
