"""The kernel: reads the events of many keys in arrival order, updates their timelines, and evaluates each event.

One event `e` of a key with clock `c` goes through these steps:

1. It is tested, in this order: too late (older than the horizon), duplicate (its id is already at its time in the tail,
   or near it, see `evaluate`), late (`e.time < c`), collision (another id is at its time). The first match decides.
2. If the policy for it allows, it is inserted into the timeline, which stays sorted by time; beyond the tail, it is
   merged into its bucket.
3. For every rule, the window is the stretch of cells from its edge to `e`, see `window_edges`. Count, sum, average,
   minimum and maximum of a stretch cost O(1) to O(log cells), see `timeline`; an edge inside a bucket makes them
   uncertain, and `bounds` computes their bounds. `event_features` looks at single events, `ranked_values` at values in
   order.
4. If a sum of a rule in force does not fit 64 bits, the event is malformed: it is removed again, with all of its
   results. For a rule on trial, such a sum is only noted.
5. An event that is not judged goes through all of this, so that the timeline is the same; its rows are dropped.
6. An event that only asks, in the timeline of another field's value than its own, is evaluated on what has arrived so
   far. It changes neither the timeline nor the clock.

Before these steps, `needed_pages` chooses the pages that the key's windows need; afterwards, `layout` writes the
timeline. All state is explicit and all loops are plain; numba compiles them.
"""

from typing import Final, NamedTuple

import numpy as np

from buckets.aggregates.component import MODE
from buckets.arrays import Int64s
from buckets.compiled import allocating, copy_bytes, grown, inlined, leaf
from buckets.kernel.context import Context, Policy
from buckets.kernel.evaluate import KnownIds, evaluate, find_repeat, learn_id, learn_ids, new_known_ids
from buckets.kernel.event_features import append_event_features
from buckets.kernel.keyed_events import ASKS, FILLS, GroupEvents
from buckets.kernel.listed_pairs import VALUES, Pairs, has_pair_room, with_pair_room
from buckets.kernel.listed_periods import ListedPeriods, new_listed_periods
from buckets.kernel.outcome import (
    COLLISION_NOT_KEPT,
    DUPLICATE,
    EVALUATED,
    LATE,
    OVERFLOW,
    TOO_LATE,
    UNJUDGED,
    EventOutcomes,
)
from buckets.kernel.plan import DROP, EVALUATE, KEEP_FIRST, REPLACE
from buckets.kernel.ranked_values import (
    DistinctValues,
    RankedValues,
    new_distinct_values,
    new_ranked_values,
    share_texts,
)
from buckets.kernel.result_rows import Rows, cut_at_resets, keep_resets, reset_fired, stand_at_resets
from buckets.kernel.window_edges import Edges, begin, find_edges, forget_stretches, make_way, new_edges
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.timeline.head import FROM_THE_BEGINNING, NO_CLOCK, Directory, HeadFields, new_directory
from buckets.timeline.inspection import Heads, load_timeline
from buckets.timeline.layout import (
    Stretches,
    Written,
    has_page_room,
    new_stretches,
    with_page_room,
    write_timeline,
    written_bound,
)
from buckets.timeline.tiers import kept_from_ms, merge_value, set_borders
from buckets.timeline.timeline import (
    HOT,
    Timeline,
    find_id,
    first_ending_at_or_after,
    insert,
    is_raw,
    new_timeline,
    rebuild,
    remove,
)

NOT_BEGUN: Final = -1


class Position(NamedTuple):
    """The position in a batch."""

    key: np.int64  # the current key; all before it are done
    event: np.int64  # its first event that is not taken in; NOT_BEGUN if its timeline is not loaded yet
    used: np.int64  # how many rows are used
    clock_ms: np.int64  # the key's clock


class Work(NamedTuple):
    """The working memory while one key's events are taken in."""

    timeline: Timeline  # the key's cells
    directory: Directory  # the pages of all keys
    edges: Edges  # where the windows of the current event begin
    distinct: DistinctValues  # the different values in windows
    ranked: RankedValues  # the values of windows in their order
    replaced: Int64s  # int64 `(2, columns)`, room for the least and greatest values of one event's cell
    borders: Int64s  # int64 `(tiers,)`, where each tier begins at the key's clock
    ids: KnownIds  # the ids of the key's single events, where duplicates may have another time
    listed: ListedPeriods  # the periods that have been listed
    stretches: Stretches  # room for the stretches of a timeline that is written
    target: Directory  # room for the entries of its new directory


@leaf
def _exchange(work: Work, cell, id_start, id_length):
    """Set a cell's id, and swap its values with those in `work.replaced`. Cost: O(cells); rare."""
    timeline = work.timeline
    timeline.id_start[cell] = id_start
    timeline.id_length[cell] = id_length
    for column in range(timeline.extremes.shape[1]):
        for side in range(2):
            before = timeline.extremes[side, column, cell]
            timeline.extremes[side, column, cell] = work.replaced[side, column]
            work.replaced[side, column] = before
    rebuild(timeline)
    forget_stretches(work.edges)


@inlined
def _is_in_tail(work: Work, time_ms):
    """Return whether events at this time are kept raw."""
    return work.borders.shape[0] == 0 or time_ms >= work.borders[0]


@leaf
def _note_duplicate(timeline: Timeline, cell, event, outcomes: EventOutcomes):
    """Note that an event is a duplicate of the one in a cell, with the time and values of that one."""
    outcomes.code[event] = DUPLICATE
    outcomes.other_ms[event] = timeline.first_ms[cell]
    for column in range(timeline.extremes.shape[1]):
        for side in range(2):
            outcomes.other_values[event, column, side] = timeline.extremes[side, column, cell]


@leaf
def _repeat_of(work: Work, events: GroupEvents, event, clock_ms, policy: Policy):
    """Return the cell of an event with the same id that is near enough in time to be the same event; -1 for none."""
    time_ms = events.times_ms[event]
    low_ms = max(time_ms - policy.repeats_ms, max(clock_ms, time_ms) - policy.horizon_ms)
    if work.borders.shape[0] > 0:
        low_ms = max(low_ms, work.borders[0])
    id_start, id_length = events.id_start[event], events.id_length[event]
    high_ms = time_ms + policy.repeats_ms
    return find_repeat(work.ids, work.timeline, events.pool, id_start, id_length, time_ms, low_ms, high_ms)


@inlined
def _test(work: Work, events: GroupEvents, event, clock_ms, policy: Policy, outcomes: EventOutcomes):
    """Test an event, and note its outcome in `outcomes`.

    Returns:
        Whether it goes into the timeline, the first cell that ends at or after its time, and whether that cell is a
        raw event of its time.
    """
    timeline, time_ms = work.timeline, events.times_ms[event]
    if clock_ms != NO_CLOCK and time_ms < clock_ms - policy.horizon_ms:
        outcomes.code[event] = TOO_LATE
        return False, 0, False
    if policy.repeats_ms > 0:
        cell = _repeat_of(work, events, event, clock_ms, policy)
        if cell >= 0:
            _note_duplicate(timeline, cell, event, outcomes)
            return False, 0, False
    first = timeline.size[0] if time_ms > clock_ms else first_ending_at_or_after(timeline, time_ms)
    shared = False
    if first < timeline.size[0] and timeline.first_ms[first] <= time_ms and _is_in_tail(work, time_ms):
        cell = find_id(timeline, first, time_ms, events.pool, events.id_start[event], events.id_length[event])
        if cell >= 0:
            _note_duplicate(timeline, cell, event, outcomes)
            return False, 0, False
        shared = is_raw(timeline, first)
    if shared:
        outcomes.other_start[event] = timeline.id_start[first]
        outcomes.other_length[event] = timeline.id_length[first]
    refused = shared and policy.collision == KEEP_FIRST
    if time_ms < clock_ms:
        outcomes.code[event] = LATE
        return not refused and policy.late != DROP, first, shared
    outcomes.code[event] = COLLISION_NOT_KEPT if refused else EVALUATED
    return not refused, first, shared


@inlined
def _owner_for(work: Work, cell, time_ms):
    """Return the page of an event at position `cell`: that of a neighbour, if it is loaded, or HOT."""
    timeline, directory = work.timeline, work.directory
    if cell > 0:
        before = timeline.owner[cell - 1]
        if before != HOT and directory.is_loaded[before] and time_ms <= directory.last_ms[before]:
            return before
    return timeline.owner[cell] if cell < timeline.size[0] else np.int32(HOT)


@inlined
def _note_change(work: Work, owner):
    if owner != HOT:
        work.directory.is_changed[owner] = True


@inlined
def _put_in(work: Work, events: GroupEvents, event, first):
    """Insert an event after the cells that share its time, or merge it into the bucket around it.

    Returns:
        Its cell; -1 if it has no cell of its own.
    """
    timeline, time_ms = work.timeline, events.times_ms[event]
    cell, size = first, timeline.size[0]
    while cell < size and timeline.first_ms[cell] <= time_ms:
        if not is_raw(timeline, cell):
            merge_value(timeline, cell, events.values, events.nulls, event, time_ms)
            _note_change(work, timeline.owner[cell])
            forget_stretches(work.edges)
            return -1
        cell += 1
    owner = np.int32(HOT) if cell == size else _owner_for(work, cell, time_ms)
    id_start, id_length = events.id_start[event], events.id_length[event]
    insert(timeline, cell, time_ms, id_start, id_length, events.values, events.nulls, event, owner)
    _note_change(work, owner)
    if cell < size:
        make_way(work.edges, cell)
    return cell


@leaf
def _replace(work: Work, events: GroupEvents, event, cell):
    """Replace the id and the values of a cell by an event's.

    Returns:
        Start and length of its old id; its old values are in `work.replaced`.
    """
    timeline = work.timeline
    id_start, id_length = timeline.id_start[cell], timeline.id_length[cell]
    for column in range(timeline.extremes.shape[1]):
        without = events.nulls[column, event]
        work.replaced[0, column] = INT64_MAX if without else events.values[column, event]
        work.replaced[1, column] = INT64_MIN if without else events.values[column, event]
    _exchange(work, cell, events.id_start[event], events.id_length[event])
    _note_change(work, timeline.owner[cell])
    return id_start, id_length


@leaf
def _take_out(work: Work, cell, replaces, id_before, length_before):
    """Remove an event that turned out to be malformed; a cell that it replaced is restored."""
    if replaces:
        _exchange(work, cell, id_before, length_before)
    else:
        remove(work.timeline, cell)
        forget_stretches(work.edges)


@leaf
def _answer(
    work: Work, events: GroupEvents, event, clock_ms, context: Context, rows: Rows, used, pairs: Pairs, outcomes
):
    """Evaluate an event that only asks, on the cells up to and including its time.

    Returns:
        The number of rows used.
    """
    timeline, policy, tiers, time_ms = work.timeline, context.policy, context.tiers, events.times_ms[event]
    late_by_ms = clock_ms - time_ms if clock_ms != NO_CLOCK and time_ms < clock_ms else np.int64(0)
    if late_by_ms > policy.horizon_ms:
        outcomes.code[event] = TOO_LATE
        return used
    if late_by_ms > 0:
        outcomes.code[event] = LATE
        if policy.late != EVALUATE or not _is_in_tail(work, time_ms):
            return used
    after = timeline.size[0]
    if late_by_ms > 0:
        after = first_ending_at_or_after(timeline, time_ms + 1)
    find_edges(work.edges, timeline, context.windows, after, after, False, time_ms, tiers, work.borders)
    used_now, overflowed = evaluate(timeline, work.edges, event, late_by_ms, context, rows, used)
    if overflowed >= 0:
        outcomes.code[event] = OVERFLOW
        outcomes.rule[event] = overflowed
        return used
    if not context.has_event_features:
        return used_now
    return append_event_features(work, after, event, time_ms, late_by_ms, context, rows, used_now, pairs)


@inlined
def _take_in(
    work: Work, events: GroupEvents, first, end, clock_ms, context: Context, rows: Rows, used, pairs: Pairs, outcomes
):
    """Take in events `[first, end)` of a key, as long as there is room for the rows of one more.

    Each is tested, inserted and evaluated.

    Returns:
        The first event that is not taken in, the number of rows used, and the key's clock.
    """
    timeline, policy, tiers = work.timeline, context.policy, context.tiers
    most = rows.event.shape[0] - context.rules.number.shape[0]
    event = first
    while event < end and used <= most:
        if context.pair_features + context.period_room > 0 and not has_pair_room(
            pairs, _pair_room(timeline.size[0] + 1, context)
        ):
            break
        current, event = event, event + 1
        time_ms = events.times_ms[current]
        outcomes.clock_ms[current] = clock_ms
        if events.way[current] == ASKS:
            used = _answer(work, events, current, clock_ms, context, rows, used, pairs, outcomes)
            continue
        if time_ms > clock_ms:
            set_borders(work.borders, tiers, time_ms)
        goes_in, cell, shared = _test(work, events, current, clock_ms, policy, outcomes)
        if not goes_in:
            if time_ms > clock_ms and clock_ms != NO_CLOCK:
                set_borders(work.borders, tiers, clock_ms)
            continue
        if policy.repeats_ms > 0:
            learn_id(work.ids, events.pool, events.id_start[current], events.id_length[current], time_ms)
        replaces, id_before, length_before = shared and policy.collision == REPLACE, np.int64(0), np.int64(0)
        if replaces:
            id_before, length_before = _replace(work, events, current, cell)
        else:
            cell = _put_in(work, events, current, cell)
        outcomes.applied[current] = True
        late_by_ms = clock_ms - time_ms if time_ms < clock_ms else np.int64(0)
        if late_by_ms > 0 and (policy.late != EVALUATE or cell < 0 or not _is_in_tail(work, time_ms)):
            continue
        after = cell + 1
        while after < timeline.size[0] and timeline.first_ms[after] == time_ms:
            after += 1
        find_edges(work.edges, timeline, context.windows, cell, after, True, time_ms, tiers, work.borders)
        if context.has_resets:
            cut_at_resets(work.edges, timeline, context.windows.reach_ms, time_ms)
        used_now, overflowed = evaluate(timeline, work.edges, current, late_by_ms, context, rows, used)
        if overflowed < 0 and events.way[current] == FILLS:
            if outcomes.code[current] == EVALUATED:
                outcomes.code[current] = UNJUDGED
            clock_ms = max(clock_ms, time_ms)
            continue
        if overflowed < 0:
            if context.has_event_features:
                used_now = append_event_features(
                    work, cell, current, time_ms, late_by_ms, context, rows, used_now, pairs
                )
            if context.has_resets:
                reset_fired(work.edges, context, rows, used, used_now, time_ms)
            used, clock_ms = used_now, max(clock_ms, time_ms)
            continue
        outcomes.code[current] = OVERFLOW
        outcomes.applied[current] = False
        outcomes.rule[current] = overflowed
        _take_out(work, cell, replaces, id_before, length_before)
        if clock_ms != NO_CLOCK:
            set_borders(work.borders, tiers, clock_ms)
    return event, used, clock_ms


@inlined
def _pair_room(cells, context: Context):
    """Return how much room one event may need in the list of pairs, in a timeline of this many cells."""
    return cells * context.pair_features * (VALUES + 2 * context.needs_extremes.shape[0]) + context.period_room


@leaf
def _largest_key(heads: Heads, directory: Directory, events: GroupEvents):
    """Return upper bounds on the cells and on the pages of one timeline."""
    largest, most = np.int64(0), np.int64(0)
    for number in range(events.key_start.shape[0] - 1):
        key = events.first_key + number
        cells = heads.cells[key] + events.key_start[number + 1] - events.key_start[number]
        for entry in range(directory.start[key], directory.start[key + 1]):
            cells += directory.cells[entry] if directory.is_loaded[entry] else 1
        largest = max(largest, cells)
        most = max(most, directory.start[key + 1] - directory.start[key])
    return largest, most


@allocating
def _with_bytes(encoded, used, needed):
    """Return the bytes with room for `needed` more; they at least double when they grow."""
    if used + needed <= encoded.shape[0]:
        return encoded
    larger = np.empty(max(used + needed, 2 * encoded.shape[0]), np.uint8)
    copy_bytes(larger, 0, encoded, 0, used)
    return larger


@inlined
def _needed_room(work: Work, key):
    """Return the room, in bytes and pages, that writing a key's timeline may need."""
    entries = work.directory.start[key + 1] - work.directory.start[key]
    return written_bound(work.timeline, entries), work.target.page.shape[0] + entries


@leaf
def _share_texts(work: Work, context: Context, first, pool):
    """Give equal texts of a key the same place, in columns whose mode is computed."""
    features = context.features
    for feature in range(features.operation.shape[0]):
        if features.operation[feature] == MODE and context.is_text[features.measure[feature]]:
            share_texts(work.timeline, work.ranked, features.measure[feature], first, pool)


@leaf
def _take_in_keys(
    work: Work,
    events: GroupEvents,
    heads: Heads,
    page_start,
    context: Context,
    from_ms,
    outcomes: EventOutcomes,
    rows: Rows,
    encoded,
    encoded_start,
    written: Written,
    pairs: Pairs,
    done: Position,
):
    """Take in the events of one key after the other, as long as there is room for the results.

    It allocates no arrays, so numba counts no references here, which would take a third of its time.

    Returns:
        The position that it has reached.
    """
    first_key, end_key = events.first_key, events.first_key + events.key_start.shape[0] - 1
    key, event, used, clock_ms = done.key, done.event, done.used, done.clock_ms
    while key < end_key:
        end = events.key_start[key + 1 - first_key]
        if event == NOT_BEGUN:
            event, clock_ms = events.key_start[key - first_key], heads.clock_ms[key]
            begin(work.edges)
            if context.has_resets:
                stand_at_resets(work.edges, from_ms, key)
            load_timeline(work.timeline, events.pool, heads, work.directory, key, page_start)
            if context.policy.repeats_ms > 0:
                learn_ids(work.ids, work.timeline, events.pool, end - event)
            if clock_ms != NO_CLOCK:
                set_borders(work.borders, context.tiers, clock_ms)
            work.ranked.key_end[0] = end
            if context.has_event_features:
                _share_texts(work, context, event, events.pool)
        event, used, clock_ms = _take_in(work, events, event, end, clock_ms, context, rows, used, pairs, outcomes)
        at, (size, pages) = encoded_start[key], _needed_room(work, key)
        if event < end or at + size > encoded.shape[0] or not has_page_room(written, size, pages):
            return Position(key, event, used, clock_ms)
        if context.has_resets:
            keep_resets(work.edges, from_ms, key)
        since_ms = heads.since_ms[key]
        heads.clock_ms[key] = clock_ms
        if clock_ms != NO_CLOCK and since_ms <= clock_ms - context.policy.horizon_ms:
            # No window of an event that is still to come reaches further back than the horizon.
            since_ms = np.int64(FROM_THE_BEGINNING)
        head = HeadFields(clock_ms, since_ms, context.generation, heads.next_page[key], False)
        if clock_ms == NO_CLOCK and not heads.is_there[key]:
            encoded_start[key + 1] = at  # Only events that ask have arrived.
        else:
            kept_ms = kept_from_ms(context.tiers, clock_ms, context.policy.horizon_ms)
            encoded_start[key + 1] = write_timeline(
                work, key, head, kept_ms, context.tiers, context.paging, events.pool, encoded, at, written
            )
        key, event = key + 1, np.int64(NOT_BEGUN)
    return Position(key, event, used, clock_ms)


@allocating
def score_keys(
    events: GroupEvents,
    heads: Heads,
    directory: Directory,
    page_start,
    context: Context,
    outcomes: EventOutcomes,
    from_ms,
    rows: Rows,
    used,
    encoded,
    encoded_start,
    written: Written,
    pairs: Pairs,
):
    """Take in the events of the keys of one group; arguments are as in `_take_in_keys`.

    Returns:
        Rows, how many of them are used, the new heads, written and removed pages, and pairs; arrays without enough room
        are replaced by larger ones.
    """
    end_key = events.first_key + events.key_start.shape[0] - 1
    columns, rules = context.needs_extremes.shape[0], context.rules.number.shape[0]
    largest, most = _largest_key(heads, directory, events)
    target_start = np.zeros(2, np.int64)
    target_start[1] = most + largest // context.paging.page_cells + 2
    work = Work(
        timeline=new_timeline(largest, context.needs_extremes, context.is_text),
        directory=directory,
        edges=new_edges(context.windows.reach_ms.shape[0], columns),
        distinct=new_distinct_values(context.features, largest),
        ranked=new_ranked_values(context.features, largest, events.values, events.nulls),
        replaced=np.empty((2, columns), np.int64),
        borders=np.zeros(context.tiers.after_ms.shape[0], np.int64),
        ids=new_known_ids(largest if context.policy.repeats_ms > 0 else 0),
        listed=new_listed_periods(context.features.operation.shape[0] if context.period_room > 0 else 0),
        stretches=new_stretches(most),
        target=new_directory(target_start, columns),
    )
    done = Position(events.first_key, np.int64(NOT_BEGUN), np.int64(used), np.int64(NO_CLOCK))
    while done.key < end_key:
        done = _take_in_keys(
            work, events, heads, page_start, context, from_ms, outcomes, rows, encoded, encoded_start, written,
            pairs, done,
        )  # fmt: skip
        if done.key < end_key:
            if done.used + rules > rows.event.shape[0]:
                rows = grown(rows, done.used, 2 * rows.event.shape[0] + rules)
            size, pages = _needed_room(work, done.key)
            encoded = _with_bytes(encoded, encoded_start[done.key], size)
            written = with_page_room(written, size, pages)
            pairs = with_pair_room(pairs, _pair_room(largest + 1, context))
    return rows, done.used, encoded, written, pairs
