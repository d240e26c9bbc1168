"""The value of a function over some events, computed plainly: a loop over a list, in exact numbers.

It shares nothing with the kernel, whose values it is compared with.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from math import ceil
from typing import Any, Final

_ENOUGH_DIGITS: Final = 400
"""More than any sum of squares has, so that nothing is rounded before its last digit is known."""
_EXTRA_DIGITS: Final = 6
"""What an average, a variance or a deviation has more than what it is made of."""
NO_EVENT = "no event in its window counts"


@dataclass(frozen=True)
class CountedEvents:
    """The events that a function counts, by time and those of one time as they arrived.

    Attributes:
        times_ms: when each happened.
        values: the value of each, an integer of a measure or a `long`; None where the function looks at no field.
        own: the index of the event whose window it is; None where it does not count itself.
        end_ms: the time of that event.
    """

    times_ms: Sequence[int]
    values: Sequence[Any]
    own: int | None
    end_ms: int

    def __len__(self) -> int:
        """How many there are."""
        return len(self.times_ms)

    def others(self) -> "CountedEvents":
        """All but the event itself."""
        if self.own is None:
            return self
        times_ms, values = list(self.times_ms), list(self.values)
        del times_ms[self.own], values[self.own]
        return CountedEvents(times_ms, values, None, self.end_ms)


@dataclass(frozen=True)
class PlainValue:
    """A value.

    Attributes:
        exact: to the last digit, unrounded where it is a quotient; None where there is none.
        shown: as results show it; a truth of a boolean function.
        why_null: why there is none.
    """

    exact: Fraction | bool | None
    shown: Decimal | bool | None
    why_null: str | None = None


def plain_value(function: str, events: CountedEvents, scale: int, per_cent: Decimal | None = None) -> PlainValue:
    """The value of a function.

    Args:
        function: its name, as rules write it.
        events: what it counts.
        scale: digits after the point of the values.
        per_cent: of a percentile.
    """
    if function == "is_first":
        is_first = not len(events.others())
        return PlainValue(is_first, is_first)
    if function in ("count", "same_count"):
        return _number(Fraction(len(events)), 0)
    if function == "count_distinct":
        return _number(Fraction(len(set(events.values))), 0)
    if function in ("previous", "time_since_previous"):
        events, lacking = events.others(), "no event before this one counts"
    else:
        lacking = NO_EVENT
    if function in ("variance", "stddev") and len(events) == 1:
        return PlainValue(None, None, "only one event in its window counts, and it takes two")
    if not len(events):
        return PlainValue(None, None, lacking)
    if function in ("time_since_first", "time_since_previous"):
        since_ms = events.times_ms[0 if function == "time_since_first" else -1]
        return _number(Fraction(events.end_ms - since_ms, 1000), 3)
    if function == "stddev":
        return _deviation(events.values, scale)
    if function == "percentile":
        assert per_cent is not None
        return _number(_percentile(events.values, per_cent) / 10**scale, scale)
    compute, extra = _OF_VALUES[function]
    digits = 2 * scale + extra if function == "variance" else scale + extra
    return _number(compute(events.values) / 10 ** (2 * scale if function == "variance" else scale), digits)


def _number(exact: Fraction, digits: int) -> PlainValue:
    return PlainValue(exact, rounded(exact, digits))


def rounded(exact: Fraction, digits: int) -> Decimal:
    """A number with so many digits after the point, rounded half to even."""
    with localcontext(Context(prec=_ENOUGH_DIGITS, rounding=ROUND_HALF_EVEN)):
        return Decimal(round(exact * 10**digits)).scaleb(-digits)


def _average(values: Sequence[int]) -> Fraction:
    return Fraction(sum(values), len(values))


def _variance(values: Sequence[int]) -> Fraction:
    mean = _average(values)
    if mean.denominator == 1:
        return Fraction(sum((value - mean.numerator) ** 2 for value in values), len(values) - 1)
    count, total = len(values), sum(values)
    return Fraction(count * sum(value * value for value in values) - total * total, count * (count - 1))


def _deviation(values: Sequence[int], scale: int) -> PlainValue:
    exact = _variance(values) / 100**scale
    with localcontext(Context(prec=_ENOUGH_DIGITS)):
        root = (Decimal(exact.numerator) / Decimal(exact.denominator)).sqrt()
        shown = root.quantize(Decimal(1).scaleb(-scale - _EXTRA_DIGITS), ROUND_HALF_UP)
    return PlainValue(Fraction(shown), shown)


def _median(values: Sequence[int]) -> Fraction:
    ordered = sorted(values)
    return Fraction(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2], 2)


def _percentile(values: Sequence[int], per_cent: Decimal) -> Fraction:
    ordered = sorted(values)
    return Fraction(ordered[max(ceil(Fraction(per_cent) * len(ordered) / 100), 1) - 1])


def _mode(values: Sequence[int]) -> Fraction:
    found = Counter(values)
    most = max(found.values())
    return Fraction(min(value for value, times in found.items() if times == most))


_OF_VALUES: Final[dict[str, tuple[Callable[[Sequence[int]], Fraction], int]]] = {
    "sum": (lambda values: Fraction(sum(values)), 0),
    "min": (lambda values: Fraction(min(values)), 0),
    "max": (lambda values: Fraction(max(values)), 0),
    "first": (lambda values: Fraction(values[0]), 0),
    "last": (lambda values: Fraction(values[-1]), 0),
    "previous": (lambda values: Fraction(values[-1]), 0),
    "avg": (_average, _EXTRA_DIGITS),
    "variance": (_variance, _EXTRA_DIGITS),
    "median": (_median, 1),
    "mode": (_mode, 0),
}
"""What functions make of values as integers, and how many digits more than these the result has."""
