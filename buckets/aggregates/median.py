"""The middle value of a field, or the mean of the two in the middle: one digit more. Of no events it is NULL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import Component, Computed, Own, Values, joined
from buckets.aggregates.single_event import SingleEvent, of_event

_DIGITS = 1


class _Median(SingleEvent):
    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        of = found[self._found]
        return of_event(of, own.scale + _DIGITS)._replace(
            scaled=joined(of.whole, of.micro, _DIGITS),
            lower=joined(of.lower_whole, of.lower_micro, _DIGITS),
            upper=joined(of.upper_whole, of.upper_micro, _DIGITS),
        )


AGGREGATE = _Median("the median of", Component("median", "value"))
