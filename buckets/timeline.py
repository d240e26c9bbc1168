"""A timeline under work: the cells of one key, oldest to newest, and what makes each window cost the same.

Every window of an event that is not late is a suffix of the timeline: all cells from its edge on. So

- a *sum* is a difference of two running totals, whatever the window's length;
- a *minimum* is the first entry at or after the edge of one stack: the cells that are smaller than every later cell.
  All windows share the stack. With cells `5 2 7 3 4` it holds `2 3 4`; from the third cell on the minimum is 3.

Running totals are exact beyond 64 bits: each is a pair `high * 2**32 + low`, so that a sum that does not fit is
noticed, never wrapped. Appending costs O(1) amortised, inserting late costs O(cells behind it).
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import compiled, leaf

LOW_BITS: Final = 32
LOW_MASK: Final = 2**32 - 1


class Timeline(NamedTuple):
    """Cells as flat arrays, with room for `capacity` cells and `columns` measures.

    Attributes:
        size: int64 `(1,)`, the number of cells.
        times_ms: int64 `(capacity,)`, sorted.
        id_start: int64 `(capacity,)`, where the cell's event id begins in the pool of ids.
        id_length: int64 `(capacity,)`, its length in bytes.
        values: int64 `(columns, capacity)`, scaled measures.
        total_high: int64 `(columns, capacity + 1)`, totals of all cells before this one, upper part.
        total_low: int64 `(columns, capacity + 1)`, lower part.
        stack: int64 `(2, columns, capacity)`, cells smaller (0) or larger (1) than every later one.
        stack_size: int64 `(2, columns)`.
        needs_extremes: bool `(columns,)`, whether the stacks of a column are kept.
    """

    size: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    id_start: npt.NDArray[np.int64]
    id_length: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    total_high: npt.NDArray[np.int64]
    total_low: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]
    stack_size: npt.NDArray[np.int64]
    needs_extremes: npt.NDArray[np.bool_]


@compiled
def new_timeline(capacity, needs_extremes):
    """An empty timeline with room for `capacity` cells, one column for each element of `needs_extremes`."""
    columns = needs_extremes.shape[0]
    return Timeline(
        np.zeros(1, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty((columns, capacity), np.int64),
        np.zeros((columns, capacity + 1), np.int64),
        np.zeros((columns, capacity + 1), np.int64),
        np.empty((2, columns, capacity), np.int64),
        np.zeros((2, columns), np.int64),
        needs_extremes,
    )


@leaf
def first_at_or_after(timeline: Timeline, time_ms) -> int:
    """The first cell with a time of `time_ms` or later. Cost: O(log cells)."""
    low, high = 0, timeline.size[0]
    while low < high:
        middle = (low + high) // 2
        if timeline.times_ms[middle] < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


@leaf
def _precedes(side, value, other):
    """Whether `value` is strictly smaller (side 0) or larger (side 1) than `other`."""
    return value < other if side == 0 else value > other


@leaf
def _stack_push(timeline: Timeline, side, column, cell):
    """Put the newest cell on a stack: first take off those that it makes useless."""
    stack, values = timeline.stack[side, column], timeline.values[column]
    size = timeline.stack_size[side, column]
    while size > 0 and not _precedes(side, values[stack[size - 1]], values[cell]):
        size -= 1
    stack[size] = cell
    timeline.stack_size[side, column] = size + 1


@leaf
def _stack_insert(timeline: Timeline, side, column, cell):
    """Take in a cell that was inserted among others; places from `cell` on have moved up by one."""
    stack, values = timeline.stack[side, column], timeline.values[column]
    size = timeline.stack_size[side, column]
    behind = size
    while behind > 0 and stack[behind - 1] >= cell:
        behind -= 1
        stack[behind] += 1
    if behind < size and not _precedes(side, values[cell], values[stack[behind]]):
        return
    before = behind
    while before > 0 and not _precedes(side, values[stack[before - 1]], values[cell]):
        before -= 1
    moved = size - behind
    if before == behind:
        for entry in range(size - 1, behind - 1, -1):
            stack[entry + 1] = stack[entry]
    else:
        for entry in range(moved):
            stack[before + 1 + entry] = stack[behind + entry]
    stack[before] = cell
    timeline.stack_size[side, column] = before + 1 + moved


@leaf
def _add_totals(timeline: Timeline, first):
    """Recompute the running totals behind cell `first` on."""
    for column in range(timeline.values.shape[0]):
        high, low = timeline.total_high[column], timeline.total_low[column]
        for cell in range(first, timeline.size[0]):
            value = timeline.values[column, cell]
            high[cell + 1] = high[cell] + (value >> LOW_BITS)
            low[cell + 1] = low[cell] + (value & LOW_MASK)


@leaf
def rebuild(timeline: Timeline) -> None:
    """Recompute totals and stacks from the cells. Cost: O(cells)."""
    _add_totals(timeline, 0)
    for column in range(timeline.values.shape[0]):
        if timeline.needs_extremes[column]:
            for side in range(2):
                timeline.stack_size[side, column] = 0
                for cell in range(timeline.size[0]):
                    _stack_push(timeline, side, column, cell)


@leaf
def insert(timeline: Timeline, cell, time_ms, id_start, id_length, values, event) -> None:
    """Put an event at place `cell`, which keeps the times sorted.

    Args:
        timeline: the cells; must have room for one more.
        cell: 0 to size.
        time_ms: the event's time.
        id_start: where its id begins in the pool.
        id_length: its id's length in bytes.
        values: int64 `(columns, events)`, scaled measures of many events.
        event: which of them.
    """
    size = timeline.size[0]
    for place in range(size, cell, -1):
        timeline.times_ms[place] = timeline.times_ms[place - 1]
        timeline.id_start[place] = timeline.id_start[place - 1]
        timeline.id_length[place] = timeline.id_length[place - 1]
    timeline.times_ms[cell] = time_ms
    timeline.id_start[cell] = id_start
    timeline.id_length[cell] = id_length
    timeline.size[0] = size + 1
    for column in range(timeline.values.shape[0]):
        for place in range(size, cell, -1):
            timeline.values[column, place] = timeline.values[column, place - 1]
        timeline.values[column, cell] = values[column, event]
        if timeline.needs_extremes[column]:
            for side in range(2):
                if cell == size:
                    _stack_push(timeline, side, column, cell)
                else:
                    _stack_insert(timeline, side, column, cell)
    _add_totals(timeline, cell)


@leaf
def remove(timeline: Timeline, cell) -> None:
    """Take a cell out again. Cost: O(cells); for the rare event that turns out to be malformed."""
    size = timeline.size[0] - 1
    for place in range(cell, size):
        timeline.times_ms[place] = timeline.times_ms[place + 1]
        timeline.id_start[place] = timeline.id_start[place + 1]
        timeline.id_length[place] = timeline.id_length[place + 1]
        for column in range(timeline.values.shape[0]):
            timeline.values[column, place] = timeline.values[column, place + 1]
    timeline.size[0] = size
    rebuild(timeline)


@leaf
def total(timeline: Timeline, column, first, end):
    """The exact sum of cells `[first, end)`.

    Returns:
        The sum, and whether it fits 64 bits; where it does not, the sum is 0.
    """
    high = timeline.total_high[column, end] - timeline.total_high[column, first]
    low = timeline.total_low[column, end] - timeline.total_low[column, first]
    high += low >> LOW_BITS
    if high < -(2**31) or high >= 2**31:
        return np.int64(0), False
    return (high << LOW_BITS) | (low & LOW_MASK), True


@leaf
def extreme(timeline: Timeline, side, column, first, end):
    """The least (side 0) or greatest (side 1) value of cells `[first, end)`, which is not empty.

    Cost: O(log cells) for a suffix of the timeline, O(end - first) for a stretch that ends earlier.
    """
    values = timeline.values[column]
    if end < timeline.size[0]:
        best = values[first]
        for cell in range(first + 1, end):
            if _precedes(side, values[cell], best):
                best = values[cell]
        return best
    stack = timeline.stack[side, column]
    low, high = np.int64(0), timeline.stack_size[side, column] - 1
    while low < high:
        middle = (low + high) // 2
        if stack[middle] < first:
            low = middle + 1
        else:
            high = middle
    return values[stack[low]]
