"""The middle value of a field, or the mean of the two in the middle: one digit more. Of no events it is NULL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values, joined
from buckets.aggregates.single_event import of_event

_MEDIAN = Component("median", "value")
_DIGITS = 1


class _Median(Aggregate):
    phrase = "the median of"
    needs_raw_events = True

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        return (_MEDIAN,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        of = found[_MEDIAN]
        return of_event(of, own.scale + _DIGITS)._replace(
            scaled=joined(of.whole, of.micro, _DIGITS),
            lower=joined(of.lower_whole, of.lower_micro, _DIGITS),
            upper=joined(of.upper_whole, of.upper_micro, _DIGITS),
        )


AGGREGATE = _Median()
