"""Timelines as they lie in the state store: the heads of many keys, which pages their events need, and loading them."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import allocating, compiled, inlined
from buckets.timeline.directory import Directory, new_directory, push_entry
from buckets.timeline.head import FROM_THE_BEGINNING, NO_CLOCK, read_entry_count, read_head, read_newest_cells
from buckets.timeline.page import read_cells
from buckets.timeline.timeline import HOT, Timeline, clear

ANY_GENERATION: Final = -1


class Heads(NamedTuple):
    """What heads say of their keys: int64 arrays of shape `(keys,)` where nothing else is said.

    Attributes:
        start: `(keys + 1,)`, where each head begins in the pool.
        clock_ms: NO_CLOCK where a key is new; after `score_keys`, the clock that it has come to.
        since_ms: since when its timeline is complete; FROM_THE_BEGINNING where it always was.
        generation: that of its group when it was written; 0 where that was not written.
        next_page: the next page number that was never used.
        cells_at: where the newest cells stand; the head's end where there are none.
        cells: how many they are.
        has_nulls: bool, whether one of them has an event without a value.
    """

    start: npt.NDArray[np.int64]
    clock_ms: npt.NDArray[np.int64]
    since_ms: npt.NDArray[np.int64]
    generation: npt.NDArray[np.int64]
    next_page: npt.NDArray[np.int64]
    cells_at: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]
    has_nulls: npt.NDArray[np.bool_]


@compiled
def unreadable(pool, head_start):
    """Return the first key whose head has an unknown version; -1 for none."""
    for key in range(head_start.shape[0] - 1):
        if read_entry_count(pool, head_start[key], head_start[key + 1]) < 0:
            return key
    return -1


@compiled
def read_heads(pool, head_start, generation, columns):
    """Read the heads of many keys.

    Args:
        pool: uint8, heads one after the other.
        head_start: int64 `(keys + 1,)`.
        generation: of the group; what an earlier one has left counts as nothing. ANY_GENERATION: all counts.
        columns: measures of the group.

    Returns:
        `Heads`, and the `Directory` of all keys.
    """
    keys = head_start.shape[0] - 1
    start = np.zeros(keys + 1, np.int64)
    for key in range(keys):
        start[key + 1] = start[key] + read_entry_count(pool, head_start[key], head_start[key + 1])
    directory = new_directory(start, columns)
    numbers = np.empty((6, keys), np.int64)
    has_nulls = np.zeros(keys, np.bool_)
    heads = Heads(head_start, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], has_nulls)
    for key in range(keys):
        clock_ms, since_ms, written_by, next_page, at, cells, heads.has_nulls[key] = read_head(
            pool, head_start[key], head_start[key + 1], directory, key
        )
        if generation != ANY_GENERATION and written_by != generation:
            clock_ms, since_ms, cells = np.int64(NO_CLOCK), np.int64(FROM_THE_BEGINNING), np.int64(0)
        heads.clock_ms[key] = clock_ms
        heads.since_ms[key] = since_ms
        heads.generation[key] = written_by
        heads.next_page[key] = next_page
        heads.cells_at[key] = at
        heads.cells[key] = cells
    return heads, directory


@allocating
def heads_between(heads: Heads, first, end) -> Heads:
    """Return what the heads of keys `[first, end)` say, which is the same in memory."""
    return Heads(
        heads.start[first : end + 1],
        heads.clock_ms[first:end],
        heads.since_ms[first:end],
        heads.generation[first:end],
        heads.next_page[first:end],
        heads.cells_at[first:end],
        heads.cells[first:end],
        heads.has_nulls[first:end],
    )


@inlined
def load_timeline(timeline: Timeline, pool, heads: Heads, directory: Directory, key, page_start):
    """Set a timeline up from a key's head, the pages at hand, and an entry for each page that is not."""
    clear(timeline)
    if heads.clock_ms[key] == NO_CLOCK:
        return
    for entry in range(directory.start[key], directory.start[key + 1]):
        if directory.is_loaded[entry]:
            from_ms = directory.first_ms[entry] if directory.is_trimmed[entry] else np.int64(FROM_THE_BEGINNING)
            read_cells(pool, page_start[entry], timeline, np.int32(entry), from_ms)
        else:
            push_entry(timeline, directory, entry)
    if heads.cells[key]:
        at = heads.cells_at[key]
        read_newest_cells(pool, heads.start[key], at, timeline, np.int32(HOT), np.int64(FROM_THE_BEGINNING))
