"""Which pages of a key have to be read for its events of a micro-batch. The others count as one cell each.

Read are the pages

- in which a window's edge lies while the events pass, with the whole bucket around it;
- to which a late event goes, and those that hold events of its very time;
- whose cells have left the tail and are to be folded; with the page before, where that has room for the buckets;
- that are neighbours and small, where there are so many pages that the head would grow without bound.

Pages of the last two kinds are marked as changed: they are written again.
"""

import numpy as np

from buckets.compiled import compiled, leaf
from buckets.kernel.context import Context
from buckets.kernel.plan import EVALUATE
from buckets.timeline.directory import Directory
from buckets.timeline.head import NO_CLOCK
from buckets.timeline.loading import Heads
from buckets.timeline.paging import Paging, page_size
from buckets.timeline.tiers import Tiers, coarsest_ms, floor_to, kept_from_ms, set_borders, width_at


@compiled
def choose_pages(heads: Heads, directory: Directory, key_start, times_ms, context: Context):
    """Mark the pages that have to be read, `is_loaded` of the directory.

    Args:
        heads: the keys' heads.
        directory: entries of all keys; `is_loaded` and `is_changed` are set.
        key_start: int64 `(keys + 1,)`, where each key's events begin.
        times_ms: int64 `(events,)`.
        context: tiers, windows, late policy and horizon.
    """
    borders = np.zeros(context.tiers.after_ms.shape[0], np.int64)
    for key in range(heads.clock_ms.shape[0]):
        clock_ms = heads.clock_ms[key]
        if directory.start[key] == directory.start[key + 1] or clock_ms == NO_CLOCK:
            continue
        first, end = key_start[key], key_start[key + 1]
        latest_ms = clock_ms
        for event in range(first, end):
            latest_ms = max(latest_ms, times_ms[event])
        set_borders(borders, context.tiers, latest_ms)
        _find_needed(directory, key, clock_ms, heads.cells[key], times_ms, first, end, borders, context)


@leaf
def _find_needed(directory: Directory, key, clock_ms, hot, times_ms, first, end, borders, context: Context):
    """Mark the pages of one key that have to be read.

    Args:
        directory: `is_loaded` and `is_changed` are set.
        key: the key.
        clock_ms: its clock before the batch.
        hot: cells in its head.
        times_ms: times of the events of all keys, int64.
        first: the key's first event.
        end: the event after its last.
        borders: int64 `(tiers,)`, their borders at the key's clock after the batch.
        context: tiers, windows, late policy and horizon.
    """
    policy, tiers, reach_ms = context.policy, context.tiers, context.reach_ms
    entry_start, entry_end = directory.start[key], directory.start[key + 1]
    earliest_ms, latest_ms, arrived = np.int64(0), clock_ms, False
    for event in range(first, end):
        time_ms = times_ms[event]
        if time_ms >= clock_ms:
            earliest_ms = min(earliest_ms, time_ms) if arrived else time_ms
            latest_ms = max(latest_ms, time_ms)
            arrived = True
        if clock_ms - policy.horizon_ms <= time_ms <= directory.last_ms[entry_end - 1]:
            _need_time(directory, entry_start, entry_end, time_ms)
        if policy.late == EVALUATE and clock_ms - policy.horizon_ms <= time_ms < clock_ms:
            _need_edges(directory, entry_start, entry_end, time_ms, time_ms, reach_ms, tiers)
    if arrived:
        _need_edges(directory, entry_start, entry_end, earliest_ms, latest_ms, reach_ms, tiers)
    kept_ms = kept_from_ms(tiers, latest_ms, policy.horizon_ms)
    _need_folds(directory, entry_start, entry_end, kept_ms, tiers, borders, context.paging)
    _need_merges(directory, entry_start, entry_end, hot + end - first, context.paging)


@leaf
def _need_time(directory: Directory, start, end, time_ms):
    """The pages around a time; of several with the very same time, all."""
    for entry in range(start, end):
        if directory.last_ms[entry] >= time_ms:
            directory.is_loaded[entry] = True
            if directory.last_ms[entry] > time_ms:
                return


@leaf
def _need_edges(directory: Directory, start, end, earliest_ms, latest_ms, reach_ms, tiers: Tiers):
    """The pages over which edges move while events pass from one time to another."""
    width_ms = coarsest_ms(tiers)
    for window in range(reach_ms.shape[0]):
        low_ms = floor_to(earliest_ms - reach_ms[window], width_ms)
        high_ms = floor_to(latest_ms - reach_ms[window], width_ms) + width_ms
        for entry in range(end - 1, start - 1, -1):
            if directory.last_ms[entry] < low_ms:
                break
            if directory.first_ms[entry] < high_ms or directory.is_trimmed[entry]:
                directory.is_loaded[entry] = True


@leaf
def _change(directory: Directory, entry):
    directory.is_loaded[entry] = True
    directory.is_changed[entry] = True


@leaf
def _need_folds(directory: Directory, start, end, kept_ms, tiers: Tiers, borders, paging: Paging):
    """The pages whose cells are finer than they may be now."""
    for entry in range(start, end):
        last_ms = directory.last_ms[entry]
        if last_ms < kept_ms or width_at(tiers, borders, last_ms) <= directory.resolution_ms[entry]:
            continue
        _change(directory, entry)
        before = entry - 1
        if before >= start and directory.last_ms[before] >= kept_ms and directory.cells[before] < paging.page_cells:
            _change(directory, before)


@leaf
def _need_merges(directory: Directory, start, end, other_cells, paging: Paging):
    """Neighbours that fit one page, as many as there are pages too many; small ones first, they cost least.

    The newest page is left alone: together with it the cells in the head would be cut again.
    """
    surplus = end - start - paging.most_pages
    if surplus <= 0:
        return
    cells = np.int64(other_cells)
    for entry in range(start, end):
        cells += directory.cells[entry]
    most, limit = page_size(paging, cells), np.int64(2 * paging.page_cells)
    while surplus > 0 and limit <= 2 * most:
        entry = end - 2
        while entry > start and surplus > 0:
            if (
                not directory.is_changed[entry]
                and not directory.is_changed[entry - 1]
                and directory.cells[entry] + directory.cells[entry - 1] <= min(limit, most)
            ):
                _change(directory, entry)
                _change(directory, entry - 1)
                surplus -= 1
                entry -= 1
            entry -= 1
        limit *= 2
