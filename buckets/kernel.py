"""The kernel: takes the events of many keys in arrival order, keeps their timelines, and judges each event.

The story of one event `e` of a key with clock `c`:

1. It is tested, in this order: too late (older than the horizon), duplicate (its id already stands at its time in the
   tail), late (`e.time < c`), collision (another id stands at its time). The first that holds decides.
2. Where its policy says so, it is put into the timeline, which stays sorted by time; behind the tail, into its bucket.
3. For every rule, its window is the stretch of cells from the window's edge to `e`, see `edges`. Count, sum, average,
   minimum and maximum of a stretch cost O(1) to O(log cells), see `timeline`; what an edge inside a bucket leaves open
   is bounded, see `bounds`.
4. A sum of a rule in force that does not fit 64 bits makes the event malformed: it is taken out again, and none of its
   results stand. A sum of a rule on trial that does not fit is only noted.

Before that the pages that its key's windows need are chosen (`needed`), after it the timeline is laid down again
(`layout`). All state is explicit, all loops are plain; numba compiles them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import compiled, inlined, leaf
from buckets.directory import Directory, new_directory
from buckets.edges import Edges, begin, find_edges, forget_stretches, make_way, new_edges
from buckets.head import LEAST_INT64
from buckets.judge import judge
from buckets.layout import gather, new_stretches, new_written, with_page_room, write_timeline, written_bound
from buckets.needed import Paging, Policy
from buckets.plan import DROP, EVALUATE, KEEP_FIRST, REPLACE
from buckets.rows import new_rows, with_room
from buckets.stored import Heads, KeyedEvents, load_timeline
from buckets.tiers import Tiers, kept_from_ms, set_borders
from buckets.timeline import (
    HOT,
    Timeline,
    first_ending_at_or_after,
    insert,
    is_raw,
    merge_value,
    new_timeline,
    rebuild,
    remove,
)
from buckets.verdict import COLLISION_NOT_KEPT, DUPLICATE, EVALUATED, LATE, OVERFLOW, TOO_LATE, Verdicts


class Work(NamedTuple):
    """What is at hand while one key's events are taken in."""

    timeline: Timeline
    directory: Directory
    pool: npt.NDArray[np.uint8]
    edges: Edges
    replaced: npt.NDArray[np.int64]
    tiers: Tiers
    borders: npt.NDArray[np.int64]


@inlined
def _same_id(pool, start, length, other_start, other_length):
    if length != other_length:
        return False
    for byte in range(length):  # noqa: SIM110 - a plain loop is what numba compiles
        if pool[start + byte] != pool[other_start + byte]:
            return False
    return True


@inlined
def _find_id(timeline: Timeline, first, time_ms, pool, id_start, id_length):
    """The raw cell at `time_ms`, from `first` on, that has this id; -1 where none has."""
    cell = first
    while cell < timeline.size[0] and timeline.first_ms[cell] <= time_ms:
        if _same_id(pool, id_start, id_length, timeline.id_start[cell], timeline.id_length[cell]):
            return cell
        cell += 1
    return -1


@leaf
def _exchange(work: Work, cell, id_start, id_length):
    """Give a cell another id and the values in `work.replaced`, which takes the cell's own. Cost: O(cells); rare."""
    timeline = work.timeline
    timeline.id_start[cell] = id_start
    timeline.id_length[cell] = id_length
    for column in range(timeline.extremes.shape[1]):
        before = timeline.extremes[0, column, cell]
        timeline.extremes[0, column, cell] = work.replaced[column]
        timeline.extremes[1, column, cell] = work.replaced[column]
        work.replaced[column] = before
    rebuild(timeline)
    forget_stretches(work.edges)


@inlined
def _is_in_tail(work: Work, time_ms):
    """Whether events of a time are raw."""
    return work.borders.shape[0] == 0 or time_ms >= work.borders[0]


@inlined
def _test(work: Work, events: KeyedEvents, event, clock_ms, policy: Policy, verdicts: Verdicts):
    """Decide what an event is, and note it in `verdicts`.

    Returns:
        Whether it goes into the timeline, the first cell that ends at or after its time, and whether that cell is a
        raw event of its time.
    """
    timeline, time_ms = work.timeline, events.times_ms[event]
    if clock_ms != LEAST_INT64 and time_ms < clock_ms - policy.horizon_ms:
        verdicts.outcome[event] = TOO_LATE
        return False, 0, False
    first = timeline.size[0] if time_ms > clock_ms else first_ending_at_or_after(timeline, time_ms)
    shared = False
    if first < timeline.size[0] and timeline.first_ms[first] <= time_ms and _is_in_tail(work, time_ms):
        if _find_id(timeline, first, time_ms, work.pool, events.id_start[event], events.id_length[event]) >= 0:
            verdicts.outcome[event] = DUPLICATE
            return False, 0, False
        shared = is_raw(timeline, first)
    if shared:
        verdicts.other_start[event] = timeline.id_start[first]
        verdicts.other_length[event] = timeline.id_length[first]
    refused = shared and policy.collision == KEEP_FIRST
    if time_ms < clock_ms:
        verdicts.outcome[event] = LATE
        return not refused and policy.late != DROP, first, shared
    verdicts.outcome[event] = COLLISION_NOT_KEPT if refused else EVALUATED
    return not refused, first, shared


@inlined
def _owner_for(work: Work, cell, time_ms):
    """The page to which an event at place `cell` goes: one that is at hand, of a neighbour."""
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
def _place(work: Work, events: KeyedEvents, event, first):
    """Insert an event behind the cells that share its time, or take it into the bucket around it.

    Returns:
        Its cell; -1 where it has no cell of its own.
    """
    timeline, time_ms = work.timeline, events.times_ms[event]
    cell, size = first, timeline.size[0]
    while cell < size and timeline.first_ms[cell] <= time_ms:
        if not is_raw(timeline, cell):
            merge_value(timeline, cell, events.values, event, time_ms)
            _note_change(work, timeline.owner[cell])
            forget_stretches(work.edges)
            return -1
        cell += 1
    owner = np.int32(HOT) if cell == size else _owner_for(work, cell, time_ms)
    insert(timeline, cell, time_ms, events.id_start[event], events.id_length[event], events.values, event, owner)
    _note_change(work, owner)
    if cell < size:
        make_way(work.edges, cell)
    return cell


@inlined
def _take_in(work, events, event, clock_ms, plan, reach_ms, policy, rows, used, emit_all, verdicts):
    """Take in one event: test it, place it, judge it.

    Returns:
        How many rows are used now, and the key's clock.
    """
    timeline, time_ms = work.timeline, events.times_ms[event]
    verdicts.clock_ms[event] = clock_ms
    if time_ms > clock_ms:
        set_borders(work.borders, work.tiers, time_ms)
    goes_in, cell, shared = _test(work, events, event, clock_ms, policy, verdicts)
    if not goes_in:
        return used, clock_ms
    late = time_ms < clock_ms
    replaces = shared and policy.collision == REPLACE
    id_before, length_before = np.int64(0), np.int64(0)
    if replaces:
        id_before, length_before = timeline.id_start[cell], timeline.id_length[cell]
        for column in range(timeline.extremes.shape[1]):
            work.replaced[column] = events.values[column, event]
        _exchange(work, cell, events.id_start[event], events.id_length[event])
        _note_change(work, timeline.owner[cell])
    else:
        cell = _place(work, events, event, cell)
    verdicts.applied[event] = True
    if late and (policy.late != EVALUATE or cell < 0 or not _is_in_tail(work, time_ms)):
        return used, clock_ms
    end = cell + 1
    while end < timeline.size[0] and timeline.first_ms[end] == time_ms:
        end += 1
    find_edges(work.edges, timeline, reach_ms, time_ms, end == timeline.size[0], work.tiers, work.borders)
    late_by_ms = clock_ms - time_ms if late else np.int64(0)
    used_now, overflowed = judge(
        timeline, work.edges, end, late_by_ms, time_ms, event, plan, reach_ms, policy.edge, rows, used, emit_all
    )
    if overflowed < 0:
        return used_now, max(clock_ms, time_ms)
    verdicts.outcome[event] = OVERFLOW
    verdicts.applied[event] = False
    verdicts.rule[event] = overflowed
    if replaces:
        _exchange(work, cell, id_before, length_before)
    else:
        remove(timeline, cell)
        forget_stretches(work.edges)
    if clock_ms != LEAST_INT64:
        set_borders(work.borders, work.tiers, clock_ms)
    return used, clock_ms


@leaf
def _begin_key(work: Work, heads: Heads, key, page_start):
    """Set everything up for the events of a key."""
    begin(work.edges)
    load_timeline(work.timeline, work.pool, heads, work.directory, key, page_start)
    if heads.clock_ms[key] != LEAST_INT64:
        set_borders(work.borders, work.tiers, heads.clock_ms[key])


@leaf
def _largest_key(heads: Heads, directory: Directory, events: KeyedEvents):
    """Cells that the largest timeline may come to have, and the most pages of one."""
    largest, most = np.int64(0), np.int64(0)
    for key in range(heads.cells.shape[0]):
        cells = heads.cells[key] + events.key_start[key + 1] - events.key_start[key]
        for entry in range(directory.start[key], directory.start[key + 1]):
            cells += directory.cells[entry] if directory.is_loaded[entry] else 1
        largest = max(largest, cells)
        most = max(most, directory.start[key + 1] - directory.start[key])
    return largest, most


@compiled
def _with_bytes(encoded, used, needed):
    """The same bytes with room for `needed` more, doubled where they are full."""
    if used + needed <= encoded.shape[0]:
        return encoded
    larger = np.empty(max(used + needed, 2 * encoded.shape[0]), np.uint8)
    larger[:used] = encoded[:used]
    return larger


@compiled
def score_keys(
    events: KeyedEvents,
    pool,
    heads: Heads,
    directory: Directory,
    page_start,
    plan,
    reach_ms,
    needs_extremes,
    tiers: Tiers,
    policy: Policy,
    paging: Paging,
    generation,
    emit_all,
    verdicts: Verdicts,
):
    """Take in the events of many keys.

    Args:
        events: `KeyedEvents`.
        pool: uint8, the keys' heads one behind the other, then the pages at hand, then the events' ids.
        heads: `Heads`; clocks are changed.
        directory: `Directory` of all keys, with the pages at hand marked; changed.
        page_start: int64 `(entries,)`, where each page at hand begins in the pool.
        plan: `RuleArrays`.
        reach_ms: int64 `(windows,)`, how far each window reaches back.
        needs_extremes: bool `(columns,)`.
        tiers: `Tiers`.
        policy: `Policy`.
        paging: `Paging`.
        generation: of the group.
        emit_all: whether rows are written for every rule, or for the fired ones only.
        verdicts: `Verdicts`, filled.

    Returns:
        Rows, how many of them are used, the keys' new heads one behind the other, where each begins, int64
        `(keys + 1,)`, and the pages that were written or go, `Written`.
    """
    keys, columns = heads.cells.shape[0], needs_extremes.shape[0]
    rows = new_rows(events.times_ms.shape[0] * plan.function.shape[0] + 1 if emit_all else 1024)
    used = 0
    encoded, encoded_start = np.empty(65536, np.uint8), np.zeros(keys + 1, np.int64)
    written = new_written(65536, 64)
    largest, most = _largest_key(heads, directory, events)
    most_target = most + largest // paging.page_cells + 2
    target = new_directory(np.array([0, most_target]), columns)
    stretches = new_stretches(most)
    work = Work(
        timeline=new_timeline(largest, needs_extremes),
        directory=directory,
        pool=pool,
        edges=new_edges(reach_ms.shape[0], columns),
        replaced=np.empty(columns, np.int64),
        tiers=tiers,
        borders=np.zeros(tiers.after_ms.shape[0], np.int64),
    )
    for key in range(keys):
        _begin_key(work, heads, key, page_start)
        clock_ms = heads.clock_ms[key]
        for event in range(events.key_start[key], events.key_start[key + 1]):
            rows = with_room(rows, used, plan.function.shape[0])
            used, clock_ms = _take_in(
                work, events, event, clock_ms, plan, reach_ms, policy, rows, used, emit_all, verdicts
            )
        heads.clock_ms[key] = clock_ms
        at = encoded_start[key]
        entries = directory.start[key + 1] - directory.start[key]
        bound = written_bound(work.timeline, entries)
        encoded = _with_bytes(encoded, at, bound)
        written = with_page_room(written, bound, most_target + entries)
        count, since_ms = np.int64(0), heads.since_ms[key]
        if clock_ms != LEAST_INT64:
            # No window of an event that is still to come reaches behind the horizon.
            since_ms = since_ms if since_ms > clock_ms - policy.horizon_ms else np.int64(LEAST_INT64)
            kept_ms = kept_from_ms(tiers, clock_ms, policy.horizon_ms)
            count = gather(work.timeline, directory, kept_ms, tiers, work.borders, stretches)
        encoded_start[key + 1] = write_timeline(
            encoded,
            at,
            written,
            work.timeline,
            directory,
            key,
            clock_ms,
            since_ms,
            generation,
            heads.next_page[key],
            pool,
            stretches,
            count,
            tiers,
            work.borders,
            paging,
            target,
        )
    return rows, used, encoded[: encoded_start[keys]], encoded_start, written
