"""Writes a timeline: drops cells that are too old, folds those that are old enough, and cuts the rest into pages.

1. *Gather.* Cells are visited from the oldest on. A page that is not loaded or not changed stays as it is. All other
   cells form runs, without those past the horizon, and with buckets folded where the tiers say so.
2. *Cut.* A run between two pages becomes pages again, and so does the oldest part of the last run; the newest cells
   stay in the head.
3. *Write.* Pages reuse the numbers of removed pages, then take new ones; the head has the directory and newest cells.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Int64s
from buckets.compiled import allocating, copy_bytes, inlined, leaf
from buckets.numbers.wide_sum import LOW_BITS, LOW_MASK
from buckets.timeline.head import (
    CELL_BYTES,
    COLUMN_BYTES,
    FIXED_BYTES,
    HEAD_BYTES,
    Directory,
    HeadFields,
    entry_bound,
    write_cells,
    write_entry,
    write_head,
)
from buckets.timeline.tiers import Paging, Tiers, absorb, cut_size, floor_to, make_combined, page_size, width_at
from buckets.timeline.timeline import (
    HOT,
    Timeline,
    add_cells,
    copy_cell,
    copy_columns,
    forget_cells,
    is_null,
    is_raw,
    text_length,
)


class Stretches(NamedTuple):
    """A gathered timeline, oldest to newest: int64 arrays with room for twice the pages plus one."""

    used: Int64s  # int64 `(1,)`, the number of stretches
    owner: Int64s  # the directory entry of a page that stays as it is; HOT for a run of cells
    first: Int64s  # the first cell of a run
    end: Int64s  # the cell after its last


class Written(NamedTuple):
    """Pages to write, with their bytes, and pages to remove."""

    used: Int64s  # int64 `(2,)`, bytes and pages used
    data: npt.NDArray[np.uint8]  # uint8
    key: Int64s  # int64 `(pages,)`
    page: Int64s  # int64 `(pages,)`, its number
    # int64 `(pages,)`, the position after its last byte; it begins where the one before ends, and a page to remove has
    # no bytes
    end: Int64s


@allocating
def new_written(size, pages):
    """Allocate room for this many bytes and pages."""
    return Written(
        np.zeros(2, np.int64),
        np.empty(size, np.uint8),
        np.empty(pages, np.int64),
        np.empty(pages, np.int64),
        np.empty(pages, np.int64),
    )


@inlined
def has_page_room(written: Written, size, pages):
    """Return whether there is room for this many more bytes and pages."""
    used, count = written.used[0], written.used[1]
    return used + size <= written.data.shape[0] and count + pages <= written.key.shape[0]


@allocating
def with_page_room(written: Written, size, pages):
    """Return the pages with room for more; arrays at least double when they grow."""
    if has_page_room(written, size, pages):
        return written
    used, count = written.used[0], written.used[1]
    larger = new_written(max(used + size, 2 * written.data.shape[0]), max(count + pages, 2 * written.key.shape[0]))
    larger.used[0], larger.used[1] = used, count
    copy_bytes(larger.data, 0, written.data, 0, used)
    for page in range(count):
        larger.key[page] = written.key[page]
        larger.page[page] = written.page[page]
        larger.end[page] = written.end[page]
    return larger


@allocating
def new_stretches(entries):
    """Allocate room for the stretches of a timeline with this many pages."""
    return Stretches(
        np.zeros(1, np.int64),
        np.empty(2 * entries + 1, np.int64),
        np.empty(2 * entries + 1, np.int64),
        np.empty(2 * entries + 1, np.int64),
    )


@inlined
def written_bound(timeline: Timeline, entries):
    """Return an upper bound on the bytes of a timeline's head, and on those of its pages."""
    cells, columns = timeline.size[0], timeline.extremes.shape[1]
    ids = np.int64(0)
    for cell in range(cells):
        ids += max(timeline.id_length[cell], 0)
    for column in range(columns):
        if timeline.is_text[column]:
            for cell in range(cells):
                if is_raw(timeline, cell) and not is_null(timeline, column, cell):
                    ids += text_length(timeline.extremes[0, column, cell])
    per_cell = CELL_BYTES + columns * COLUMN_BYTES
    return HEAD_BYTES + (cells + entries) * (per_cell + FIXED_BYTES + entry_bound(columns)) + ids


@inlined
def _gather(timeline: Timeline, directory: Directory, kept_ms, tiers: Tiers, borders, stretches: Stretches) -> None:
    """Drop and fold cells in place, and fill `stretches`; of derived arrays, only `prefix_count` is maintained.

    Entries of pages that reach beyond the horizon are trimmed.
    """
    read, write, count = np.int64(0), np.int64(0), np.int64(0)
    counted = np.int64(0)
    size = timeline.size[0]
    while read < size:
        owner = np.int64(timeline.owner[read])
        if owner != HOT and not directory.is_changed[owner]:
            while read < size and timeline.owner[read] == owner:
                read += 1
            counted = timeline.prefix_count[read]
            if directory.last_ms[owner] >= kept_ms:
                if directory.first_ms[owner] < kept_ms:
                    directory.first_ms[owner] = kept_ms
                    directory.is_trimmed[owner] = True
                stretches.owner[count] = owner
                count += 1
            continue
        first = write
        while read < size and (timeline.owner[read] == HOT or directory.is_changed[timeline.owner[read]]):
            events = timeline.prefix_count[read + 1] - counted
            counted += events
            if timeline.last_ms[read] >= kept_ms:
                write = _take_cell(timeline, read, write, first, events, tiers, borders)
            read += 1
        if write > first:
            _bring_combined_first(timeline, first, write)
            stretches.owner[count] = HOT
            stretches.first[count] = first
            stretches.end[count] = write
            count += 1
    timeline.size[0] = write
    stretches.used[0] = count


@inlined
def _take_cell(timeline: Timeline, read, write, first, events, tiers: Tiers, borders):
    """Move a cell to its position in a run that begins at `first`, or fold it into the run's last cell."""
    time_ms = timeline.first_ms[read]
    width_ms = width_at(tiers, borders, time_ms)
    if width_ms > 1 and write > first and not is_raw(timeline, write - 1):
        bucket_ms = floor_to(time_ms, width_ms)
        if floor_to(timeline.first_ms[write - 1], width_ms) == bucket_ms:
            absorb(timeline, write - 1, read)
            timeline.prefix_count[write] += events
            return write
    if write != read:
        copy_cell(timeline, read, write)
    timeline.prefix_count[write + 1] = timeline.prefix_count[write] + events
    if width_ms > 1:
        make_combined(timeline, write)
    return write + 1


@leaf
def _bring_combined_first(timeline: Timeline, first, end):
    """Turn raw events before a bucket into buckets; only a tail made longer on an old checkpoint leaves such events."""
    has_combined_after = False
    for cell in range(end - 1, first - 1, -1):
        if not is_raw(timeline, cell):
            has_combined_after = True
        elif has_combined_after:
            make_combined(timeline, cell)


@leaf
def _copy_entry(directory: Directory, source, target: Directory, entry):
    target.page[entry] = directory.page[source]
    target.first_ms[entry] = directory.first_ms[source]
    target.last_ms[entry] = directory.last_ms[source]
    target.cells[entry] = directory.cells[source]
    target.event_count[entry] = directory.event_count[source]
    target.resolution_ms[entry] = directory.resolution_ms[source]
    target.is_trimmed[entry] = directory.is_trimmed[source]
    copy_columns(directory, source, target, entry)


@leaf
def _describe(timeline: Timeline, first, end, tiers: Tiers, borders, target: Directory, entry):
    """Fill a directory entry from the cells of its page."""
    target.first_ms[entry] = timeline.first_ms[first]
    target.last_ms[entry] = timeline.last_ms[end - 1]
    target.cells[entry] = end - first
    target.resolution_ms[entry] = width_at(tiers, borders, timeline.last_ms[end - 1])
    target.is_trimmed[entry] = False
    forget_cells(target, entry)
    add_cells(target, entry, timeline, first, end)
    for column in range(timeline.extremes.shape[1]):
        if timeline.is_text[column] and target.extremes[0, column, entry] <= target.extremes[1, column, entry]:
            target.extremes[0, column, entry] = 0
            target.extremes[1, column, entry] = 0
        target.plus[0, column, entry] += target.plus[1, column, entry] >> LOW_BITS
        target.plus[1, column, entry] &= LOW_MASK
        target.minus[0, column, entry] += target.minus[1, column, entry] >> LOW_BITS
        target.minus[1, column, entry] &= LOW_MASK


@inlined
def _has_null_in(timeline: Timeline, first, end):
    """Return whether an event of cells `[first, end)` lacks a value in some column."""
    for column in range(timeline.extremes.shape[1]):
        for cell in range(first, end):
            if is_null(timeline, column, cell) or (not is_raw(timeline, cell) and timeline.nulls[column, cell] > 0):
                return True
    return False


@leaf
def _next_free(directory: Directory, free, end):
    """Return the next removed page of the old directory from `free` on; `end` for none."""
    while free < end and directory.page[free] >= 0:
        free += 1
    return free


@inlined
def _release(directory: Directory, start, end, stretches: Stretches):
    """Mark removed pages: their numbers become `-number - 1`."""
    stretch, count = np.int64(0), stretches.used[0]
    for entry in range(start, end):
        while stretch < count and stretches.owner[stretch] == HOT:
            stretch += 1
        if stretch < count and stretches.owner[stretch] == entry:
            stretch += 1
        else:
            directory.page[entry] = -directory.page[entry] - 1


@leaf
def _note_page(written: Written, key, page, end):
    number = written.used[1]
    written.key[number] = key
    written.page[number] = page
    written.end[number] = end
    written.used[0] = end
    written.used[1] = number + 1


@inlined
def write_timeline(
    work, key, head: HeadFields, kept_ms, tiers: Tiers, paging: Paging, pool, heads, at, written: Written
):
    """Write a timeline: pages into `written`, the head at a position in `heads`; returns the position after it.

    `work` has the key's cells, the directory of all keys, the borders of the tiers at the key's clock, and room for
    stretches and for a new directory. Events are kept from `kept_ms` on. `heads` has room for `written_bound` bytes,
    and `written` for the pages.
    """
    timeline, directory, borders = work.timeline, work.directory, work.borders
    stretches, target = work.stretches, work.target
    _gather(timeline, directory, kept_ms, tiers, borders, stretches)
    start, end = directory.start[key], directory.start[key + 1]
    cells, count, next_page = timeline.size[0], stretches.used[0], head.next_page
    for stretch in range(count):
        if stretches.owner[stretch] != HOT:
            cells += directory.cells[stretches.owner[stretch]]
    size = page_size(paging, cells)
    _release(directory, start, end, stretches)
    free, pages, hot_first, hot_end = start, np.int64(0), np.int64(0), np.int64(0)
    for stretch in range(count):
        owner = stretches.owner[stretch]
        if owner != HOT:
            _copy_entry(directory, owner, target, pages)
            pages += 1
            continue
        first, last = stretches.first[stretch], stretches.end[stretch]
        to_write, cut_end = max(np.int64(1), (last - first) // size), last
        if stretch == count - 1:
            cut = cut_size(paging, last - first - paging.hot_cells)
            to_write = max(np.int64(0), (last - first - paging.hot_cells) // cut)
            cut_end = first + to_write * cut
            hot_first, hot_end = cut_end, last
        for number in range(to_write):
            page_first = first + (cut_end - first) * number // to_write
            page_end = first + (cut_end - first) * (number + 1) // to_write
            _describe(timeline, page_first, page_end, tiers, borders, target, pages)
            free = _next_free(directory, free, end)
            if free < end:
                target.page[pages] = -directory.page[free] - 1
                free += 1
            else:
                target.page[pages] = next_page
                next_page += 1
            page_at = write_cells(written.data, written.used[0], timeline, page_first, page_end, pool)
            _note_page(written, key, target.page[pages], page_at)
            pages += 1
    while free < end:
        free = _next_free(directory, free, end)
        if free < end:
            _note_page(written, key, -directory.page[free] - 1, written.used[0])
            free += 1
    has_nulls = _has_null_in(timeline, hot_first, hot_end)
    head = HeadFields(head.clock_ms, head.since_ms, head.generation, next_page, has_nulls)
    at = write_head(heads, at, head, pages, timeline.extremes.shape[1])
    before_ms = head.clock_ms
    for entry in range(pages):
        at = write_entry(heads, at, target, entry, before_ms)
        before_ms = target.first_ms[entry]
    return write_cells(heads, at, timeline, hot_first, hot_end, pool)
