"""The kernel: takes the events of many keys in arrival order, keeps their timelines, and judges each event.

The story of one event `e` of a key with clock `c`:

1. It is tested, in this order: too late (older than the horizon), duplicate (its id already stands at its time),
   late (`e.time < c`), collision (another id stands at its time). The first that holds decides.
2. Where its policy says so, it is put into the timeline, which stays sorted by time.
3. For every rule, its window is the stretch of cells from the window's edge to `e`: one place a window, found by moving
   the last event's place along, because edges only ever move forward. Count, sum, average, minimum and maximum of a
   stretch cost O(1) to O(log cells), see `timeline`.
4. A sum that does not fit 64 bits makes the event malformed: it is taken out again, and none of its results stand.

All state is explicit, all loops are plain; numba compiles them.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.codec import decode, decode_counts, encode, encoded_bound
from buckets.compiled import compiled, leaf
from buckets.judge import find_edges, judge
from buckets.plan import DROP, EVALUATE, KEEP_FIRST, REPLACE
from buckets.rows import new_rows, with_room
from buckets.timeline import Timeline, first_at_or_after, insert, new_timeline, rebuild, remove
from buckets.verdict import COLLISION_NOT_KEPT, DUPLICATE, EVALUATED, LATE, OVERFLOW, TOO_LATE, Verdicts

UNREADABLE: Final = -1
"""What `score_keys` returns for the rows' count where a timeline has an unknown codec version."""
LEAST_INT64: Final = -(2**63)


class Policy(NamedTuple):
    """What decides about events that break the order: horizon in ms, and policy codes of `plan`."""

    horizon_ms: int
    late: int
    collision: int


class KeyedEvents(NamedTuple):
    """Events of several keys, key by key, each key's in arrival order.

    Attributes:
        key_start: int64 `(keys + 1,)`, where each key's events begin.
        times_ms: int64 `(events,)`.
        values: int64 `(columns, events)`.
        id_start: int64 `(events,)`, where the event's id begins in the pool.
        id_length: int64 `(events,)`.
    """

    key_start: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    id_start: npt.NDArray[np.int64]
    id_length: npt.NDArray[np.int64]


@leaf
def _same_id(pool, start, length, other_start, other_length):
    if length != other_length:
        return False
    for byte in range(length):  # noqa: SIM110 - a plain loop is what numba compiles
        if pool[start + byte] != pool[other_start + byte]:
            return False
    return True


@leaf
def _find_id(timeline: Timeline, first, time_ms, pool, id_start, id_length):
    """The cell at `time_ms`, from `first` on, that has this id; -1 where none has."""
    cell = first
    while cell < timeline.size[0] and timeline.times_ms[cell] == time_ms:
        if _same_id(pool, id_start, id_length, timeline.id_start[cell], timeline.id_length[cell]):
            return cell
        cell += 1
    return -1


@leaf
def _largest_key(events: KeyedEvents, state, state_start):
    """Cells that the largest timeline may come to have; -1 where one has an unknown version."""
    largest = np.int64(0)
    for key in range(events.key_start.shape[0] - 1):
        held = decode_counts(state, state_start[key], state_start[key + 1])
        if held < 0:
            return np.int64(-1)
        largest = max(largest, held + events.key_start[key + 1] - events.key_start[key])
    return largest


class Work(NamedTuple):
    """What is at hand while one key's events are taken in."""

    timeline: Timeline
    pool: npt.NDArray[np.uint8]
    edges: npt.NDArray[np.int64]
    replaced: npt.NDArray[np.int64]


@leaf
def _exchange(work: Work, cell, id_start, id_length):
    """Give a cell another id and the values in `work.replaced`, which takes the cell's own. Cost: O(cells); rare."""
    timeline = work.timeline
    timeline.id_start[cell] = id_start
    timeline.id_length[cell] = id_length
    for column in range(timeline.values.shape[0]):
        before = timeline.values[column, cell]
        timeline.values[column, cell] = work.replaced[column]
        work.replaced[column] = before
    rebuild(timeline)


@leaf
def _test(work: Work, events: KeyedEvents, event, clock_ms, policy: Policy, verdicts: Verdicts):
    """Decide what an event is, and note it in `verdicts`.

    Returns:
        Whether it goes into the timeline, the first cell at or after its time, and whether that cell shares its time.
    """
    timeline, time_ms = work.timeline, events.times_ms[event]
    if clock_ms != LEAST_INT64 and time_ms < clock_ms - policy.horizon_ms:
        verdicts.outcome[event] = TOO_LATE
        return False, 0, False
    first = timeline.size[0] if time_ms > clock_ms else first_at_or_after(timeline, time_ms)
    if _find_id(timeline, first, time_ms, work.pool, events.id_start[event], events.id_length[event]) >= 0:
        verdicts.outcome[event] = DUPLICATE
        return False, 0, False
    late = time_ms < clock_ms
    shared = first < timeline.size[0] and timeline.times_ms[first] == time_ms
    if shared:
        verdicts.other_start[event] = timeline.id_start[first]
        verdicts.other_length[event] = timeline.id_length[first]
    refused = shared and policy.collision == KEEP_FIRST
    if late:
        verdicts.outcome[event] = LATE
        return not refused and policy.late != DROP, first, shared
    verdicts.outcome[event] = COLLISION_NOT_KEPT if refused else EVALUATED
    return not refused, first, shared


@leaf
def _place(work: Work, events: KeyedEvents, event, first):
    """Insert an event behind the cells that share its time; returns its cell."""
    timeline, time_ms = work.timeline, events.times_ms[event]
    cell, size = first, timeline.size[0]
    while cell < size and timeline.times_ms[cell] == time_ms:
        cell += 1
    id_start, id_length = events.id_start[event], events.id_length[event]
    insert(timeline, cell, time_ms, id_start, id_length, events.values, event)
    if cell < size:
        for window in range(work.edges.shape[0]):
            work.edges[window] += cell < work.edges[window]
    return cell


@leaf
def _take_in(work, events, event, clock_ms, plan, reach_ms, policy, rows, used, emit_all, verdicts):
    """Take in one event: test it, place it, judge it.

    Returns:
        How many rows are used now, and the key's clock.
    """
    timeline, time_ms = work.timeline, events.times_ms[event]
    verdicts.clock_ms[event] = clock_ms
    goes_in, cell, shared = _test(work, events, event, clock_ms, policy, verdicts)
    if not goes_in:
        return used, clock_ms
    late = time_ms < clock_ms
    replaces = shared and policy.collision == REPLACE
    id_before, length_before = np.int64(0), np.int64(0)
    if replaces:
        id_before, length_before = timeline.id_start[cell], timeline.id_length[cell]
        for column in range(timeline.values.shape[0]):
            work.replaced[column] = events.values[column, event]
        _exchange(work, cell, events.id_start[event], events.id_length[event])
    else:
        cell = _place(work, events, event, cell)
    verdicts.applied[event] = True
    if late and policy.late != EVALUATE:
        return used, clock_ms
    end = cell + 1
    while end < timeline.size[0] and timeline.times_ms[end] == time_ms:
        end += 1
    find_edges(work.edges, timeline, reach_ms, time_ms, end == timeline.size[0])
    held_from_ms = LEAST_INT64 if clock_ms == LEAST_INT64 else clock_ms - policy.horizon_ms
    used_now, overflowed = judge(
        timeline, work.edges, end, held_from_ms, time_ms, event, plan, reach_ms, rows, used, emit_all
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
    return used, clock_ms


@compiled
def _with_bytes(encoded, used, needed):
    """The same bytes with room for `needed` more, doubled where they are full."""
    if used + needed <= encoded.shape[0]:
        return encoded
    larger = np.empty(max(used + needed, 2 * encoded.shape[0]), np.uint8)
    larger[:used] = encoded[:used]
    return larger


@compiled
def score_keys(events, pool, state_start, plan, reach_ms, needs_extremes, policy, emit_all, verdicts):
    """Take in the events of many keys.

    Args:
        events: `KeyedEvents`.
        pool: uint8, the keys' encoded timelines one behind the other, then the events' ids.
        state_start: int64 `(keys + 1,)`, where each key's timeline begins in the pool.
        plan: `RuleArrays`.
        reach_ms: int64 `(windows,)`, how far each window reaches back.
        needs_extremes: bool `(columns,)`.
        policy: `Policy`.
        emit_all: whether rows are written for every rule, or for the fired ones only.
        verdicts: `Verdicts`, filled.

    Returns:
        Rows, how many of them are used (UNREADABLE for an unknown codec version), the keys' new encoded timelines
        one behind the other, and where each begins, int64 `(keys + 1,)`.
    """
    keys = events.key_start.shape[0] - 1
    rows = new_rows(events.times_ms.shape[0] * plan.function.shape[0] + 1 if emit_all else 1024)
    used = 0
    encoded = np.empty(65536, np.uint8)
    encoded_start = np.zeros(keys + 1, np.int64)
    largest = _largest_key(events, pool, state_start)
    if largest < 0:
        return rows, UNREADABLE, encoded, encoded_start
    work = Work(
        timeline=new_timeline(largest, needs_extremes),
        pool=pool,
        edges=np.zeros(reach_ms.shape[0], np.int64),
        replaced=np.empty(needs_extremes.shape[0], np.int64),
    )
    for key in range(keys):
        clock_ms = decode(pool, state_start[key], state_start[key + 1], work.timeline)
        work.edges[:] = 0
        for event in range(events.key_start[key], events.key_start[key + 1]):
            rows = with_room(rows, used, plan.function.shape[0])
            used, clock_ms = _take_in(
                work, events, event, clock_ms, plan, reach_ms, policy, rows, used, emit_all, verdicts
            )
        at = encoded_start[key]
        encoded = _with_bytes(encoded, at, encoded_bound(work.timeline))
        keep_from_ms = LEAST_INT64 if clock_ms == LEAST_INT64 else clock_ms - policy.horizon_ms
        encoded_start[key + 1] = encode(encoded, at, work.timeline, pool, clock_ms, keep_from_ms)
    return rows, used, encoded[: encoded_start[keys]], encoded_start
