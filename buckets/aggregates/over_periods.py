"""An aggregate over the values of a window's periods, such as the average of the counts of 30 days."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np

from buckets.aggregates.aggregate import Aggregate, FieldKind, Own, ValueRange, Values
from buckets.aggregates.component import AVG, EVENTS, MEDIAN, Component, Computed, from_words
from buckets.aggregates.plain import CountedEvents, PlainValue
from buckets.arrays import Int64s
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS

OVER_PERIODS: Final = ("avg", "max", "median", "min", "percentile", "stddev", "sum", "variance")
"""What may be computed of the values of periods."""
_NO_PERIOD: Final = PlainValue(None, None, "no event in its window comes before the period of this one")


class OverPeriods(Aggregate):
    """An aggregate over the values of periods, beginning with the period of the key's first event in the window.

    A period without events is 0 for a count and a sum, and has no value for all else.
    """

    null_when = "of no period"

    def __init__(self, over: Aggregate, of_each: Aggregate, unit: str) -> None:
        """Combine an aggregate of each period and one over their values; `unit` is the name of a period."""
        self._over, self._of_each = over, of_each
        self.description = f"{over.description} Of what periods come to."
        self.phrase = f"{over.phrase.removesuffix(' of')} over {unit} of {of_each.phrase}"

    @property
    def takes(self) -> tuple[FieldKind, ...]:  # type: ignore[override]
        """The kinds of field that it accepts: those of the aggregate of each period."""
        return self._of_each.takes

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """Return the components over the values of periods."""
        return tuple(dict.fromkeys((*self._over.components(counts_all=False), EVENTS)))

    def counted(self, computed: Mapping[Component, Computed], own: Own) -> Int64s:
        """Return the number of events in all periods."""
        return computed[EVENTS].event_count

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        """Compute the aggregate over the values of periods."""
        periods = _joined(EVENTS, computed[EVENTS])
        counts = {"event_count": periods.whole, "count_lower": periods.lower_whole, "count_upper": periods.upper_whole}
        of_values = {component: _joined(component, each)._replace(**counts) for component, each in computed.items()}
        return self._over.finalize(of_values, replace(own, scale=self._scale(own.scale)))

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Compute the value independently: each period from its events, then the aggregate over the periods."""
        borders_ms, values = events.borders_ms, []
        at = [bisect_right(borders_ms, time_ms) - 1 for time_ms in events.times_ms]
        for period, (begin_ms, end_ms) in enumerate(pairwise(borders_ms)):
            here = [index for index, each in enumerate(at) if each == period]
            own = CountedEvents(
                [events.times_ms[index] for index in here], [events.values[index] for index in here], None, end_ms
            )
            value = self._of_each.plain(own, scale).shown
            if value is None and self._of_each.adds_up:
                value = Decimal(0)
            if value is not None:
                values.append((begin_ms, int(Fraction(value) * 10 ** self._scale(scale))))
        if not values:
            return _NO_PERIOD
        listed = CountedEvents([time for time, _ in values], [value for _, value in values], None, events.end_ms)
        return self._over.plain(listed, self._scale(scale))

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return the possible values, which are not negative if no value of the field is."""
        is_positive = not self._of_each.takes or field.lower >= 0
        return self._over.value_range(ValueRange(Decimal(0)) if is_positive else ValueRange(), reach_ms, False)

    def _scale(self, scale: int) -> int:
        """Return the digits after the point of the value of a period."""
        if not self._of_each.takes:
            return 0
        return scale + AVERAGE_EXTRA_DIGITS * (self._of_each.operation == AVG)


def _joined(component: Component, computed: Computed) -> Computed:
    """Return a component whose numbers are in two words with joined numbers."""
    sides: dict[str, Any] = {}
    for name in ("", "lower_", "upper_"):
        number = from_words(getattr(computed, f"{name}whole"), getattr(computed, f"{name}micro"))
        micro = np.zeros(len(number), np.int32)
        if component.operation == MEDIAN:  # a median has one more digit
            number, micro = number // 10, (number % 10 * 100_000).astype(np.int32)
        sides |= {f"{name}whole": number, f"{name}micro": micro}
    return computed._replace(**sides)
