"""The value of the latest event, which may be this one."""

from collections.abc import Mapping
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from buckets.aggregates.aggregate import Own, Values
from buckets.aggregates.component import Component, Computed
from buckets.aggregates.operation import PREVIOUS
from buckets.aggregates.single_event import SingleEvent, of_event


class _Last(SingleEvent):
    def counted(self, computed: Mapping[Component, Computed], own: Own) -> npt.NDArray[np.int64]:
        return np.maximum(computed[self._component].event_count, own.counts & own.has_value)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        before, itself, value = of_event(computed[self._component], own.scale), own.counts & own.has_value, own.value
        return Values(
            scaled=np.where(itself, value, before.scaled),
            scale=own.scale,
            valid=itself | before.valid,
            lower=np.where(itself, value, before.lower),
            upper=np.where(itself, value, before.upper),
            may_be_null=~itself & before.may_be_null,
            exact=itself | before.exact,
        )


AGGREGATE = _Last("the last", Component(PREVIOUS, "value"), itemgetter(-1))
