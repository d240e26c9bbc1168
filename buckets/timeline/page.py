"""Cells as bytes: what a page is, and how the newest cells lie in a head.

Layout, integers as varints:

    columns · combined cells · raw cells · first time (signed)
    combined:  for each cell: gap to the cell before · last - first · events,
               for each column: sum of positive values · of negative ones · least (signed) · greatest - least
    raw:       times as gaps to the cell before, then values column by column (signed), then for each cell the length
               of its id in bytes and the id in UTF-8

Events without a value are written as what no value is: in a raw cell as 0 in two bytes (80 00); in a combined one,
before the least value, as the greatest integer · 1 · how many there are.

Nothing here depends on which rules are in force: columns are those of the group's layout at the time of writing, a
reader with more columns takes the missing ones as 0, one with fewer passes over the others.
"""

from typing import Final

import numpy as np

from buckets.compiled import copy_bytes, inlined, leaf
from buckets.numbers import varint
from buckets.numbers.fixed_point import INT64_MAX
from buckets.timeline.timeline import NO_ID, Timeline, is_null, is_raw, set_null
from buckets.timeline.timeline import push as push_cell

FIXED_BYTES: Final = 6 * varint.LONGEST  # Bytes of a page without cells, at most
CELL_BYTES: Final = 3 * varint.LONGEST  # Bytes of a cell without its columns and its id, at most
COLUMN_BYTES: Final = 2 * varint.LONGEST_PAIR + 5 * varint.LONGEST  # Bytes of one column of a cell, at most


@leaf
def write_extremes(out, at, least, greatest, nulls):
    """Write the least and the greatest value of a column, and how many events have none; returns the position after."""
    if nulls > 0:
        at = varint.write_signed(out, at, np.int64(INT64_MAX))
        at = varint.write(out, at, np.int64(1))
        at = varint.write(out, at, nulls)
    at = varint.write_signed(out, at, least)
    return varint.write(out, at, np.uint64(greatest) - np.uint64(least))


@leaf
def read_extremes(data, at):
    """Read what `write_extremes` has written: least, greatest, events without a value, and the position after."""
    least, at = varint.read_signed(data, at)
    span, at = varint.read(data, at)
    nulls = np.int64(0)
    if least == INT64_MAX and span == 1:
        nulls, at = varint.read_count(data, at)
        least, at = varint.read_signed(data, at)
        span, at = varint.read(data, at)
    return least, np.int64(np.uint64(least) + span), nulls, at


@inlined
def _write_value(out, at, timeline: Timeline, column, cell):
    """Write the value of a raw cell, or that there is none; returns the position after."""
    if not is_null(timeline, column, cell):
        return varint.write_signed(out, at, timeline.extremes[0, column, cell])
    out[at] = 128
    out[at + 1] = 0
    return at + 2


@leaf
def read_counts(data, at):
    """Return how many cells of both kinds stand at a position."""
    _, at = varint.read_count(data, at)
    combined, at = varint.read_count(data, at)
    raw, at = varint.read_count(data, at)
    return combined + raw


@leaf
def write_cells(out, at, timeline: Timeline, first, end, pool):
    """Write cells `[first, end)`, combined ones before raw ones; returns the position after the last byte."""
    columns = timeline.extremes.shape[1]
    middle = first
    while middle < end and not is_raw(timeline, middle):
        middle += 1
    at = varint.write(out, at, columns)
    at = varint.write(out, at, middle - first)
    at = varint.write(out, at, end - middle)
    before_ms = timeline.first_ms[first] if first < end else np.int64(0)
    at = varint.write_signed(out, at, before_ms)
    for cell in range(first, middle):
        at = varint.write(out, at, timeline.first_ms[cell] - before_ms)
        at = varint.write(out, at, timeline.last_ms[cell] - timeline.first_ms[cell])
        at = varint.write(out, at, timeline.prefix_count[cell + 1] - timeline.prefix_count[cell])
        for column in range(columns):
            at = varint.write_pair(out, at, timeline.plus[0, column, cell], timeline.plus[1, column, cell])
            at = varint.write_pair(out, at, timeline.minus[0, column, cell], timeline.minus[1, column, cell])
            least, greatest = timeline.extremes[0, column, cell], timeline.extremes[1, column, cell]
            at = write_extremes(out, at, least, greatest, timeline.nulls[column, cell])
        before_ms = timeline.first_ms[cell]
    for cell in range(middle, end):
        at = varint.write(out, at, timeline.first_ms[cell] - before_ms)
        before_ms = timeline.first_ms[cell]
    for column in range(columns):
        for cell in range(middle, end):
            at = _write_value(out, at, timeline, column, cell)
    for cell in range(middle, end):
        length = timeline.id_length[cell]
        at = varint.write(out, at, length)
        copy_bytes(out, at, pool, timeline.id_start[cell], length)
        at += length
    return at


@leaf
def read_cells(data, at, timeline: Timeline, owner, from_ms):
    """Append the cells that stand at a position to those of a timeline.

    Args:
        data: uint8.
        at: the position.
        timeline: must have room for them.
        owner: the page that they lie in.
        from_ms: cells that end before it are passed over.

    Returns:
        The position after the last byte.
    """
    columns, at = varint.read_count(data, at)
    combined, at = varint.read_count(data, at)
    raw, at = varint.read_count(data, at)
    time_ms, at = varint.read_signed(data, at)
    for _ in range(combined):
        time_ms, at = _read_combined(data, at, timeline, columns, owner, time_ms, from_ms)
    return _read_raw(data, at, timeline, columns, raw, owner, time_ms, from_ms)


@inlined
def _read_combined(data, at, timeline: Timeline, columns, owner, before_ms, from_ms):
    gap_ms, at = varint.read_count(data, at)
    span_ms, at = varint.read_count(data, at)
    events, at = varint.read_count(data, at)
    cell, known = timeline.size[0], timeline.extremes.shape[1]
    timeline.first_ms[cell] = before_ms + gap_ms
    timeline.last_ms[cell] = before_ms + gap_ms + span_ms
    timeline.owner[cell] = owner
    timeline.id_length[cell] = NO_ID
    for column in range(known):
        timeline.nulls[column, cell] = 0
        for member in range(2):
            timeline.extremes[member, column, cell] = 0
            timeline.plus[member, column, cell] = 0
            timeline.minus[member, column, cell] = 0
    for column in range(columns):
        plus_high, plus_low, at = varint.read_pair(data, at)
        minus_high, minus_low, at = varint.read_pair(data, at)
        least, greatest, nulls, at = read_extremes(data, at)
        if column < known:
            timeline.plus[0, column, cell] = plus_high
            timeline.plus[1, column, cell] = plus_low
            timeline.minus[0, column, cell] = minus_high
            timeline.minus[1, column, cell] = minus_low
            timeline.extremes[0, column, cell] = least
            timeline.extremes[1, column, cell] = greatest
            timeline.nulls[column, cell] = nulls
    if timeline.last_ms[cell] >= from_ms:
        push_cell(timeline, events)
    return before_ms + gap_ms, at


@inlined
def _read_raw(data, at, timeline: Timeline, columns, raw, owner, time_ms, from_ms):
    """Append raw cells to a timeline, the first a gap after `time_ms`; returns the position after them."""
    first, known = timeline.size[0], timeline.extremes.shape[1]
    skipped = np.int64(0)
    for number in range(raw):
        gap_ms, at = varint.read_count(data, at)
        time_ms += gap_ms
        if time_ms < from_ms:
            skipped += 1
            continue
        cell = first + number - skipped
        timeline.first_ms[cell] = time_ms
        timeline.last_ms[cell] = time_ms
        timeline.owner[cell] = owner
    for column in range(columns):
        for number in range(raw):
            without = data[at] == 128 and data[at + 1] == 0
            value, at = varint.read_signed(data, at)
            if number >= skipped and column < known:
                cell = first + number - skipped
                timeline.extremes[0, column, cell] = value
                timeline.extremes[1, column, cell] = value
                if without:
                    set_null(timeline, column, cell)
    for number in range(raw):
        length, at = varint.read_count(data, at)
        if number >= skipped:
            cell = first + number - skipped
            timeline.id_start[cell] = at
            timeline.id_length[cell] = length
            for column in range(columns, known):
                timeline.extremes[0, column, cell] = 0
                timeline.extremes[1, column, cell] = 0
            push_cell(timeline, np.int64(1))
        at += length
    return at
