"""Aggregates computed plainly: a loop over a list of events, in exact numbers.

It shares nothing with the kernel, whose values are compared with its own when an event is explained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

ENOUGH_DIGITS: Final = 400
"""More than any sum of squares has, so that nothing is rounded before its last digit is known."""


@dataclass(frozen=True)
class CountedEvents:
    """The events that an aggregate counts, by time, then by arrival."""

    times_ms: Sequence[int]  # when each happened
    # the value of each: an integer of a measure or a `long`, a text, or a boolean; of a sequence which steps it passes;
    # None where it looks at no field
    values: Sequence[Any]
    own: int | None  # the index of the event whose window it is; None where it does not count itself
    end_ms: int  # the time of that event
    # of a window of periods, when those that count begin, oldest first, and when the last one ends
    borders_ms: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.times_ms)

    def others(self) -> "CountedEvents":
        """Return all but the event itself."""
        if self.own is None:
            return self
        times_ms, values = list(self.times_ms), list(self.values)
        del times_ms[self.own], values[self.own]
        return CountedEvents(times_ms, values, None, self.end_ms)


@dataclass(frozen=True)
class PlainValue:
    """A value."""

    exact: Fraction | bool | str | None  # to the last digit, unrounded where it is a quotient; None where there is none
    shown: Decimal | bool | str | None  # as results show it
    why_null: str | None = None  # why there is none


NO_EVENT: Final = PlainValue(None, None, "no event in its window counts")
NOT_SO: Final = PlainValue(None, None, "no time in which something had to follow is over with this event")
NONE_BEFORE: Final = PlainValue(None, None, "no event before this one counts")


def plain_value(value: Fraction | int | bool | str, scale: int, extra_digits: int = 0) -> PlainValue:
    """Return a value of a field: a text or a boolean unchanged, a number as in `plain_number`."""
    return PlainValue(value, value) if isinstance(value, bool | str) else plain_number(value, scale, extra_digits)


def plain_number(scaled: Fraction | int, scale: int, extra_digits: int = 0) -> PlainValue:
    """Convert a number in units of `10**-scale` to a value with extra digits, rounded half to even."""
    exact, digits = Fraction(scaled, 10**scale), scale + extra_digits
    with localcontext(Context(prec=ENOUGH_DIGITS, rounding=ROUND_HALF_EVEN)):
        return PlainValue(exact, Decimal(round(exact * 10**digits)).scaleb(-digits))
