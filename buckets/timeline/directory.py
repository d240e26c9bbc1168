"""The directory of a timeline: what its head says of the pages that lie in the state store.

An entry says of a page when it begins and ends, how many events it holds, and for each measure what a cell says of its
events. So a page that no window's edge lies in counts as one cell, and need not be read.

Entries of many keys lie in flat arrays, key by key, oldest to newest.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import allocating, leaf
from buckets.timeline.timeline import NO_ID, Timeline, push


class Directory(NamedTuple):
    """Entries of several keys: arrays of shape `(entries,)` where nothing else is said.

    Attributes:
        start: int64 `(keys + 1,)`, where each key's entries begin.
        page: int64, the page's number.
        first_ms: int64, from which time on its cells count; earlier ones are past the horizon.
        last_ms: int64, time of its last event.
        cells: int64, how many cells it has.
        event_count: int64, how many events they hold.
        resolution_ms: int64, width of the buckets into which its newest cell was folded; 1 for raw events.
        is_trimmed: bool, whether cells before `first_ms` still lie in it; then sums and extremes are those of all.
        is_loaded: bool, whether its cells are at hand.
        is_changed: bool, whether its cells are written again.
        extremes: int64 `(2, columns, entries)`.
        plus: int64 `(2, columns, entries)`.
        minus: int64 `(2, columns, entries)`.
        nulls: int64 `(columns, entries)`.
    """

    start: npt.NDArray[np.int64]
    page: npt.NDArray[np.int64]
    first_ms: npt.NDArray[np.int64]
    last_ms: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]
    event_count: npt.NDArray[np.int64]
    resolution_ms: npt.NDArray[np.int64]
    is_trimmed: npt.NDArray[np.bool_]
    is_loaded: npt.NDArray[np.bool_]
    is_changed: npt.NDArray[np.bool_]
    extremes: npt.NDArray[np.int64]
    plus: npt.NDArray[np.int64]
    minus: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.int64]


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
