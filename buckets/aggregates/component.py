"""The components of aggregates: operations of the kernel, and their values at some events."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Flags, Int32s, Int64s

SUM, COUNT, AVG, MIN, MAX, FIRST, FIRST_TIME, PREVIOUS, PREVIOUS_TIME, COUNT_DISTINCT = range(10)
PERCENTILE, MEDIAN, MODE, PAIRS, SEQUENCE, ABSENCE, PERIODS, DECAYED, ENTROPY, RANK = range(10, 20)
"""The codes of the kernel's operations. Those up to MAX follow from the sums and extremes of cells, and the kernel
compares them with limits itself. Those from FIRST on look at single events, and from COUNT_DISTINCT on at all events of
the window; PAIRS lists these, for filters that compare them with the event itself, SEQUENCE looks for steps, and
ABSENCE for one after which nothing came. PERIODS lists what the periods of a window come to, each from the sums and
extremes of cells. Those after it are computed of pairs."""
WORD: Final = 10**9  # What may pass 64 bits travels as `whole * WORD + micro`
ColumnKind = Literal[
    "value", "one", "least", "greatest", "square_0", "square_1", "square_2", "square_3", "digest_high", "digest_low"
]
"""What a timeline keeps of an event for a feature: the field's value, 1 for an event that counts, a value that is
neutral for min or max for one that does not, 32 bits of a square, or a half of what tells values apart: a text's digest
of 126 bits, or a number and 0."""
SQUARES: Final[tuple[ColumnKind, ...]] = ("square_0", "square_1", "square_2", "square_3")
"""The four words of a square, the lowest first."""
Integers = npt.NDArray[Any]  # int64, or Python integers where 64 bits may not be enough


@dataclass(frozen=True)
class Component:
    """An operation that the kernel computes for an aggregate, over the events that its feature counts."""

    operation: int  # a code from above
    column: ColumnKind | None = None  # of what; None for a count
    second: ColumnKind | None = None  # a second column, where pairs of values are counted
    # of a percentile, which one it is in hundredths of a per cent; of an absence its time in ms; of what decays its
    # half-life in ms; 0 for all else
    parameter: int = 0


EVENTS: Final = Component(COUNT)  # How many events count


class Computed(NamedTuple):
    """A component at some events, with value and bounds from the kernel: arrays `(events,)`; see `Rows`."""

    whole: Integers  # or texts, as objects
    micro: Int32s
    lower_whole: Integers
    lower_micro: Int32s
    upper_whole: Integers
    upper_micro: Int32s
    event_count: Int64s
    count_lower: Int64s
    count_upper: Int64s
    exact: Flags

    @classmethod
    def known(cls, whole: Integers, micro: Int32s, events: Int64s) -> "Computed":
        """Return exact values, which are their own bounds."""
        exact = np.ones(len(events), np.bool_)
        return cls(whole, micro, whole, micro, whole, micro, events, events, events, exact)

    def taken(self, chosen: npt.NDArray[Any]) -> "Computed":
        """Return the component at the events that a numpy index selects."""
        return Computed(*(column[chosen] for column in self))


COMPUTED: Final = Computed._fields  # The names of the columns of a component
_NOTHING = np.empty(0, np.int64)
NOTHING_COMPUTED: Final = Computed.known(_NOTHING, _NOTHING.astype(np.int32), _NOTHING)  # A component at no events


class EventCounts(NamedTuple):
    """How many events a feature counts, with lower and upper bound: int64 arrays `(events,)`."""

    whole: Int64s
    fewest: Int64s
    most: Int64s


def with_value(component: Computed, count: Computed) -> EventCounts:
    """Return how many of the events that `count` counts have a value in the field of a component.

    The component has the number of all events of the window with a value, including those that do not count; events
    without a value all count.
    """
    fewest = count.lower_whole - (count.count_lower - component.count_lower)
    most = count.upper_whole - (count.count_upper - component.count_upper)
    # The number is shared out for an uncertain edge, each part for itself.
    whole = np.clip(count.whole - (count.event_count - component.event_count), fewest, most)
    return EventCounts(whole, fewest, most)


def joined(whole: Int64s, micro: Int32s, digits: int) -> Integers:
    """Join wholes and millionths to one integer in units of `10**-digits`."""
    unit, rest = 10**digits, micro // np.int32(10 ** (6 - digits))
    # Of the least integer numpy's absolute value is negative.
    largest = max(abs(int(whole.min())), abs(int(whole.max()))) if len(whole) else 0
    if largest < 2**63 // unit - 1:
        narrow: Int64s = whole * unit + rest
        return narrow
    return fitted(whole.astype(object) * unit + rest)


def in_words(numbers: Integers) -> tuple[Int64s, Int32s]:
    """Split numbers into two words each; OverflowError if a number is too large."""
    whole = numbers // WORD
    return np.asarray(whole, np.int64), np.asarray(numbers - whole * WORD, np.int32)


def from_words(whole: Integers, micro: Int32s) -> Integers:
    """Join two words to a number each."""
    if len(whole) and max(abs(int(whole.min())), abs(int(whole.max()))) < 2**62 // WORD:
        return whole * WORD + micro
    return fitted(whole.astype(object) * WORD + micro)


def fitted(numbers: Integers) -> Integers:
    """Return Python integers as int64 where all of them fit."""
    if numbers.dtype != object or not len(numbers):
        return numbers.astype(np.int64)
    return numbers.astype(np.int64) if numbers.min() >= -(2**63) and numbers.max() < 2**63 else numbers
