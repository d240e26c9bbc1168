"""A timeline in memory: the cells of one key, oldest to newest, and derived arrays that make long windows cheap.

A cell stands for adjacent events: one raw event, a bucket of them, or a whole page that was left in the state store. It
has the first and last time, the number of events, and for each measure the sum of positive values, the sum of negative
ones, the least and the greatest value, and the number of events without one. Every window of an event that is not late
is a suffix of the timeline: all cells from its edge on. So

- a *count* and a *sum* are differences of two running totals, whatever the window's length;
- a *minimum* is the first entry at or after the edge in a stack of the cells that are smaller than every later cell.
  All windows share the stack. With cells `5 2 7 3 4` it holds `2 3 4`; from the third cell on the minimum is 3.

An event without a value adds nothing to sums. Its least value is the greatest integer and its greatest value the least
one, so it never is a minimum or maximum; no other cell has least above greatest.

A text is known by its place in the pool; two cells may have different places for equal texts. Buckets have none.

Sums are exact beyond 64 bits, see `wide_sum`. Appending costs O(1) amortised, inserting late costs O(cells after it).
"""

from typing import Final, NamedTuple

import numpy as np

from buckets.arrays import Flags, Int32s, Int64s
from buckets.byte_strings import same_bytes
from buckets.compiled import allocating, inlined, leaf
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.numbers.wide_sum import LOW_BITS, LOW_MASK, join

NO_ID: Final = -1  # The id length of a cell that is not a raw event
HOT: Final = -1  # The owner of a cell that is in no page
UNKNOWN: Final = -1
_TEXT_BITS: Final = 30
_TEXT_LENGTH: Final = (1 << _TEXT_BITS) - 1


class Timeline(NamedTuple):
    """Cells as flat arrays, with room for `capacity` cells and `columns` measures."""

    size: Int64s  # int64 `(1,)`, the number of cells
    first_ms: Int64s  # int64 `(capacity,)`, sorted
    last_ms: Int64s  # int64 `(capacity,)`, sorted; the same as `first_ms` in a raw event
    # int32 `(capacity,)`, the directory entry of the cell's page; HOT for none
    owner: Int32s
    id_start: Int64s  # int64 `(capacity,)`, where the cell's event id begins in the pool
    id_length: Int64s  # int64 `(capacity,)`, its length in bytes; NO_ID if the cell is not a raw event
    prefix_count: Int64s  # int64 `(capacity + 1,)`, events in all cells before this one
    extremes: Int64s  # int64 `(2, columns, capacity)`, least (0) and greatest (1) value
    # int64 `(2, columns, capacity)`, sum of the positive values as a normal pair; not set in raw events
    plus: Int64s
    # int64 `(2, columns, capacity)`, sum of the negative values without its sign, likewise
    minus: Int64s
    nulls: Int64s  # int64 `(columns, capacity)`, how many events have no value; not set in raw events
    # int64 `(columns, capacity + 1)`, totals of all cells before this one, upper part
    total_high: Int64s
    total_low: Int64s  # int64 `(columns, capacity + 1)`, lower part
    # int64 `(columns, capacity + 1)`, events without a value in all cells before this one
    total_nulls: Int64s
    stack: Int64s  # int64 `(2, columns, capacity)`, cells smaller (0) or larger (1) than every later one
    stack_size: Int64s  # int64 `(2, columns)`
    # int64 `(2, 2, columns)`, for each stack before the newest cell came: its size, or UNKNOWN, and the entry that the
    # newest one has replaced
    before_newest: Int64s
    needs_extremes: Flags  # bool `(columns,)`, whether the stacks of a column are kept
    is_text: Flags  # bool `(columns,)`, whether the values of a column are places of texts


@allocating
def new_timeline(capacity, needs_extremes, is_text):
    """Allocate an empty timeline of `capacity` cells, with one column for each element of `needs_extremes`."""
    columns = needs_extremes.shape[0]
    return Timeline(
        np.zeros(1, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.zeros(capacity + 1, np.int64),
        np.empty((2, columns, capacity), np.int64),
        np.empty((2, columns, capacity), np.int64),
        np.empty((2, columns, capacity), np.int64),
        np.empty((columns, capacity), np.int64),
        np.zeros((columns, capacity + 1), np.int64),
        np.zeros((columns, capacity + 1), np.int64),
        np.zeros((columns, capacity + 1), np.int64),
        np.empty((2, columns, capacity), np.int64),
        np.zeros((2, columns), np.int64),
        np.full((2, 2, columns), UNKNOWN),
        needs_extremes,
        is_text,
    )


@inlined
def text_place(start, length):
    """Return the place of a text, its start and length in the pool, as one number; 0 for an empty text."""
    return (np.int64(start) << _TEXT_BITS) | np.int64(length)


@inlined
def text_start(place):
    """Return where a text begins in the pool."""
    return place >> _TEXT_BITS


@inlined
def text_length(place):
    """Return how many bytes a text has."""
    return place & _TEXT_LENGTH


@inlined
def same_texts(pool, place, other):
    """Return whether two places hold the same text."""
    if place == other:
        return True
    length = text_length(place)
    return length == text_length(other) and same_bytes(pool, text_start(place), pool, text_start(other), length)


@inlined
def is_raw(timeline: Timeline, cell):
    """Return whether a cell is one raw event."""
    return timeline.id_length[cell] != NO_ID


@inlined
def is_null(timeline: Timeline, column, cell):
    """Return whether no event of a cell has a value."""
    return timeline.extremes[0, column, cell] > timeline.extremes[1, column, cell]


@inlined
def set_null(timeline: Timeline, column, cell) -> None:
    """Set the value of a raw event to null."""
    timeline.extremes[0, column, cell] = INT64_MAX
    timeline.extremes[1, column, cell] = INT64_MIN


@inlined
def forget_text(timeline: Timeline, column, cell) -> None:
    """Reduce the text of a raw event to whether it has one, before the event joins a bucket."""
    if timeline.is_text[column] and not is_null(timeline, column, cell):
        timeline.extremes[0, column, cell] = 0
        timeline.extremes[1, column, cell] = 0


@inlined
def set_value(timeline: Timeline, column, cell, values, nulls, event) -> None:
    """Set the value of a raw event from that of an arriving one, which may be null."""
    timeline.extremes[0, column, cell] = values[column, event]
    timeline.extremes[1, column, cell] = values[column, event]
    if nulls[column, event]:
        set_null(timeline, column, cell)


@inlined
def clear(timeline: Timeline) -> None:
    """Remove all cells."""
    timeline.size[0] = 0
    timeline.stack_size[:] = 0


@inlined
def first_ending_at_or_after(timeline: Timeline, time_ms) -> int:
    """Return the first cell with a last time of `time_ms` or later. Cost: O(log cells)."""
    low, high = 0, timeline.size[0]
    while low < high:
        middle = (low + high) // 2
        if timeline.last_ms[middle] < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def find_id(timeline: Timeline, first, time_ms, pool, id_start, id_length):
    """Return the raw cell at `time_ms`, from `first` on, with this id; -1 for none."""
    cell = first
    while cell < timeline.size[0] and timeline.first_ms[cell] <= time_ms:
        has_length = timeline.id_length[cell] == id_length
        if has_length and same_bytes(pool, id_start, pool, timeline.id_start[cell], id_length):
            return cell
        cell += 1
    return -1


@inlined
def _precedes(side, value, other):
    """Return whether `value` is strictly smaller (side 0) or larger (side 1) than `other`."""
    return value < other if side == 0 else value > other


@inlined
def _stack_push(timeline: Timeline, side, column, cell):
    """Push the newest cell on a stack, after popping those that it makes useless."""
    stack, values = timeline.stack[side, column], timeline.extremes[side, column]
    size = timeline.stack_size[side, column]
    timeline.before_newest[0, side, column] = size
    while size > 0 and not _precedes(side, values[stack[size - 1]], values[cell]):
        size -= 1
    timeline.before_newest[1, side, column] = stack[size]
    stack[size] = cell
    timeline.stack_size[side, column] = size + 1


@leaf
def _stack_insert(timeline: Timeline, side, column, cell):
    """Update a stack for an inserted cell, which has moved positions from `cell` on up by one."""
    stack, values = timeline.stack[side, column], timeline.extremes[side, column]
    size = timeline.stack_size[side, column]
    timeline.before_newest[0, side, column] = UNKNOWN
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


@inlined
def _add_totals(timeline: Timeline, first):
    """Recompute the running totals from cell `first` on; `prefix_count` is not changed."""
    for column in range(timeline.extremes.shape[1]):
        high, low, nulls = timeline.total_high[column], timeline.total_low[column], timeline.total_nulls[column]
        for cell in range(first, timeline.size[0]):
            if is_raw(timeline, cell):
                without = is_null(timeline, column, cell)
                value = np.int64(0) if without else timeline.extremes[0, column, cell]
                nulls[cell + 1] = nulls[cell] + without
                high[cell + 1] = high[cell] + (value >> LOW_BITS)
                low[cell + 1] = low[cell] + (value & LOW_MASK)
            else:
                nulls[cell + 1] = nulls[cell] + timeline.nulls[column, cell]
                high[cell + 1] = high[cell] + timeline.plus[0, column, cell] - timeline.minus[0, column, cell]
                low[cell + 1] = low[cell] + timeline.plus[1, column, cell] - timeline.minus[1, column, cell]


@inlined
def push(timeline: Timeline, events) -> None:
    """Append the cell that was written after the last one, with this many events. Cost: O(1) amortised."""
    cell = timeline.size[0]
    timeline.prefix_count[cell + 1] = timeline.prefix_count[cell] + events
    timeline.size[0] = cell + 1
    _add_totals(timeline, cell)
    for column in range(timeline.extremes.shape[1]):
        if timeline.needs_extremes[column]:
            for side in range(2):
                _stack_push(timeline, side, column, cell)


@leaf
def rebuild(timeline: Timeline) -> None:
    """Recompute totals and stacks from the cells. Cost: O(cells)."""
    _add_totals(timeline, 0)
    for column in range(timeline.extremes.shape[1]):
        if timeline.needs_extremes[column]:
            for side in range(2):
                timeline.stack_size[side, column] = 0
                for cell in range(timeline.size[0]):
                    _stack_push(timeline, side, column, cell)


@inlined
def forget_cells(sums, at) -> None:
    """Clear the sums of a page or a stretch, at index `at`."""
    sums.event_count[at] = 0
    for column in range(sums.nulls.shape[0]):
        sums.extremes[0, column, at] = INT64_MAX
        sums.extremes[1, column, at] = INT64_MIN
        sums.nulls[column, at] = 0
        for member in range(2):
            sums.plus[member, column, at] = 0
            sums.minus[member, column, at] = 0


@leaf
def add_cells(sums, at, timeline: Timeline, first, end) -> None:
    """Add cells `[first, end)` to sums at index `at`, which may become not normal. Cost: O(end - first)."""
    sums.event_count[at] += timeline.prefix_count[end] - timeline.prefix_count[first]
    for column in range(timeline.extremes.shape[1]):
        for cell in range(first, end):
            least, greatest = timeline.extremes[0, column, cell], timeline.extremes[1, column, cell]
            sums.extremes[0, column, at] = min(sums.extremes[0, column, at], least)
            sums.extremes[1, column, at] = max(sums.extremes[1, column, at], greatest)
            if not is_raw(timeline, cell):
                sums.nulls[column, at] += timeline.nulls[column, cell]
                for member in range(2):
                    sums.plus[member, column, at] += timeline.plus[member, column, cell]
                    sums.minus[member, column, at] += timeline.minus[member, column, cell]
            elif is_null(timeline, column, cell):
                sums.nulls[column, at] += 1
            elif timeline.is_text[column]:
                continue
            elif least >= 0:
                sums.plus[0, column, at] += least >> LOW_BITS
                sums.plus[1, column, at] += least & LOW_MASK
            else:
                sums.minus[0, column, at] -= least >> LOW_BITS
                sums.minus[1, column, at] -= least & LOW_MASK


@leaf
def copy_columns(source, cell, target, to) -> None:
    """Copy the columns of a combined cell or a directory entry to another one."""
    for column in range(target.extremes.shape[1]):
        for member in range(2):
            target.extremes[member, column, to] = source.extremes[member, column, cell]
            target.plus[member, column, to] = source.plus[member, column, cell]
            target.minus[member, column, to] = source.minus[member, column, cell]
        target.nulls[column, to] = source.nulls[column, cell]


@leaf
def copy_cell(timeline: Timeline, source, target) -> None:
    """Overwrite a cell by another, without updating arrays derived from cells."""
    timeline.first_ms[target] = timeline.first_ms[source]
    timeline.last_ms[target] = timeline.last_ms[source]
    timeline.owner[target] = timeline.owner[source]
    timeline.id_start[target] = timeline.id_start[source]
    timeline.id_length[target] = timeline.id_length[source]
    if not is_raw(timeline, source):
        copy_columns(timeline, source, timeline, target)
        return
    for column in range(timeline.extremes.shape[1]):
        timeline.extremes[0, column, target] = timeline.extremes[0, column, source]
        timeline.extremes[1, column, target] = timeline.extremes[1, column, source]


@inlined
def insert(timeline: Timeline, cell, time_ms, id_start, id_length, values, nulls, event, owner) -> None:
    """Insert a raw event at position `cell`, 0 to size, which must keep times sorted; there must be room for it.

    `values` and `nulls` are those of all arriving events, `(columns, events)`.
    """
    size = timeline.size[0]
    for index in range(size, cell, -1):
        copy_cell(timeline, index - 1, index)
        timeline.prefix_count[index + 1] = timeline.prefix_count[index] + 1
    timeline.first_ms[cell] = time_ms
    timeline.last_ms[cell] = time_ms
    timeline.owner[cell] = owner
    timeline.id_start[cell] = id_start
    timeline.id_length[cell] = id_length
    for column in range(timeline.extremes.shape[1]):
        set_value(timeline, column, cell, values, nulls, event)
    if cell == size:
        push(timeline, np.int64(1))
        return
    timeline.prefix_count[cell + 1] = timeline.prefix_count[cell] + 1
    timeline.size[0] = size + 1
    _add_totals(timeline, cell)
    for column in range(timeline.extremes.shape[1]):
        if timeline.needs_extremes[column]:
            for side in range(2):
                _stack_insert(timeline, side, column, cell)


@leaf
def remove(timeline: Timeline, cell) -> None:
    """Remove a raw event. Cost: O(cells); for the rare event that turns out to be malformed."""
    size = timeline.size[0] - 1
    for index in range(cell, size):
        copy_cell(timeline, index + 1, index)
        timeline.prefix_count[index + 1] = timeline.prefix_count[index + 2] - 1
    timeline.size[0] = size
    rebuild(timeline)


@inlined
def total(timeline: Timeline, column, first, end):
    """Return the exact sum of cells `[first, end)`, and whether it fits 64 bits; the sum is 0 if it does not."""
    return join(
        timeline.total_high[column, end] - timeline.total_high[column, first],
        timeline.total_low[column, end] - timeline.total_low[column, first],
    )


@inlined
def valued(timeline: Timeline, column, first, end):
    """Return how many events of cells `[first, end)` have a value."""
    events = timeline.prefix_count[end] - timeline.prefix_count[first]
    return events - (timeline.total_nulls[column, end] - timeline.total_nulls[column, first])


@inlined
def extreme(timeline: Timeline, side, column, first, end):
    """Return the least (side 0) or greatest (side 1) value of cells `[first, end)`.

    If none of their events has a value, it is the greatest integer (side 0) or the least one (side 1).

    Cost: O(log cells) for a suffix of the timeline, with or without its newest cell; O(end - first) for a stretch that
    ends earlier.
    """
    if end < timeline.size[0] or first == end:
        return _extreme_before(timeline, side, column, first, end)
    stack = timeline.stack[side, column]
    low, high = np.int64(0), timeline.stack_size[side, column] - 1
    while low < high:
        middle = (low + high) // 2
        if stack[middle] < first:
            low = middle + 1
        else:
            high = middle
    return timeline.extremes[side, column, stack[low]]


@leaf
def _extreme_before(timeline: Timeline, side, column, first, end):
    """Return the extreme of cells `[first, end)`, which are empty or end before the timeline does."""
    values, stack = timeline.extremes[side, column], timeline.stack[side, column]
    best = np.int64(INT64_MAX if side == 0 else INT64_MIN)
    if first >= end:
        return best
    size, entry = timeline.before_newest[0, side, column], timeline.before_newest[1, side, column]
    if end + 1 < timeline.size[0] or size == UNKNOWN:
        for cell in range(first, end):
            if _precedes(side, values[cell], best):
                best = values[cell]
        return best
    # The cells that the newest one popped are still behind it, except for the one that it replaced.
    newest = timeline.stack_size[side, column] - 1
    low, high = np.int64(0), size - 1
    while low < high:
        middle = (low + high) // 2
        if (entry if middle == newest else stack[middle]) < first:
            low = middle + 1
        else:
            high = middle
    return values[entry if low == newest else stack[low]]
