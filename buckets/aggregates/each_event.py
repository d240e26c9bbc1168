"""Aggregates that look at each event of the window: sums that decay with age, and how values are spread over events.

All are computed in integers, so they are the same on every machine and however a stream is cut. A weight is
`2 ** (-age / half_life)`, rounded half to even at 9 digits; weighted values and their sum are exact. The entropy of
`n` events, `c` of which have each value, is `log2(n) - sum(c * log2(c)) / n`; each `c * log2(c)` is rounded at 20
digits, and the entropy at 6.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cache, lru_cache
from typing import ClassVar, Final

import numpy as np

from buckets.aggregates.aggregate import ANY_FIELD, NUMBERS, Aggregate, FieldKind, Own, ValueRange, Values, as_values
from buckets.aggregates.component import DECAYED, ENTROPY, RANK, Component, Computed, from_words
from buckets.aggregates.plain import NO_EVENT, CountedEvents, PlainValue, plain_number
from buckets.arrays import Flags, Int64s
from buckets.duration import format_duration
from buckets.numbers.fixed_point import half_to_even

WEIGHT_DIGITS: Final = 9
ENTROPY_DIGITS: Final = 6
_LOG_DIGITS: Final = 20
_NEAR_HALF: Final = 1e-4
"""How near to the middle of two weights a binary number decides nothing: some hundred times how far off it may be."""
_NOT_COUNTED: Final = PlainValue(None, None, "the event itself does not count, or has no value")


def weights(ages_ms: Int64s, half_life_ms: int) -> Int64s:
    """Return the weights of events of these ages, 0 or more, times `10**WEIGHT_DIGITS`, int64."""
    near = np.exp2(-(ages_ms / half_life_ms)) * 10**WEIGHT_DIGITS
    found: Int64s = np.rint(near).astype(np.int64)
    for index in np.flatnonzero(np.abs(near - np.floor(near) - 0.5) < _NEAR_HALF).tolist():
        found[index] = weight(int(ages_ms[index]), half_life_ms)
    return found


@lru_cache(maxsize=100_000)
def weight(age_ms: int, half_life_ms: int) -> int:
    """Return the weight of one age, times `10**WEIGHT_DIGITS`."""
    with localcontext(Context(prec=50, rounding=ROUND_HALF_EVEN)):
        exact = Decimal(2) ** (Decimal(-age_ms) / Decimal(half_life_ms))
        return int((exact * 10**WEIGHT_DIGITS).to_integral_value())


def entropies(of: Int64s, times: Int64s, events: Int64s) -> Int64s:
    """Return entropies times `10**ENTROPY_DIGITS`, int64; 0 without events.

    Args:
        of: the index of the entropy to which each value belongs, ascending.
        times: how many events have the value.
        events: the number of events of each entropy.
    """
    found = np.zeros(len(events), np.int64)
    begin = np.flatnonzero(np.diff(of, prepend=-1))
    if len(of):
        logs = np.array([_log(each) for each in times.tolist()], object)
        for index, summed in zip(of[begin].tolist(), np.add.reduceat(logs, begin).tolist(), strict=True):
            found[index] = _entropy(int(events[index]), summed)
    return found


@cache
def _log(number: int) -> int:
    """Return a number times its binary logarithm, times `10**_LOG_DIGITS`."""
    with localcontext(Context(prec=60, rounding=ROUND_HALF_EVEN)):
        return int((number * Decimal(number).ln() / Decimal(2).ln() * 10**_LOG_DIGITS).to_integral_value())


def _entropy(events: int, logs: int) -> int:
    return half_to_even(_log(events) - logs, events * 10 ** (_LOG_DIGITS - ENTROPY_DIGITS))


class _Decayed(Aggregate):
    needs_raw_events = True
    parameter = "half_life"

    def __init__(self, of_field: bool, half_life_ms: int = 1) -> None:
        self._of_field, self._half_life_ms = of_field, half_life_ms
        self._component = Component(DECAYED, "value" if of_field else None, parameter=half_life_ms)
        self.made_of = (self._component,)
        what, kind = ("The sum", "value") if of_field else ("The number of events", "event")
        self.description = (
            f"{what} in which each {kind} counts half after each `half_life`, exact at 9 more digits: "
            f"`{{function: decayed_{'sum, of: paymentAmount' if of_field else 'count'}, half_life: 7d}}`."
        )
        halved = f"that halves every {format_duration(half_life_ms)}"
        self.phrase = f"the sum {halved} of" if of_field else f"the number of events {halved}"

    @property
    def takes(self) -> tuple[FieldKind, ...]:  # type: ignore[override]
        return NUMBERS if self._of_field else ()

    @property
    def null_when(self) -> str:  # type: ignore[override]
        return "of no event" if self._of_field else "never"

    def with_parameter(self, value: int) -> Aggregate:
        return _Decayed(self._of_field, value)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        found = computed[self._component]
        value = from_words(found.whole, found.micro)
        valid = (found.event_count > 0) | (not self._of_field)
        return Values(value, own.scale + WEIGHT_DIGITS, valid, value, value, ~valid, np.ones(len(valid), np.bool_))

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        if self._of_field and not len(events):
            return NO_EVENT
        values = events.values if self._of_field else [1] * len(events)
        ages_ms = [events.end_ms - time_ms for time_ms in events.times_ms]
        pairs = zip(values, ages_ms, strict=True)
        total = sum(value * weight(age_ms, self._half_life_ms) for value, age_ms in pairs)
        return plain_number(total, (scale if self._of_field else 0) + WEIGHT_DIGITS)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        if not self._of_field:
            return ValueRange(Decimal(int(counts_itself)), may_be_null=False)
        return ValueRange(Decimal(0)) if field.lower >= 0 else ValueRange()


class _OfValues(Aggregate):
    """An aggregate of how often each value occurs."""

    takes = ANY_FIELD
    needs_raw_events = True
    digits: ClassVar[int] = 0

    def __init__(self, operation: int, description: str, phrase: str) -> None:
        self._component = Component(operation, "digest_high", "digest_low")
        self.made_of = (self._component,)
        self.description, self.phrase = description, phrase

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        valid = self._is_there(computed[self._component])
        return as_values(computed[self._component], None, self.digits)._replace(valid=valid, may_be_null=~valid)

    @abstractmethod
    def _is_there(self, found: Computed) -> Flags: ...


class _Entropy(_OfValues):
    digits = ENTROPY_DIGITS

    def _is_there(self, found: Computed) -> Flags:
        return found.event_count > 0

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        if not len(events):
            return NO_EVENT
        logs = sum(_log(times) for times in Counter(events.values).values())
        return plain_number(_entropy(len(events), logs), ENTROPY_DIGITS)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return ValueRange(Decimal(0), may_be_null=not counts_itself or field.may_be_null)


class _Rank(_OfValues):
    needs_own_event = True
    null_when = "if the event itself does not count, or has no value"

    def _is_there(self, found: Computed) -> Flags:
        return found.whole > 0

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        if events.own is None:
            return _NOT_COUNTED
        times, own = Counter(events.others().values), events.values[events.own]
        return plain_number(1 + sum(each > times[own] for each in times.values()), 0)

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        return ValueRange(Decimal(1), digits=0, may_be_null=not counts_itself or field.may_be_null)


AGGREGATES: dict[str, Aggregate] = {
    "decayed_count": _Decayed(of_field=False),
    "decayed_sum": _Decayed(of_field=True),
    "entropy": _Entropy(
        ENTROPY,
        "How evenly events are spread over values, in bits at 6 digits: 0 where all have the same one.",
        "the entropy of",
    ),
    "rank": _Rank(
        RANK,
        "How many values are more frequent among the other events than this event's, and 1: `rank <= 3` says that it "
        "is one of the three most frequent. NULL at an event that the filter leaves out.",
        "the rank by frequency of this value of",
    ),
}
