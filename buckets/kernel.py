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
from buckets.plan import (
    ABOVE,
    ALWAYS,
    AT_LEAST,
    AT_MOST,
    AVG,
    BELOW,
    COUNT,
    DROP,
    EVALUATE,
    EXACTLY,
    KEEP_FIRST,
    MIN,
    NEVER,
    REPLACE,
    SUM,
)
from buckets.scaled import AVERAGE_FACTOR
from buckets.timeline import Timeline, extreme, first_at_or_after, insert, new_timeline, rebuild, remove, total

EVALUATED: Final = 0
TOO_LATE: Final = 1
DUPLICATE: Final = 2
LATE: Final = 3
COLLISION_NOT_KEPT: Final = 4
OVERFLOW: Final = 5
OUTCOMES: Final = 6
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


class Verdicts(NamedTuple):
    """What became of each event: arrays of shape `(events,)`.

    Attributes:
        outcome: uint8, EVALUATED | TOO_LATE | DUPLICATE | LATE | COLLISION_NOT_KEPT | OVERFLOW.
        applied: bool, whether it is in the timeline now.
        clock_ms: int64, the key's clock when it arrived.
        other_start: int64, where in the pool the id begins that shares its time; -1 for none.
        other_length: int64.
        rule: int64, the rule whose sum overflowed.
    """

    outcome: npt.NDArray[np.uint8]
    applied: npt.NDArray[np.bool_]
    clock_ms: npt.NDArray[np.int64]
    other_start: npt.NDArray[np.int64]
    other_length: npt.NDArray[np.int64]
    rule: npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Results, one row for an event and a rule: arrays of one length.

    Attributes:
        event: int64, the event's place in `KeyedEvents`.
        rule: int32, the rule's place in the plan.
        whole: int64, the value in scaled units.
        micro: int32, millionths of a unit, for averages.
        held: int64, how many events the window holds.
        fired: bool.
    """

    event: npt.NDArray[np.int64]
    rule: npt.NDArray[np.int32]
    whole: npt.NDArray[np.int64]
    micro: npt.NDArray[np.int32]
    held: npt.NDArray[np.int64]
    fired: npt.NDArray[np.bool_]


@compiled
def _new_rows(capacity):
    return Rows(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.bool_),
    )


@compiled
def _with_room(rows: Rows, used: int, needed: int) -> Rows:
    """The same rows with room for `needed` more, doubled where they are full."""
    if used + needed <= rows.event.shape[0]:
        return rows
    larger = _new_rows(2 * rows.event.shape[0] + needed)
    larger.event[:used] = rows.event[:used]
    larger.rule[:used] = rows.rule[:used]
    larger.whole[:used] = rows.whole[:used]
    larger.micro[:used] = rows.micro[:used]
    larger.held[:used] = rows.held[:used]
    larger.fired[:used] = rows.fired[:used]
    return larger


@leaf
def average(summed, count):
    """The quotient, rounded half-even to millionths.

    Returns:
        Whole units (rounded down) and millionths, 0 to 999,999.
    """
    whole = summed // count
    scaled_rest = (summed - whole * count) * AVERAGE_FACTOR
    micro = scaled_rest // count
    twice = 2 * (scaled_rest - micro * count)
    if twice > count or (twice == count and micro % 2 == 1):
        micro += 1
    if micro == AVERAGE_FACTOR:
        return whole + 1, np.int64(0)
    return whole, micro


@leaf
def _fires(comparison, whole, micro, limit_whole, limit_micro):
    """Whether a value crosses its limit."""
    if comparison in (ALWAYS, NEVER):
        return comparison == ALWAYS
    equal = whole == limit_whole and micro == limit_micro
    above = whole > limit_whole or (whole == limit_whole and micro > limit_micro)
    if comparison == ABOVE:
        return above
    if comparison == AT_LEAST:
        return above or equal
    if comparison == BELOW:
        return not (above or equal)
    if comparison == AT_MOST:
        return not above
    return equal if comparison == EXACTLY else not equal


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
def _find_edges(edges, timeline: Timeline, reach_ms, time_ms, is_last):
    """Set each window's first cell for an event at `time_ms`.

    Args:
        edges: int64 `(windows,)`, from the last event; changed.
        timeline: the cells.
        reach_ms: int64 `(windows,)`.
        time_ms: the event's time.
        is_last: whether no cell is later than the event; then edges move along, else they are searched.
    """
    for window in range(edges.shape[0]):
        start_ms = time_ms - reach_ms[window]
        if not is_last:
            edges[window] = first_at_or_after(timeline, start_ms)
            continue
        edge = min(edges[window], timeline.size[0])
        while edge > 0 and timeline.times_ms[edge - 1] >= start_ms:
            edge -= 1
        while timeline.times_ms[edge] < start_ms:
            edge += 1
        edges[window] = edge


@leaf
def _judge(timeline, edges, end, held_from_ms, time_ms, event, plan, reach_ms, rows, used, emit_all):
    """Evaluate every rule on the stretch from its window's edge to `end`, and append the rows.

    A rule whose window reaches behind `held_from_ms`, where cells may be gone, is passed over.

    Returns:
        The number of rows used, and the rule whose sum does not fit 64 bits; -1 for none.
    """
    for rule in range(plan.function.shape[0]):
        window = plan.window[rule]
        if time_ms - reach_ms[window] < held_from_ms:
            continue
        first, column, function = edges[window], plan.measure[rule], plan.function[rule]
        count = end - first
        whole, micro = np.int64(count), np.int64(0)
        if function in (SUM, AVG):
            whole, fits = total(timeline, column, first, end)
            if not fits:
                return used, rule
            if function == AVG:
                whole, micro = average(whole, count)
        elif function != COUNT:
            whole = extreme(timeline, 0 if function == MIN else 1, column, first, end)
        fired = _fires(plan.comparison[rule], whole, micro, plan.limit_whole[rule], plan.limit_micro[rule])
        if emit_all or fired:
            rows.event[used] = event
            rows.rule[used] = rule
            rows.whole[used] = whole
            rows.micro[used] = micro
            rows.held[used] = count
            rows.fired[used] = fired
            used += 1
    return used, -1


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
    _find_edges(work.edges, timeline, reach_ms, time_ms, end == timeline.size[0])
    held_from_ms = LEAST_INT64 if clock_ms == LEAST_INT64 else clock_ms - policy.horizon_ms
    used_now, overflowed = _judge(
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
    rows = _new_rows(events.times_ms.shape[0] * plan.function.shape[0] + 1 if emit_all else 1024)
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
            rows = _with_room(rows, used, plan.function.shape[0])
            used, clock_ms = _take_in(
                work, events, event, clock_ms, plan, reach_ms, policy, rows, used, emit_all, verdicts
            )
        at = encoded_start[key]
        encoded = _with_bytes(encoded, at, encoded_bound(work.timeline))
        keep_from_ms = LEAST_INT64 if clock_ms == LEAST_INT64 else clock_ms - policy.horizon_ms
        encoded_start[key + 1] = encode(encoded, at, work.timeline, pool, clock_ms, keep_from_ms)
    return rows, used, encoded[: encoded_start[keys]], encoded_start
