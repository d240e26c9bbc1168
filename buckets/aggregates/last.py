"""The value of a field in the latest event that counts and has one: this one, or the one before it."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from buckets.aggregates.aggregate import Component, Computed, Own, Values
from buckets.aggregates.single_event import SingleEvent, of_event


class _Last(SingleEvent):
    def counted(self, found: Mapping[Component, Computed], own: Own) -> npt.NDArray[np.int64]:
        return np.maximum(found[self._found].event_count, own.counts & own.has_value)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        before, itself, value = of_event(found[self._found], own.scale), own.counts & own.has_value, own.value
        return Values(
            scaled=np.where(itself, value, before.scaled),
            scale=own.scale,
            valid=itself | before.valid,
            lower=np.where(itself, value, before.lower),
            upper=np.where(itself, value, before.upper),
            may_be_null=~itself & before.may_be_null,
            exact=itself | before.exact,
        )


AGGREGATE = _Last("the last", Component("previous", "value"))
