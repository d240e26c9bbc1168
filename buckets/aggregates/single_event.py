"""What aggregates share that look at one event of the window: NULL where there is none."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import numpy as np

from buckets.aggregates.aggregate import Aggregate, Own, Values
from buckets.aggregates.component import Component, Computed
from buckets.aggregates.plain import NO_EVENT, NONE_BEFORE, CountedEvents, PlainValue, plain_number
from buckets.aggregates.value_range import ValueRange


class SingleEvent(Aggregate):
    """The value of a field in one event of the window; `extra_digits` is how many digits it has more than the field."""

    needs_raw_events = True
    extra_digits: ClassVar[int] = 0

    def __init__(self, phrase: str, component: Component, pick: Callable[[Sequence[int]], Fraction | int]) -> None:
        """Name it.

        Args:
            phrase: what it is called in a sentence.
            component: finds the event.
            pick: picks the value of a list, which is in the order of the events.
        """
        self.phrase = phrase
        self._component, self._pick = component, pick

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """Return the one that finds the event."""
        return (self._component,)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        """Return the value of the field in that event."""
        return of_event(computed[self._component], own.scale)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Return the value that is picked of a list."""
        return plain_number(self._pick(events.values), scale, self.extra_digits) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return between what the values of the field lie."""
        return field.of_events(counts_itself)


class SecondsSince(SingleEvent):
    """How long before each event another one of its window was."""

    takes = ()

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        """Return the seconds, with three digits."""
        before = computed[self._component]
        values, there, times_ms = of_event(before, 3), before.event_count > 0, own.times_ms
        return values._replace(
            scaled=np.where(there, times_ms - before.whole, 0),
            lower=np.where(there, times_ms - before.upper_whole, 0),
            upper=np.where(there, times_ms - before.lower_whole, 0),
        )

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Return the seconds since the event that is picked."""
        return plain_number(events.end_ms - self._pick(events.times_ms), 3) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return that it is no longer ago than the window reaches back."""
        return ValueRange(Decimal(0), Decimal(reach_ms).scaleb(-3), digits=3)


class Before(SingleEvent):
    """The value of a field in the latest event before this one."""

    null_when = "without one"

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Return the value of a list without the event itself."""
        others = events.others()
        return super().plain(others, scale) if len(others) else NONE_BEFORE

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return what it is where the event itself is none of the events."""
        return super().value_range(field, reach_ms, counts_itself=False)


class SecondsSinceBefore(Before, SecondsSince):
    """How long before each event the latest one before it was."""


def of_event(component: Computed, scale: int) -> Values:
    """Return the value of a field in an event that the kernel has found."""
    return Values(
        scaled=component.whole,
        scale=scale,
        valid=component.event_count > 0,
        lower=component.lower_whole,
        upper=component.upper_whole,
        may_be_null=component.count_lower == 0,
        exact=component.exact,
    )
