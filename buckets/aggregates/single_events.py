"""Aggregates that look at one event of the window, found by its time or by the rank of its value; NULL without one."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import ceil
from operator import itemgetter
from typing import ClassVar

import numpy as np

from buckets.aggregates.aggregate import ANY_FIELD, INFINITY, Aggregate, Own, ValueRange, Values, as_values
from buckets.aggregates.component import (
    ABSENCE,
    COUNT_DISTINCT,
    FIRST,
    FIRST_TIME,
    MEDIAN,
    MODE,
    PERCENTILE,
    PREVIOUS,
    PREVIOUS_TIME,
    Component,
    Computed,
    joined,
)
from buckets.aggregates.plain import NO_EVENT, NONE_BEFORE, NOT_SO, CountedEvents, PlainValue, plain_number, plain_value
from buckets.aggregates.sequence import left_alone
from buckets.arrays import Int64s

_DISTINCT = Component(COUNT_DISTINCT, "digest_high", "digest_low")


class _SingleEvent(Aggregate):
    """The value of a field in one event of the window, with `extra_digits` more digits than the field."""

    needs_raw_events = True
    extra_digits: ClassVar[int] = 0

    def __init__(
        self, description: str, phrase: str, component: Component, pick: Callable[[Sequence[int]], Fraction | int]
    ) -> None:
        """Name it; the component finds the event, and `pick` the value in a list in the order of the events."""
        self.description, self.phrase, self._component, self._pick = description, phrase, component, pick
        self.made_of = (component,)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        values = _of_event(computed[self._component], own.scale)
        return values._replace(kind=own.kind) if self.keeps_kind else values

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_value(self._pick(events.values), scale, self.extra_digits) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return field.of_events(counts_itself)


class _Kept(_SingleEvent):
    """The value of a field in one event, which may be a text or a boolean."""

    takes = ANY_FIELD
    keeps_kind = True


class _SecondsSince(_SingleEvent):
    """The time from another event of the window to the event itself."""

    takes = ()

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        before = computed[self._component]
        values, there, times_ms = _of_event(before, 3), before.event_count > 0, own.times_ms()
        return values._replace(
            scaled=np.where(there, times_ms - before.whole, 0),
            lower=np.where(there, times_ms - before.upper_whole, 0),
            upper=np.where(there, times_ms - before.lower_whole, 0),
        )

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_number(events.end_ms - self._pick(events.times_ms), 3) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return ValueRange(Decimal(0), Decimal(reach_ms).scaleb(-3), digits=3)


class _Absence(_SecondsSince):
    """The time since an event that nothing followed in time, which becomes certain at the event itself."""

    null_when = "without one"
    needs_steps = 1
    needs_own_event = True
    parameter = "within"

    def __init__(self, within_ms: int) -> None:
        description = (
            "The seconds, with 3 digits, since the earliest event that is the step of `steps` and was not followed by "
            "one that is `without` in the time `within`: at the first event after that time."
        )
        super().__init__(description, "the seconds since", Component(ABSENCE, parameter=within_ms), itemgetter(0))

    def with_parameter(self, value: int) -> Aggregate:
        return _Absence(value)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        found = left_alone(events, self._component.parameter)
        return plain_number(events.end_ms - events.times_ms[found[0]], 3) if found else NOT_SO


class _Before(_SingleEvent):
    """A value of the latest event before this one."""

    null_when = "without one"

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        others = events.others()
        return super().plain(others, scale) if len(others) else NONE_BEFORE

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return super().value_range(field, reach_ms, counts_itself=False)


class _Previous(_Before, _Kept):
    """The value of a field in the latest event before this one."""


class _SecondsSinceBefore(_Before, _SecondsSince):
    """The time since the latest event before this one."""


class _Last(_Kept):
    def counted(self, computed: Mapping[Component, Computed], own: Own) -> Int64s:
        return np.maximum(computed[self._component].event_count, own.counts() & own.has_value())

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        before = _of_event(computed[self._component], own.scale)
        itself, value = own.counts() & own.has_value(), own.value()
        return Values(
            scaled=np.where(itself, value, before.scaled),
            scale=own.scale,
            valid=itself | before.valid,
            lower=np.where(itself, value, before.lower),
            upper=np.where(itself, value, before.upper),
            may_be_null=~itself & before.may_be_null,
            exact=itself | before.exact,
            kind=own.kind,
        )


class _Median(_SingleEvent):
    extra_digits = 1

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        median = computed[self._component]
        return _of_event(median, own.scale + self.extra_digits)._replace(
            scaled=joined(median.whole, median.micro, self.extra_digits),
            lower=joined(median.lower_whole, median.lower_micro, self.extra_digits),
            upper=joined(median.upper_whole, median.upper_micro, self.extra_digits),
        )


class _Percentile(_SingleEvent):
    parameter = "p"

    def __init__(self, p: Decimal) -> None:
        component = Component(PERCENTILE, "value", parameter=int(p * 100))
        description = (
            "The least value that at least `p` per cent of all do not exceed: "
            "`{function: percentile, of: paymentAmount, p: 95}`."
        )
        super().__init__(description, f"the {_ordinal(p)} percentile of", component, partial(_pick, p))

    def with_parameter(self, value: Decimal) -> Aggregate:
        return _Percentile(value)


class _CountDistinct(Aggregate):
    # Numbers and booleans are compared as they are, texts by a digest of 126 bits: that two of a billion texts share
    # one has a chance of less than one in 10**19.
    description = "The number of different values."
    phrase = "the number of different values of"
    takes = ANY_FIELD
    null_when = "never"
    needs_raw_events = True
    made_of = (_DISTINCT,)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        return as_values(computed[_DISTINCT], None, 0)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        return plain_number(len(set(events.values)), 0)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        fewest = int(counts_itself and not field.may_be_null)
        most = INFINITY if field.size is None else Decimal(max(field.size, 1))
        return ValueRange(Decimal(fewest), most, digits=0, may_be_null=False)


def _of_event(component: Computed, scale: int) -> Values:
    """Return the value of a field in an event that the kernel has found."""
    values = as_values(component, None, scale)
    return values._replace(valid=component.event_count > 0, may_be_null=component.count_lower == 0)


def _middle(values: Sequence[int]) -> Fraction:
    ordered = sorted(values)
    return Fraction(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2], 2)


def _most_frequent(values: Sequence[int]) -> int:
    last, times = {value: at for at, value in enumerate(values)}, Counter(values)
    return max(last, key=lambda value: (times[value], last[value]))


def _ordinal(p: Decimal) -> str:
    """Return a number as in `the 95th`."""
    number = format(p, "f")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    if "." in number or number[-2:] in ("11", "12", "13"):
        return f"{number}th"
    return number + {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")


def _pick(p: Decimal, values: Sequence[int]) -> int:
    return sorted(values)[max(ceil(Fraction(p) * len(values) / 100), 1) - 1]


AGGREGATES: dict[str, Aggregate] = {
    "absence": _Absence(1),
    "count_distinct": _CountDistinct(),
    "first": _Kept("The value of the earliest event.", "the first", Component(FIRST, "value"), itemgetter(0)),
    "last": _Last(
        "The value of the latest event, which may be this one.",
        "the last",
        Component(PREVIOUS, "value"),
        itemgetter(-1),
    ),
    "median": _Median(
        "The middle value, or the mean of the two middle ones, at one more digit.",
        "the median of",
        Component(MEDIAN, "value"),
        _middle,
    ),
    "mode": _Kept(
        "The most frequent value; of several the one that reached its number of events latest, by event time.",
        "the most frequent",
        Component(MODE, "value"),
        _most_frequent,
    ),
    "percentile": _Percentile(Decimal(50)),
    "previous": _Previous(
        "The value of the latest event before this one.", "the previous", Component(PREVIOUS, "value"), itemgetter(-1)
    ),
    "time_since_first": _SecondsSince(
        "The seconds, with 3 digits, since the earliest event.",
        "the seconds since the first event",
        Component(FIRST_TIME),
        itemgetter(0),
    ),
    "time_since_previous": _SecondsSinceBefore(
        "The seconds, with 3 digits, since the latest event before this one.",
        "the seconds since the previous event",
        Component(PREVIOUS_TIME),
        itemgetter(-1),
    ),
}
