"""Features over the values of periods: aggregates of the values that the kernel lists for the periods of windows.

Events in the same period share a list, so each list is aggregated once.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.aggregates.component import (
    AVG,
    COUNT,
    MAX,
    MEDIAN,
    MIN,
    SQUARES,
    SUM,
    Component,
    Computed,
    Integers,
    in_words,
)
from buckets.arrays import Flags, Int64s
from buckets.kernel.listed_periods import EVENTS, FEWEST, LOWER, MAYBE, MOST, SIZE, UPPER, VALUE
from buckets.kernel.result_rows import Rows
from buckets.numbers.fixed_point import AVERAGE_FACTOR
from buckets.rules.feature import Part

_WORDS = {SUM: 2**32, AVG: AVERAGE_FACTOR}  # How many of the second word of a value make one of the first; else 1
_FITS = 2**62  # What is smaller may be added once more, and still fits 64 bits
_ALL = 10_000  # Hundredths of a per cent in all


class _Listed(NamedTuple):
    """The periods of some lists, one list after the other."""

    of: Int64s  # int64 `(periods,)`, ascending, the list of each
    values: tuple[Integers, Integers, Integers]  # `(periods,)` each: value, and the least and the greatest it can be
    valid: Flags  # bool `(periods,)`, whether it has a value
    is_sure: Flags  # whether it surely has one
    may_be: Flags  # whether it may have one
    events: tuple[Int64s, Int64s, Int64s]  # how many events it is of, and the fewest and the most


def compute_over_periods(part: Part, rows: Rows, listed: Int64s) -> Computed:
    """Compute a part over periods at its rows, as numbers `whole * WORD + micro`."""
    assert part.over is not None
    begins, first, of_row = np.unique(rows.whole, return_index=True, return_inverse=True)
    periods, lists = _read(part.operation, begins, rows.event_count[first], listed), len(begins)
    least_of, greatest_of = periods.is_sure, periods.may_be
    value = _over(part.over, periods.of[periods.valid], periods.values[0][periods.valid], lists)
    lower = upper = value
    exact = np.ones(lists, np.bool_)
    unsure = (periods.values[1] != periods.values[2]) | (least_of != greatest_of)
    if unsure.any():
        lower, upper = _bounds(part.over, periods, lists)
        exact[periods.of[unsure]] = False
        lower, upper = np.where(exact, value, lower), np.where(exact, value, upper)
    counts = [np.zeros(lists, np.int64) for _ in periods.events]
    for count, events in zip(counts, periods.events, strict=True):
        np.add.at(count, periods.of, events)
    words = (word for number in (value, lower, upper) for word in in_words(number))
    columns: list[npt.NDArray[Any]] = [*words, *counts, exact]
    return Computed(*(column[of_row] for column in columns))


def _read(operation: int, begins: Int64s, sizes: Int64s, listed: Int64s) -> _Listed:
    """Read the periods of lists, which begin at `begins` and have `sizes` periods."""
    of = np.repeat(np.arange(len(begins)), sizes)
    at = begins[of] + (np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)) * SIZE
    unit = _WORDS.get(operation, 1)
    first, second = listed[at + VALUE], listed[at + VALUE + 1]
    value = lower = upper = _numbers(first, second, unit)
    is_known = listed[at + FEWEST] == listed[at + MOST]
    if not is_known.all():
        ends = (_numbers(listed[at + side], listed[at + side + 1], unit) for side in (LOWER, UPPER))
        lower, upper = (np.where(is_known, value, end) for end in ends)
    maybe, events = listed[at + MAYBE] == 1, (listed[at + EVENTS], listed[at + FEWEST], listed[at + MOST])
    if operation in (COUNT, SUM):
        everywhere = np.ones(len(of), np.bool_)
        return _Listed(of, (value, lower, upper), everywhere, ~maybe, everywhere, events)
    some, surely, maybe_some = (counted > 0 for counted in events)
    return _Listed(of, (value, lower, upper), some, surely & ~maybe, maybe_some, events)


def _numbers(first: Int64s, second: Int64s, unit: int) -> Integers:
    """Join two words to a number each; as Python integers if 64 bits may not suffice."""
    if _largest(first) * unit + _largest(second) < _FITS:
        return first * unit + second
    return first.astype(object) * unit + second


def _largest(numbers: Integers) -> int:
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) if len(numbers) else 0


def _over(component: Component, of: Int64s, values: Integers, lists: int) -> Integers:
    """Compute a component over the values of each list, as Python integers; 0 for an empty list."""
    found: Integers = np.zeros(lists, object)
    begin = np.flatnonzero(np.diff(of, prepend=-1))
    if component.operation == COUNT:
        return np.bincount(of, minlength=lists).astype(object)
    if not len(of):
        return found
    if component.operation == SUM:
        most, is_square = int(np.diff(begin, append=len(of)).max()), component.column != "value"
        exact = values if _largest(values) ** (1 + is_square) * most < _FITS else values.astype(object)
        found[of[begin]] = np.add.reduceat(exact * exact if is_square else exact, begin)
        return _word(component, found) if is_square else found
    order = np.lexsort((values, of)) if values.dtype != object else _sorted(of, values)
    size, ranked = np.diff(begin, append=len(of)), values[order]
    if component.operation == MEDIAN:
        found[of[begin]] = (ranked[begin + (size - 1) // 2].astype(object) + ranked[begin + size // 2]) * 5
    elif component.operation in (MIN, MAX):
        found[of[begin]] = ranked[begin if component.operation == MIN else begin + size - 1]
    else:
        found[of[begin]] = ranked[begin + (size * component.parameter + _ALL - 1) // _ALL - 1]
    return found


def _sorted(of: Int64s, values: Integers) -> Int64s:
    """Sort Python integers by list, then by value; return their order."""
    return np.array(sorted(range(len(of)), key=lambda index: (of[index], values[index])), np.int64)


def _word(component: Component, squares: Integers) -> Integers:
    """Return the word of sums of squares that a component asks for: 32 bits, or all above the lowest 96."""
    shift = 32 * SQUARES.index(component.column)
    return squares >> shift if shift == 96 else (squares >> shift) & 0xFFFFFFFF


def _bounds(component: Component, periods: _Listed, lists: int) -> tuple[Integers, Integers]:
    """Return the least and the greatest value of a component for all possible values of periods."""
    (_, least, greatest), is_sure, may_be, of = periods.values, periods.is_sure, periods.may_be, periods.of
    if component.operation == COUNT:
        return _over(component, of[is_sure], least[is_sure], lists), _over(component, of[may_be], least[may_be], lists)
    if component.operation == SUM and component.column != "value":
        is_near_zero = (least <= 0) & (greatest >= 0)
        ends = np.maximum(abs(least), abs(greatest)), np.where(is_near_zero, 0, np.minimum(abs(least), abs(greatest)))
        greatest, least = ends
    if component.operation == SUM:
        least, greatest = (
            np.where(is_sure, least, np.minimum(least, 0)),
            np.where(is_sure, greatest, np.maximum(greatest, 0)),
        )
        return _over(component, of[may_be], least[may_be], lists), _over(component, of[may_be], greatest[may_be], lists)
    ends_of = Component(MIN, "value"), Component(MAX, "value")
    factor = 10 if component.operation == MEDIAN else 1
    lower, upper = (
        _over(end, of[may_be], side[may_be], lists) * factor
        for end, side in zip(ends_of, (least, greatest), strict=True)
    )
    has_sure = np.bincount(of[is_sure], minlength=lists) > 0
    if component.operation == MIN:
        upper = np.where(has_sure, _over(ends_of[0], of[is_sure], greatest[is_sure], lists), upper)
    if component.operation == MAX:
        lower = np.where(has_sure, _over(ends_of[1], of[is_sure], least[is_sure], lists), lower)
    return lower, upper
