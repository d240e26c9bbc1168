"""Chooses the pages of a key to read for its events of a micro-batch, and enters the kernel.

A page that is not read counts as one cell. These pages are read:

- those in which a window's edge lies at some event, with the whole bucket around it;
- those in which a window's last N events may begin, and those with events of two periods of a window;
- those whose cells are read one by one: the cell of a window's first event, the one before an event, or all of a
  window; all of it also if the first or the previous event may have no value;
- those into which a late event is inserted, and those with events at exactly its time;
- those in which a duplicate may be, if duplicates may have different times;
- those with cells that have left the tail and are to be folded, and the page before if it has room for the buckets;
- small neighbours, if there are so many pages that the head would grow without bound.

Pages of the last two kinds are marked as changed, and are written again.
"""

import numpy as np

from buckets.compiled import between, compiled, leaf
from buckets.kernel.context import CELL_BEFORE, EVERY_CELL, FIRST_CELL, FIRST_VALUE, Context
from buckets.kernel.group_plans import GroupPlans, context_of
from buckets.kernel.kernel import score_keys
from buckets.kernel.keyed_events import ASKS, GroupEvents, KeyedEvents, events_of
from buckets.kernel.listed_pairs import new_pairs
from buckets.kernel.outcome import EVALUATED, OUTCOMES, UNJUDGED, EventOutcomes
from buckets.kernel.plan import EVALUATE
from buckets.kernel.result_rows import new_rows
from buckets.kernel.window_edges import begin_of, step_at
from buckets.numbers.wide_sum import join_within
from buckets.timeline.head import FROM_THE_BEGINNING, NO_CLOCK, Directory
from buckets.timeline.inspection import Heads
from buckets.timeline.layout import new_written
from buckets.timeline.tiers import Paging, Tiers, coarsest_ms, floor_to, kept_from_ms, page_size, set_borders, width_at


@compiled
def choose_pages(
    heads: Heads,
    directory: Directory,
    events: KeyedEvents,
    plans: GroupPlans,
    paging: Paging,
    evicted_until_ms,
    from_ms,
):
    """Mark the pages that have to be read, and return their number; forget timelines of earlier generations.

    A head of another generation than its group's counts as new. A new key whose timeline may have been evicted is
    marked as complete only since then. Sets `is_loaded` and `is_changed` of the directory.

    `evicted_until_ms` is int64 `(keys,)`, the latest event time of all evicted timelines of each key's group in its
    shard, NO_CLOCK for none. `from_ms` is int64 `(keys, windows)`, from when events count since each window was reset,
    without keys if no window is ever reset.
    """
    for group in range(events.plan.shape[0]):
        plan, first, end = events.plan[group], events.group_start[group], events.group_start[group + 1]
        _begin_keys(heads, events, first, end, plans.generation[plan], plans.horizon_ms[plan], evicted_until_ms)
        if directory.start[first] < directory.start[end]:
            of_group = events_of(events, group, plans, events.ids.data, np.int64(0))
            context = context_of(plans, plan, paging, False)
            borders, reads = np.zeros(context.tiers.after_ms.shape[0], np.int64), context.cells_read.copy()
            _choose(heads, directory, of_group, context, borders, reads, from_ms)
    return directory.is_loaded.sum()


@leaf
def _begin_keys(heads: Heads, events: KeyedEvents, first, end, generation, horizon_ms, evicted_until_ms):
    """Forget timelines of earlier generations of a group, and note since when new keys are complete.

    A new key may have been evicted before, so windows that reach back to that time are not complete.
    """
    for key in range(first, end):
        if heads.generation[key] != generation:
            heads.clock_ms[key] = NO_CLOCK
            heads.since_ms[key] = FROM_THE_BEGINNING
            heads.cells[key] = 0
        event = events.key_start[key]
        until_ms = evicted_until_ms[key]
        may_be_gone = heads.clock_ms[key] == NO_CLOCK and until_ms != NO_CLOCK
        while may_be_gone and event < events.key_start[key + 1]:
            reaches_ms = events.times_ms[events.rows[event]] - horizon_ms
            heads.since_ms[key] = until_ms + 1 if reaches_ms <= until_ms else heads.since_ms[key]
            if events.ways.shape[0] == 0 or events.ways[event] != ASKS:
                break
            event += 1


@leaf
def _choose(heads: Heads, directory: Directory, events: GroupEvents, context: Context, borders, reads, from_ms):
    """Mark the pages to read for the keys of one group."""
    for number in range(events.key_start.shape[0] - 1):
        key = events.first_key + number
        clock_ms = heads.clock_ms[key]
        if directory.start[key] == directory.start[key + 1] or clock_ms == NO_CLOCK:
            continue
        first, end = events.key_start[number], events.key_start[number + 1]
        latest_ms = clock_ms
        for event in range(first, end):
            if events.way[event] != ASKS:
                latest_ms = max(latest_ms, events.times_ms[event])
        set_borders(borders, context.tiers, latest_ms)
        has_nulls = _has_nulls(heads, directory, key, events.nulls, first, end)
        for window in range(reads.shape[0]):
            read = context.cells_read[window]
            reads[window] = read | EVERY_CELL if has_nulls and read & FIRST_VALUE else read
        _find_needed(directory, key, clock_ms, heads.cells[key], events.times_ms, first, end, borders, reads, context)
        if context.has_resets:
            _need_resets(directory, key, events.times_ms, first, end, from_ms)


@leaf
def _has_nulls(heads: Heads, directory: Directory, key, nulls, first, end):
    """Return whether an event of a key, kept or new, lacks a value in some column."""
    if heads.has_nulls[key]:
        return True
    for column in range(nulls.shape[0]):
        for entry in range(directory.start[key], directory.start[key + 1]):
            if directory.nulls[column, entry] > 0:
                return True
        for event in range(first, end):
            if nulls[column, event]:
                return True
    return False


@leaf
def _find_needed(directory: Directory, key, clock_ms, hot, times_ms, first, end, borders, reads, context: Context):
    """Mark the pages to read for one key in `is_loaded` and `is_changed` of the directory.

    Its head has `hot` cells; its events are `[first, end)`; `clock_ms` is its clock before the batch, and `borders`
    are those of the tiers at its clock after the batch.
    """
    policy, tiers = context.policy, context.tiers
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
            _need_windows(
                directory, entry_start, entry_end, time_ms, time_ms, reads, hot, end - first, context, borders
            )
            _need_before(directory, entry_start, entry_end, time_ms, reads)
    if arrived:
        _need_windows(
            directory, entry_start, entry_end, earliest_ms, latest_ms, reads, hot, end - first, context, borders
        )
        if hot == 0 or earliest_ms == clock_ms:
            _need_before(directory, entry_start, entry_end, earliest_ms, reads)
    if policy.repeats_ms > 0:
        _need_repeats(directory, entry_start, entry_end, clock_ms, times_ms, first, end, context)
    kept_ms = kept_from_ms(tiers, latest_ms, policy.horizon_ms)
    _need_folds(directory, entry_start, entry_end, kept_ms, tiers, borders, context.paging)
    _need_merges(directory, entry_start, entry_end, hot + end - first, context.paging)


@leaf
def _need_time(directory: Directory, start, end, time_ms):
    """Mark the page around a time; all pages if several have exactly that time."""
    for entry in range(start, end):
        if directory.last_ms[entry] >= time_ms:
            directory.is_loaded[entry] = True
            if directory.last_ms[entry] > time_ms:
                return


@leaf
def _need_repeats(directory: Directory, start, end, clock_ms, times_ms, first, last, context: Context):
    """Mark the pages of raw events near events `[first, last)` in time, whose ids may be duplicates."""
    policy = context.policy
    earliest_ms, latest_ms = clock_ms + policy.repeats_ms, clock_ms - policy.horizon_ms
    for event in range(first, last):
        earliest_ms, latest_ms = min(earliest_ms, times_ms[event]), max(latest_ms, times_ms[event])
    low_ms = max(earliest_ms - policy.repeats_ms, clock_ms - policy.horizon_ms)
    for entry in range(start, end):
        is_near = low_ms <= directory.last_ms[entry] and directory.first_ms[entry] <= latest_ms + policy.repeats_ms
        if is_near and directory.resolution_ms[entry] == 1:
            directory.is_loaded[entry] = True


@leaf
def _need_windows(
    directory: Directory, start, end, earliest_ms, latest_ms, reads, hot, arriving, context: Context, borders
):
    """Mark the pages over which edges move between two times, and others whose cells are read.

    `hot` is the number of cells in the head, and `arriving` of events; `borders` are those after these events.
    """
    width_ms = coarsest_ms(context.tiers)
    windows = context.windows
    for window in range(windows.reach_ms.shape[0]):
        until_ms, read = windows.until_ms[window], reads[window]
        low_ms = floor_to(begin_of(windows, window, earliest_ms), width_ms)
        if windows.back[window] > 0:
            _need_periods(directory, start, end, low_ms, latest_ms, window, context, borders)
            continue
        high_ms = floor_to(begin_of(windows, window, latest_ms), width_ms) + width_ms
        if windows.most[window] > 0:
            most, counted, is_every = windows.most[window], windows.counted[window], bool(read & EVERY_CELL)
            _need_last(directory, start, end, low_ms, earliest_ms, latest_ms, most, counted, hot, arriving, is_every)
        elif read & EVERY_CELL:
            high_ms = latest_ms + 1
        elif until_ms > 0:
            last_ms = floor_to(latest_ms - until_ms, width_ms) + width_ms
            _need_between(directory, start, end, floor_to(earliest_ms - until_ms, width_ms), last_ms)
        for entry in range(end - 1, start - 1, -1):
            if directory.last_ms[entry] < low_ms:
                break
            # The first cell after an edge that lies between two pages is the first of the later one.
            is_after = bool(read & FIRST_CELL) and (entry == start or directory.last_ms[entry - 1] < high_ms)
            if is_after or directory.first_ms[entry] < high_ms or directory.is_trimmed[entry]:
                directory.is_loaded[entry] = True


@leaf
def _need_periods(directory: Directory, start, end, low_ms, latest_ms, window, context: Context, borders):
    """Mark the pages whose events or buckets may lie in more than one day or step."""
    for entry in range(end - 1, start - 1, -1):
        if directory.last_ms[entry] < low_ms:
            break
        width_ms = width_at(context.tiers, borders, directory.first_ms[entry])
        first_ms = floor_to(directory.first_ms[entry], width_ms)
        last_ms = floor_to(directory.last_ms[entry], width_ms) + width_ms - 1
        is_one = step_at(context.windows, window, first_ms) == step_at(context.windows, window, last_ms)
        if first_ms <= latest_ms and (directory.is_trimmed[entry] or not is_one):
            directory.is_loaded[entry] = True


@leaf
def _need_last(
    directory: Directory, start, end, low_ms, earliest_ms, latest_ms, most, counted, hot, arriving, is_every
):
    """Mark the pages in which the last `most` events before some event may begin, or all pages from there on.

    Between a page and an event, those of later pages surely count; those in the head and arriving ones may count.
    """
    # Each arriving event may replace one that is known to count.
    fewest, greatest = np.int64(-arriving), np.int64(hot + arriving)
    for entry in range(end - 1, start - 1, -1):
        if directory.last_ms[entry] < low_ms or fewest >= most:
            break
        if directory.first_ms[entry] > latest_ms:
            continue
        events = directory.event_count[entry]
        if counted >= 0:
            events = join_within(directory.plus[0, counted, entry], directory.plus[1, counted, entry])
        greatest += events
        if is_every or greatest >= most:
            directory.is_loaded[entry] = True
        if directory.last_ms[entry] < earliest_ms:
            fewest += events


@leaf
def _need_between(directory: Directory, start, end, low_ms, high_ms):
    """Mark the pages that overlap `[low_ms, high_ms)`."""
    for entry in range(start, end):
        if directory.first_ms[entry] < high_ms and directory.last_ms[entry] >= low_ms:
            directory.is_loaded[entry] = True


@leaf
def _need_resets(directory: Directory, key, times_ms, first, end, from_ms):
    """Mark the pages in which reset windows begin, or would begin if an event resets them."""
    start, last = directory.start[key], directory.start[key + 1]
    for window in range(from_ms.shape[1]):
        if from_ms[key, window] > directory.first_ms[start]:
            _need_time(directory, start, last, from_ms[key, window])
    for event in range(first, end):
        _need_time(directory, start, last, times_ms[event] + 1)


@leaf
def _need_before(directory: Directory, start, end, time_ms, reads):
    """Mark the pages of the cell before an event, also if the event replaces the first one of its time.

    For an event later than all cells, that is the newest cell, which lies in the head unless the head has no cells.
    """
    read = np.int64(0)
    for window in range(reads.shape[0]):
        read |= reads[window]
    if read & CELL_BEFORE == 0:
        return
    for entry in range(end - 1, start - 1, -1):
        if directory.first_ms[entry] <= time_ms:
            directory.is_loaded[entry] = True
            if directory.first_ms[entry] < time_ms:
                return


@leaf
def _change(directory: Directory, entry):
    directory.is_loaded[entry] = True
    directory.is_changed[entry] = True


@leaf
def _need_folds(directory: Directory, start, end, kept_ms, tiers: Tiers, borders, paging: Paging):
    """Mark the pages whose cells are finer than the tiers now allow."""
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
    """Mark neighbours that fit into one page, one pair per surplus page, small ones first as they cost least.

    The newest page is left out: merging it would cut the cells in the head again.
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


@leaf
def _count(outcomes: EventOutcomes, counts, group):
    """Count the events of a group by outcome; returns whether some outcome has to be reported."""
    is_told = False
    for event in range(outcomes.code.shape[0]):
        code = outcomes.code[event]
        counts[group, code] += 1
        is_told = is_told or (code != EVALUATED and code != UNJUDGED) or outcomes.other_start[event] >= 0
    return is_told


@leaf
def _most_rows(events: KeyedEvents, plans: GroupPlans):
    """Return the number of rows with one for every rule and event."""
    most = np.int64(0)
    for group in range(events.plan.shape[0]):
        plan, keys = events.plan[group], events.group_start
        rules = plans.rule_start[plan + 1] - plans.rule_start[plan]
        most += rules * (events.key_start[keys[group + 1]] - events.key_start[keys[group]])
    return most


@compiled
def score_groups(
    events: KeyedEvents,
    pool,
    ids_at,
    heads: Heads,
    directory: Directory,
    page_start,
    plans: GroupPlans,
    paging: Paging,
    emit_all,
    outcomes: EventOutcomes,
    from_ms,
):
    """Take in the events of the keys of several groups.

    Args:
        events: the events.
        pool: uint8, the keys' heads one after the other, then loaded pages, then the events' ids.
        ids_at: where the ids begin.
        heads: the decoded heads; clocks are changed.
        directory: entries of all keys, with loaded pages marked; changed.
        page_start: int64 `(entries,)`, where each loaded page begins in the pool.
        plans: rules and policies.
        paging: how timelines are cut.
        emit_all: whether rows are written for every rule, or for the fired ones only.
        outcomes: filled.
        from_ms: as in `choose_pages`; changed.

    Returns:
        Rows, with events and rules numbered within each group; where each group's rows begin, int64 `(groups + 1,)`;
        the keys' new heads one after the other; where each begins, int64 `(keys + 1,)`; written and removed pages,
        `Written`; the number of events by group and outcome, int64 `(groups, OUTCOMES)`; for each group, whether some
        outcome has to be reported, bool `(groups,)`; and the list of pairs.
    """
    groups, keys = events.plan.shape[0], heads.cells.shape[0]
    rows = new_rows(_most_rows(events, plans) + 1 if emit_all else 1024)
    encoded, encoded_start = np.empty(65536, np.uint8), np.zeros(keys + 1, np.int64)
    written, used = new_written(65536, 64), np.int64(0)
    row_start, counts = np.zeros(groups + 1, np.int64), np.zeros((groups, OUTCOMES), np.int64)
    are_told, pairs = np.zeros(groups, np.bool_), new_pairs()
    for group in range(groups):
        first, end = events.group_start[group], events.group_start[group + 1]
        of_group = events_of(events, group, plans, pool, ids_at)
        of_events = between(outcomes, events.key_start[first], events.key_start[end])
        rows, used, encoded, written, pairs = score_keys(
            of_group,
            heads,
            directory,
            page_start,
            context_of(plans, events.plan[group], paging, emit_all),
            of_events,
            from_ms,
            rows,
            used,
            encoded,
            encoded_start,
            written,
            pairs,
        )
        row_start[group + 1] = used
        are_told[group] = _count(of_events, counts, group)
    listed = pairs.listed[: pairs.used[0]]
    return rows, row_start, encoded[: encoded_start[keys]], encoded_start, written, counts, are_told, listed
