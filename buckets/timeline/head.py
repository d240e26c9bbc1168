"""A head as bytes: what is kept of a key beside its pages, and what is read of it first.

Layout, integers as varints:

    version (1 byte) · clock_ms (signed) · generation · next page number · pages · columns
        · flags: 1 if it is complete since some time only, 2 if some of the newest cells has an event without a value
        · with flag 1, since when it is complete as distance from the clock (signed)
    for each page, oldest first: number · first time as gap to the page before (signed, the first to the clock)
        · last - first · 2 * cells + whether it is trimmed · events · resolution_ms,
        for each column: sum of positive values · of negative ones · least (signed) · greatest - least, with events
        without a value before them as in a page
    the newest cells, as in a page

*Since when* is written for a key that came when some of its earlier events may have been evicted (see `eviction`), as
long as a window can reach that far back.

The directory of a timeline.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import allocating, leaf
from buckets.numbers import varint
from buckets.timeline.codec import CODEC_VERSION
from buckets.timeline.page import (
    COLUMN_BYTES,
    FIXED_BYTES,
    read_counts,
    read_extremes,
    write_extremes,
)
from buckets.timeline.timeline import NO_ID, Timeline, push


class Directory(NamedTuple):
    """Entries of several keys: arrays of shape `(entries,)` where nothing else is said."""

    start: npt.NDArray[np.int64]  # int64 `(keys + 1,)`, where each key's entries begin
    page: npt.NDArray[np.int64]  # int64, the page's number
    first_ms: npt.NDArray[np.int64]  # int64, from which time on its cells count; earlier ones are past the horizon
    last_ms: npt.NDArray[np.int64]  # int64, time of its last event
    cells: npt.NDArray[np.int64]  # int64, how many cells it has
    event_count: npt.NDArray[np.int64]  # int64, how many events they hold
    # int64, width of the buckets into which its newest cell was folded; 1 for raw events
    resolution_ms: npt.NDArray[np.int64]
    # bool, whether cells before `first_ms` still lie in it; then sums and extremes are those of all
    is_trimmed: npt.NDArray[np.bool_]
    is_loaded: npt.NDArray[np.bool_]  # bool, whether its cells are at hand
    is_changed: npt.NDArray[np.bool_]  # bool, whether its cells are written again
    extremes: npt.NDArray[np.int64]  # int64 `(2, columns, entries)`
    plus: npt.NDArray[np.int64]  # int64 `(2, columns, entries)`
    minus: npt.NDArray[np.int64]  # int64 `(2, columns, entries)`
    nulls: npt.NDArray[np.int64]  # int64 `(columns, entries)`


@allocating
def new_directory(start, columns):
    """Make a directory with room for `start[-1]` entries over so many measures."""
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


@allocating
def directory_between(directory: Directory, first, end) -> Directory:
    """Return the directory of keys `[first, end)`, whose entries are those of all keys."""
    return Directory(
        directory.start[first : end + 1],
        directory.page,
        directory.first_ms,
        directory.last_ms,
        directory.cells,
        directory.event_count,
        directory.resolution_ms,
        directory.is_trimmed,
        directory.is_loaded,
        directory.is_changed,
        directory.extremes,
        directory.plus,
        directory.minus,
        directory.nulls,
    )


@leaf
def push_entry(timeline: Timeline, directory: Directory, entry) -> None:
    """Append a page that is not at hand to the cells of a timeline, as one cell."""
    cell = timeline.size[0]
    timeline.first_ms[cell] = directory.first_ms[entry]
    timeline.last_ms[cell] = directory.last_ms[entry]
    timeline.owner[cell] = entry
    timeline.id_length[cell] = NO_ID
    for column in range(timeline.extremes.shape[1]):
        for member in range(2):
            timeline.extremes[member, column, cell] = directory.extremes[member, column, entry]
            timeline.plus[member, column, cell] = directory.plus[member, column, entry]
            timeline.minus[member, column, cell] = directory.minus[member, column, entry]
        timeline.nulls[column, cell] = directory.nulls[column, entry]
    push(timeline, directory.event_count[entry])


NO_CLOCK: Final = -(2**63)  # The clock of a key that has had no event yet
FROM_THE_BEGINNING: Final = -(2**63)  # Since when a timeline is complete that always was
UNKNOWN_VERSION: Final = -1
_SINCE: Final = 1
_NULLS: Final = 2
HEAD_BYTES: Final = 8 * varint.LONGEST + FIXED_BYTES  # Bytes of a head without pages and cells, at most
ENTRY_BYTES: Final = 6 * varint.LONGEST  # Bytes of an entry without its columns, at most


class HeadFields(NamedTuple):
    """What a head says of its key, beside pages and cells."""

    clock_ms: int  # the key's clock; NO_CLOCK where it is new
    since_ms: int  # since when its timeline is complete; FROM_THE_BEGINNING where it always was
    generation: int  # that of its group
    next_page: int  # the next page number that was never used
    has_nulls: bool  # whether some of its newest cells has an event without a value


@leaf
def read_entry_count(data, start, end):
    """Return how many pages a head has; UNKNOWN_VERSION where it cannot be read."""
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
    """Read what a head says of its key, and its directory.

    Args:
        data: uint8 array that holds the head.
        start: its first byte.
        end: the position after its last byte; an empty stretch is a new key.
        directory: gets the entries of the key.
        key: the key.

    Returns:
        The key's clock in ms (NO_CLOCK where the key is new), since when it is complete (FROM_THE_BEGINNING where
        it always was), its generation, the next page number, where its newest cells
        stand, how many they are, and whether one of them has an event without a value.
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
    for column in range(columns):
        plus_high, plus_low, at = varint.read_pair(data, at)
        minus_high, minus_low, at = varint.read_pair(data, at)
        least, greatest, nulls, at = read_extremes(data, at)
        if column < directory.extremes.shape[1]:
            directory.plus[0, column, entry] = plus_high
            directory.plus[1, column, entry] = plus_low
            directory.minus[0, column, entry] = minus_high
            directory.minus[1, column, entry] = minus_low
            directory.extremes[0, column, entry] = least
            directory.extremes[1, column, entry] = greatest
            directory.nulls[column, entry] = nulls
    return at


@leaf
def write_head(out, at, head: HeadFields, pages, columns):
    """Write what stands before the directory; returns the position after it."""
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
    """Write an entry after one that begins at `before_ms`; returns the position after it."""
    at = varint.write(out, at, directory.page[entry])
    at = varint.write_signed(out, at, directory.first_ms[entry] - before_ms)
    at = varint.write(out, at, directory.last_ms[entry] - directory.first_ms[entry])
    at = varint.write(out, at, 2 * directory.cells[entry] + directory.is_trimmed[entry])
    at = varint.write(out, at, directory.event_count[entry])
    at = varint.write(out, at, directory.resolution_ms[entry])
    for column in range(directory.extremes.shape[1]):
        at = varint.write_pair(out, at, directory.plus[0, column, entry], directory.plus[1, column, entry])
        at = varint.write_pair(out, at, directory.minus[0, column, entry], directory.minus[1, column, entry])
        least, greatest = directory.extremes[0, column, entry], directory.extremes[1, column, entry]
        at = write_extremes(out, at, least, greatest, directory.nulls[column, entry])
    return at


@leaf
def entry_bound(columns):
    """Return bytes of an entry at most."""
    return ENTRY_BYTES + columns * COLUMN_BYTES
