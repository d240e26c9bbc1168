"""The value of a field in the latest event that counts: this one, or the one before it."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values
from buckets.aggregates.single_event import of_event

_PREVIOUS = Component("previous", "value")


class _Last(Aggregate):
    phrase = "the last"
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_PREVIOUS,)

    def counted(self, found: Mapping[Component, Computed], own: Own) -> npt.NDArray[np.int64]:
        return np.maximum(found[_PREVIOUS].event_count, own.counts)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        before, itself = of_event(found[_PREVIOUS], own.scale), own.counts
        return Values(
            scaled=np.where(itself, own.value, before.scaled),
            scale=own.scale,
            valid=itself | before.valid,
            lower=np.where(itself, own.value, before.lower),
            upper=np.where(itself, own.value, before.upper),
            may_be_null=~itself & before.may_be_null,
            exact=itself | before.exact,
        )


AGGREGATE = _Last()
