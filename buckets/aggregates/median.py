"""The middle value, or the mean of the two middle ones, at one more digit."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from buckets.aggregates.aggregate import Own, Values
from buckets.aggregates.component import Component, Computed, joined
from buckets.aggregates.operation import MEDIAN
from buckets.aggregates.single_event import SingleEvent, of_event


class _Median(SingleEvent):
    extra_digits = 1

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        median = computed[self._component]
        return of_event(median, own.scale + self.extra_digits)._replace(
            scaled=joined(median.whole, median.micro, self.extra_digits),
            lower=joined(median.lower_whole, median.lower_micro, self.extra_digits),
            upper=joined(median.upper_whole, median.upper_micro, self.extra_digits),
        )


def _middle(values: Sequence[int]) -> Fraction:
    ordered = sorted(values)
    return Fraction(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2], 2)


AGGREGATE = _Median("the median of", Component(MEDIAN, "value"), _middle)
