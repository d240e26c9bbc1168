"""Heads and cells as bytes. A head is the part of a key's timeline that is read first; the rest is in pages.

Layout, integers as varints:

    version (1 byte) · clock_ms (signed) · generation · next page number · pages · columns
        · flags: 1 if it is complete since some time only, 2 if some of the newest cells has an event without a value
        · with flag 1, since when it is complete as distance from the clock (signed)
    for each page, oldest first: number · first time as gap to the page before (signed, the first to the clock)
        · last - first · 2 * cells + whether it is trimmed · events · resolution_ms,
        for each column: sum of positive values · of negative ones · least (signed) · greatest - least, with events
        without a value before them as in a page
    the newest cells, as in a page

*Since when* is written for a key whose earlier events may have been evicted before it came (see `eviction`), as long
as a window can reach back that far. Cells, in a page and in a head:

    columns · combined cells · raw cells · first time (signed)
    combined:  for each cell: gap to the cell before · last - first · events,
               for each column: sum of positive values · of negative ones · least (signed) · greatest - least
    raw:       times as gaps to the cell before, then values column by column (signed), then for each cell the length
               of its id in bytes and the id in UTF-8, then texts: of each its length in bytes and itself in UTF-8

The value of a text is its offset in bytes after the last id, plus 1, and 0 for an empty text; a text equal to that of
the cell before has the same offset.

Events without a value are encoded as no value can be: in a raw cell as 0 in two bytes (80 00); in a combined one,
before the least value, as the greatest integer · 1 · their number. Columns are those of the group's layout at the time
of writing: a reader with more columns takes the missing ones as 0, one with fewer skips the others.
"""

from typing import Final, NamedTuple

import numpy as np

from buckets.arrays import Flags, Int64s
from buckets.compiled import allocating, copy_bytes, inlined, leaf
from buckets.numbers import varint
from buckets.numbers.fixed_point import INT64_MAX
from buckets.timeline.codec import CODEC_VERSION
from buckets.timeline.timeline import (
    NO_ID,
    Timeline,
    copy_columns,
    is_null,
    is_raw,
    push,
    same_texts,
    set_null,
    text_length,
    text_place,
    text_start,
)

FIXED_BYTES: Final = 6 * varint.LONGEST  # Bytes of a page without cells, at most
CELL_BYTES: Final = 3 * varint.LONGEST  # Bytes of a cell without its columns and its id, at most
COLUMN_BYTES: Final = 2 * varint.LONGEST_PAIR + 6 * varint.LONGEST  # Bytes of one column of a cell, at most


@leaf
def write_columns(out, at, cells: "Timeline | Directory", cell):
    """Write the columns of a combined cell or a directory entry; returns the position after them."""
    for column in range(cells.extremes.shape[1]):
        at = varint.write_pair(out, at, cells.plus[0, column, cell], cells.plus[1, column, cell])
        at = varint.write_pair(out, at, cells.minus[0, column, cell], cells.minus[1, column, cell])
        least, greatest = cells.extremes[0, column, cell], cells.extremes[1, column, cell]
        if cells.nulls[column, cell] > 0:
            at = varint.write_signed(out, at, np.int64(INT64_MAX))
            at = varint.write(out, at, np.int64(1))
            at = varint.write(out, at, cells.nulls[column, cell])
        at = varint.write_signed(out, at, least)
        at = varint.write(out, at, np.uint64(greatest) - np.uint64(least))
    return at


@leaf
def read_columns(data, at, columns, cells: "Timeline | Directory", cell):
    """Read this many columns that `write_columns` wrote; returns the position after them."""
    known = cells.extremes.shape[1]
    for column in range(columns):
        plus_high, plus_low, at = varint.read_pair(data, at)
        minus_high, minus_low, at = varint.read_pair(data, at)
        least, at = varint.read_signed(data, at)
        span, at = varint.read(data, at)
        nulls = np.int64(0)
        if least == INT64_MAX and span == 1:
            nulls, at = varint.read_count(data, at)
            least, at = varint.read_signed(data, at)
            span, at = varint.read(data, at)
        if column < known:
            cells.plus[0, column, cell] = plus_high
            cells.plus[1, column, cell] = plus_low
            cells.minus[0, column, cell] = minus_high
            cells.minus[1, column, cell] = minus_low
            cells.extremes[0, column, cell] = least
            cells.extremes[1, column, cell] = np.int64(np.uint64(least) + span)
            cells.nulls[column, cell] = nulls
    for column in range(columns, known):
        cells.nulls[column, cell] = 0
        for member in range(2):
            cells.extremes[member, column, cell] = 0
            cells.plus[member, column, cell] = 0
            cells.minus[member, column, cell] = 0
    return at


@inlined
def _write_value(out, at, timeline: Timeline, column, cell):
    """Write the value of a raw cell, or a mark for none; returns the position after it."""
    if not is_null(timeline, column, cell):
        return varint.write_signed(out, at, timeline.extremes[0, column, cell])
    out[at] = 128
    out[at + 1] = 0
    return at + 2


@inlined
def _begins_text(timeline: Timeline, column, first, cell, pool):
    """Return whether a raw cell has a text that differs from that of the cell before, so that it is written."""
    place = timeline.extremes[0, column, cell]
    if not timeline.is_text[column] or is_null(timeline, column, cell) or place == 0:
        return False
    return cell == first or not same_texts(pool, place, timeline.extremes[0, column, cell - 1])


@inlined
def _write_values(out, at, timeline: Timeline, column, first, end, pool, texts):
    """Write the values of raw cells; returns the position after them, and the bytes of texts, `texts` so far."""
    before = np.int64(0)
    for cell in range(first, end):
        if not timeline.is_text[column] or is_null(timeline, column, cell):
            at = _write_value(out, at, timeline, column, cell)
            continue
        length = text_length(timeline.extremes[0, column, cell])
        if _begins_text(timeline, column, first, cell, pool):
            before = texts + 1
            texts += varint.size_of(length) + length
        at = varint.write_signed(out, at, before if length > 0 else np.int64(0))
    return at, texts


@leaf
def _write_texts(out, at, timeline: Timeline, first, end, pool):
    """Write the texts of raw cells; returns the position after them."""
    for column in range(timeline.extremes.shape[1]):
        for cell in range(first, end):
            if _begins_text(timeline, column, first, cell, pool):
                place = timeline.extremes[0, column, cell]
                at = varint.write(out, at, text_length(place))
                copy_bytes(out, at, pool, text_start(place), text_length(place))
                at += text_length(place)
    return at


@leaf
def _read_texts(data, at, timeline: Timeline, columns, first):
    """Set the places of texts of raw cells from `first` on; texts begin at a position, and bad places are set to 0."""
    for column in range(min(columns, timeline.extremes.shape[1])):
        if timeline.is_text[column]:
            for cell in range(first, timeline.size[0]):
                text_at, place = at + timeline.extremes[0, column, cell] - 1, np.int64(0)
                if is_null(timeline, column, cell):
                    continue
                if at <= text_at < data.shape[0]:
                    length, start = varint.read_count(data, text_at)
                    place = text_place(start, length) if 0 < length <= data.shape[0] - start else np.int64(0)
                timeline.extremes[0, column, cell] = place
                timeline.extremes[1, column, cell] = place


@leaf
def read_counts(data, at):
    """Return the number of cells, combined and raw, that are encoded at a position."""
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
        at = write_columns(out, at, timeline, cell)
        before_ms = timeline.first_ms[cell]
    for cell in range(middle, end):
        at = varint.write(out, at, timeline.first_ms[cell] - before_ms)
        before_ms = timeline.first_ms[cell]
    texts = np.int64(0)
    for column in range(columns):
        at, texts = _write_values(out, at, timeline, column, middle, end, pool, texts)
    for cell in range(middle, end):
        length = timeline.id_length[cell]
        at = varint.write(out, at, length)
        copy_bytes(out, at, pool, timeline.id_start[cell], length)
        at += length
    return _write_texts(out, at, timeline, middle, end, pool) if texts > 0 else at


@leaf
def read_cells(data, at, timeline: Timeline, owner, from_ms):
    """Append the cells at a position to a timeline with room for them; returns the position after them.

    They belong to the page `owner`; cells that end before `from_ms` are skipped.
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
    cell = timeline.size[0]
    timeline.first_ms[cell] = before_ms + gap_ms
    timeline.last_ms[cell] = before_ms + gap_ms + span_ms
    timeline.owner[cell] = owner
    timeline.id_length[cell] = NO_ID
    at = read_columns(data, at, columns, timeline, cell)
    if timeline.last_ms[cell] >= from_ms:
        push(timeline, events)
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
            push(timeline, np.int64(1))
        at += length
    _read_texts(data, at, timeline, columns, first)
    return at


class Directory(NamedTuple):
    """The pages of several keys, one entry each: arrays of shape `(entries,)` unless said otherwise."""

    start: Int64s  # int64 `(keys + 1,)`, where each key's entries begin
    page: Int64s  # int64, the page's number
    first_ms: Int64s  # int64, the time from which its cells count; earlier ones are past the horizon
    last_ms: Int64s  # int64, time of its last event
    cells: Int64s  # int64, how many cells it has
    event_count: Int64s  # int64, how many events they hold
    # int64, width of the buckets into which its newest cell was folded; 1 for raw events
    resolution_ms: Int64s
    # bool, whether it still has cells before `first_ms`, which sums and extremes then include
    is_trimmed: Flags
    is_loaded: Flags  # bool, whether its cells are loaded
    is_changed: Flags  # bool, whether its cells are written again
    extremes: Int64s  # int64 `(2, columns, entries)`
    plus: Int64s  # int64 `(2, columns, entries)`
    minus: Int64s  # int64 `(2, columns, entries)`
    nulls: Int64s  # int64 `(columns, entries)`


@allocating
def new_directory(start, columns):
    """Allocate a directory of `start[-1]` entries over this many measures."""
    entries = start[-1]
    return Directory(
        start,
        np.zeros(entries, np.int64),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.bool_),
        np.zeros(entries, np.bool_),
        np.zeros(entries, np.bool_),
        np.zeros((2, columns, entries), np.int64),
        np.zeros((2, columns, entries), np.int64),
        np.zeros((2, columns, entries), np.int64),
        np.zeros((columns, entries), np.int64),
    )


@leaf
def push_entry(timeline: Timeline, directory: Directory, entry) -> None:
    """Append a page that is not loaded to the cells of a timeline, as one cell."""
    cell = timeline.size[0]
    timeline.first_ms[cell] = directory.first_ms[entry]
    timeline.last_ms[cell] = directory.last_ms[entry]
    timeline.owner[cell] = entry
    timeline.id_length[cell] = NO_ID
    copy_columns(directory, entry, timeline, cell)
    push(timeline, directory.event_count[entry])


NO_CLOCK: Final = -(2**63)  # The clock of a key without events
FROM_THE_BEGINNING: Final = -(2**63)  # The time since which a timeline is complete that always was
UNKNOWN_VERSION: Final = -1
_SINCE: Final = 1
_NULLS: Final = 2
HEAD_BYTES: Final = 8 * varint.LONGEST + FIXED_BYTES  # Bytes of a head without pages and cells, at most
ENTRY_BYTES: Final = 6 * varint.LONGEST  # Bytes of an entry without its columns, at most


class HeadFields(NamedTuple):
    """The fields of a head besides pages and cells."""

    clock_ms: int  # the key's clock; NO_CLOCK if it is new
    since_ms: int  # since when its timeline is complete; FROM_THE_BEGINNING if it always was
    generation: int  # the generation of its group
    next_page: int  # the next unused page number
    has_nulls: bool  # whether one of its newest cells has an event without a value


@leaf
def read_entry_count(data, start, end):
    """Return how many pages a head has; UNKNOWN_VERSION if it cannot be read."""
    if end <= start:
        return np.int64(0)
    if data[start] != CODEC_VERSION:
        return np.int64(UNKNOWN_VERSION)
    _, at = varint.read_signed(data, start + 1)
    _, at = varint.read(data, at)
    _, at = varint.read(data, at)
    pages, _ = varint.read_count(data, at)
    return pages


@leaf
def read_head(data, start, end, directory: Directory, key):
    """Read the head in bytes `[start, end)`, empty for a new key, and fill the key's entries of the directory.

    Returns:
        The key's clock in ms (NO_CLOCK if it is new), since when it is complete (FROM_THE_BEGINNING if it always was),
        its generation, the next page number, the position and number of its newest cells, and whether one of them has
        an event without a value.
    """
    since_ms = np.int64(FROM_THE_BEGINNING)
    if end <= start:
        return np.int64(NO_CLOCK), since_ms, np.int64(0), np.int64(0), start, np.int64(0), False
    clock_ms, at = varint.read_signed(data, start + 1)
    generation, at = varint.read_count(data, at)
    next_page, at = varint.read_count(data, at)
    pages, at = varint.read_count(data, at)
    columns, at = varint.read_count(data, at)
    flags, at = varint.read_count(data, at)
    if flags & _SINCE:
        distance_ms, at = varint.read_signed(data, at)
        since_ms = clock_ms + distance_ms
    before_ms = clock_ms
    for entry in range(directory.start[key], directory.start[key] + pages):
        at = _read_entry(data, at, directory, entry, columns, before_ms)
        before_ms = directory.first_ms[entry]
    return clock_ms, since_ms, generation, next_page, at, read_counts(data, at), (flags & _NULLS) != 0


@leaf
def _read_entry(data, at, directory: Directory, entry, columns, before_ms):
    directory.page[entry], at = varint.read_count(data, at)
    gap_ms, at = varint.read_signed(data, at)
    span_ms, at = varint.read_count(data, at)
    cells, at = varint.read_count(data, at)
    directory.first_ms[entry] = before_ms + gap_ms
    directory.last_ms[entry] = before_ms + gap_ms + span_ms
    directory.cells[entry] = cells >> 1
    directory.is_trimmed[entry] = (cells & 1) == 1
    directory.event_count[entry], at = varint.read_count(data, at)
    directory.resolution_ms[entry], at = varint.read_count(data, at)
    return read_columns(data, at, columns, directory, entry)


@leaf
def write_head(out, at, head: HeadFields, pages, columns):
    """Write the part of a head before the directory; returns the position after it."""
    out[at] = CODEC_VERSION
    at = varint.write_signed(out, at + 1, head.clock_ms)
    at = varint.write(out, at, head.generation)
    at = varint.write(out, at, head.next_page)
    at = varint.write(out, at, pages)
    at = varint.write(out, at, columns)
    flags = np.int64(_NULLS) if head.has_nulls else np.int64(0)
    if head.since_ms == FROM_THE_BEGINNING:
        return varint.write(out, at, flags)
    at = varint.write(out, at, flags | _SINCE)
    return varint.write_signed(out, at, head.since_ms - head.clock_ms)


@leaf
def write_entry(out, at, directory: Directory, entry, before_ms):
    """Write a directory entry after one that begins at `before_ms`; returns the position after it."""
    at = varint.write(out, at, directory.page[entry])
    at = varint.write_signed(out, at, directory.first_ms[entry] - before_ms)
    at = varint.write(out, at, directory.last_ms[entry] - directory.first_ms[entry])
    at = varint.write(out, at, 2 * directory.cells[entry] + directory.is_trimmed[entry])
    at = varint.write(out, at, directory.event_count[entry])
    at = varint.write(out, at, directory.resolution_ms[entry])
    return write_columns(out, at, directory, entry)


@leaf
def entry_bound(columns):
    """Return an upper bound on the bytes of a directory entry."""
    return ENTRY_BYTES + columns * COLUMN_BYTES
