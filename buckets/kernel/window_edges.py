"""The edges of windows: which cells are surely inside, and the sums of those that may be partly outside.

    cells       [ bucket ][ bucket ][ bucket ] · ·  · · ·· raw events · ·
                               ^ edge
                          [stretch ]<------ surely inside ------------->

An edge in the tail falls between two raw events, and its stretch is empty. Before the tail it falls into a bucket: the
stretch is all cells of that bucket, already folded or not, because the result must depend on the key's clock alone
(`tiers`). If the edge is at or before the stretch's first event, all of it is inside; if it is later than the last,
none is; both are exact. Otherwise the window is *uncertain*.

A window ends with its event, before it, or some time earlier. In the last case its end may lie in a bucket too, and the
uncertain part is both stretches together.

A window of the last N events begins with the first of the N that count; if that one lies in a bucket, the bucket may be
partly outside.

Edges move forward with the events, in amortised O(1); a stretch is added up once, not for every event.
"""

from typing import NamedTuple

import numpy as np

from buckets.arrays import Flags, Int64s
from buckets.compiled import allocating, inlined, leaf
from buckets.kernel.plan import BEFORE_ITSELF, FeatureArrays, Windows
from buckets.numbers.wide_sum import join_within
from buckets.timeline.head import FROM_THE_BEGINNING
from buckets.timeline.tiers import Tiers, floor_to, width_at
from buckets.timeline.timeline import Timeline, add_cells, first_ending_at_or_after, forget_cells, is_raw, total

UNKNOWN = -1


class Edges(NamedTuple):
    """The edges of the current event's windows: arrays of shape `(windows,)` unless said otherwise."""

    start: Int64s  # int64, the first cell of the stretch
    end: Int64s  # int64, the cell after it
    inside: Int64s  # int64, the first cell that is surely inside the window
    last: Int64s  # int64, the cell after the last that is surely inside
    is_uncertain: Flags  # bool, whether a part of the stretch may be inside too
    width_ms: Int64s  # int64, width of the bucket that an uncertain edge falls into
    covered_ms: Int64s  # int64, how much of that width the window covers
    seen_start: Int64s  # int64, the stretch to which the following fields belong; UNKNOWN for none
    seen_end: Int64s  # int64
    event_count: Int64s  # int64, events in the stretch
    first_ms: Int64s  # int64, time of its first event
    last_ms: Int64s  # int64, time of its last event
    extremes: Int64s  # int64 `(2, columns, windows)`, least and greatest value
    plus: Int64s  # int64 `(2, columns, windows)`, sum of positive values, a normal pair
    minus: Int64s  # int64 `(2, columns, windows)`, sum of negative values without its sign
    nulls: Int64s  # int64 `(columns, windows)`, events without a value
    # int64 `(1,)`, how often cells other than a new last one have changed, or another timeline was begun
    changes: Int64s
    # int64, from when events count since the window was reset; FROM_THE_BEGINNING if it never was
    from_ms: Int64s
    # int64 each, for windows of sessions: the first cell of the latest known session, the cell of the event for which
    # it was found, and `changes` at that time
    session_start: Int64s
    session_own: Int64s
    session_changes: Int64s


@allocating
def new_edges(windows, columns):
    """Allocate edges of this many windows over this many measures; see `begin`."""
    return Edges(
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.bool_),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.zeros((2, columns, windows), np.int64),
        np.zeros((2, columns, windows), np.int64),
        np.zeros((2, columns, windows), np.int64),
        np.zeros((columns, windows), np.int64),
        np.zeros(1, np.int64),
        np.full(windows, FROM_THE_BEGINNING),
        np.zeros(windows, np.int64),
        np.zeros(windows, np.int64),
        np.full(windows, UNKNOWN),
    )


@inlined
def forget_stretches(edges: Edges) -> None:
    """Invalidate the sums of stretches, as some cell before the newest has changed."""
    edges.seen_start[:] = UNKNOWN
    edges.changes[0] += 1


@inlined
def begin(edges: Edges) -> None:
    """Begin another timeline."""
    edges.start[:] = 0
    edges.end[:] = 0
    forget_stretches(edges)


@leaf
def make_way(edges: Edges, cell) -> None:
    """Shift the edges past a cell that was inserted."""
    for window in range(edges.start.shape[0]):
        edges.start[window] += cell < edges.start[window]
        edges.end[window] += cell < edges.end[window]
    forget_stretches(edges)


@inlined
def _moved(cell, timeline: Timeline, times_ms, time_ms):
    """Return the first cell whose time is `time_ms` or later, searching from a nearby cell."""
    size = timeline.size[0]
    cell = min(cell, size)
    while cell > 0 and times_ms[cell - 1] >= time_ms:
        cell -= 1
    while cell < size and times_ms[cell] < time_ms:
        cell += 1
    return cell


@inlined
def begin_of(windows: Windows, window, time_ms):
    """Return the first time inside the window of an event at `time_ms`."""
    edge_ms = time_ms - windows.reach_ms[window]
    if windows.back[window] > 0:
        return step_begin(windows, window, step_at(windows, window, time_ms) - windows.back[window])
    if windows.period_from[window] < windows.period_end[window]:
        edge_ms = max(edge_ms, _period_start(windows, window, time_ms))
    return edge_ms


@leaf
def step_at(windows: Windows, window, time_ms):
    """Return the number of the day or step in which a time lies, for a window of whole periods."""
    if windows.step_ms[window] > 0:
        return time_ms // windows.step_ms[window]
    return np.int64(_periods_begun(windows, window, time_ms)) - windows.period_from[window] - 1


@inlined
def step_begin(windows: Windows, window, step):
    """Return when a day or step begins; for a day before the known ones, when the first known one does."""
    if windows.step_ms[window] > 0:
        return step * windows.step_ms[window]
    return windows.period_ms[windows.period_from[window] + max(step, np.int64(0))]


@leaf
def _period_start(windows: Windows, window, time_ms):
    """Return when the period that contains a time begins; FROM_THE_BEGINNING if unknown."""
    low = _periods_begun(windows, window, time_ms)
    return windows.period_ms[low - 1] if low > windows.period_from[window] else np.int64(FROM_THE_BEGINNING)


@inlined
def _periods_begun(windows: Windows, window, time_ms):
    """Return the index after that of the last period that begins at or before a time."""
    low, high = windows.period_from[window], windows.period_end[window]
    while low < high:
        middle = (low + high) // 2
        if windows.period_ms[middle] <= time_ms:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def find_edges(
    edges: Edges, timeline: Timeline, windows: Windows, own, after, is_there, time_ms, tiers: Tiers, borders
) -> None:
    """Set the edges of all windows for an event, from those of the event before.

    `own` is the event's cell, and `after` the first cell later than it: at the end of the timeline edges move along,
    otherwise they are searched. An event that only asks is not `is_there`, and its `own` equals `after`. `borders` are
    those of the tiers at the key's clock.
    """
    is_last = after == timeline.size[0]
    for window in range(edges.start.shape[0]):
        is_plain, edge_ms = windows.is_plain[window], time_ms - windows.reach_ms[window]
        if not is_plain:
            edge_ms = begin_of(windows, window, time_ms)
        width_ms = width_at(tiers, borders, edge_ms)
        bucket_ms = edge_ms if width_ms == 1 else floor_to(edge_ms, width_ms)
        if is_last:
            start = _moved(edges.start[window], timeline, timeline.last_ms, bucket_ms)
        else:
            start = first_ending_at_or_after(timeline, bucket_ms)
        end = start
        if width_ms > 1:
            near = max(start, edges.end[window]) if is_last else start
            end = max(start, _moved(near, timeline, timeline.first_ms, bucket_ms + width_ms))
        elif start < timeline.size[0] and timeline.first_ms[start] < edge_ms:
            end = start + 1
        edges.start[window] = start
        edges.end[window] = end
        edges.last[window] = after
        _settle(edges, window, timeline, edge_ms, width_ms)
        if is_plain:
            continue
        until_ms = windows.until_ms[window]
        if until_ms == BEFORE_ITSELF:
            edges.last[window] = own
            edges.inside[window] = min(edges.inside[window], own)
        elif until_ms > 0:
            _end_earlier(edges, window, timeline, time_ms - until_ms, tiers, borders)
        if windows.gap_ms[window] > 0:
            _begin_with_session(edges, window, timeline, windows.gap_ms[window], own, is_there, time_ms)
        if windows.most[window] > 0:
            _keep_last(edges, window, timeline, windows.most[window], windows.counted[window])


@inlined
def _settle(edges: Edges, window, timeline: Timeline, edge_ms, width_ms) -> None:
    """Decide whether all, none or an uncertain part of the stretch is inside the window."""
    start, end = edges.start[window], edges.end[window]
    edges.inside[window] = end
    edges.is_uncertain[window] = False
    if start == end:
        return
    if edges.seen_start[window] != start or edges.seen_end[window] != end:
        forget_cells(edges, window)
        add_cells(edges, window, timeline, start, end)
        edges.seen_start[window] = start
        edges.seen_end[window] = end
        edges.first_ms[window] = timeline.first_ms[start]
        edges.last_ms[window] = timeline.last_ms[end - 1]
    if edge_ms <= edges.first_ms[window]:
        edges.inside[window] = start
    elif edge_ms <= edges.last_ms[window]:
        edges.is_uncertain[window] = True
        begin_ms = floor_to(edge_ms, width_ms) if width_ms > 1 else edges.first_ms[window]
        edges.width_ms[window] = width_ms if width_ms > 1 else edges.last_ms[window] - begin_ms + 1
        edges.covered_ms[window] = edges.width_ms[window] - (edge_ms - begin_ms)


@leaf
def _end_earlier(edges: Edges, window, timeline: Timeline, end_ms, tiers: Tiers, borders) -> None:
    """End a window, whose beginning is set, at a time earlier than its event's."""
    width_ms = width_at(tiers, borders, end_ms)
    begin_ms = end_ms if width_ms == 1 else floor_to(end_ms, width_ms)
    start = max(np.int64(first_ending_at_or_after(timeline, begin_ms)), edges.inside[window])
    end = start
    while end < timeline.size[0] and timeline.first_ms[end] < begin_ms + width_ms:
        end += 1
    is_none = start == end or end_ms < timeline.first_ms[start]
    is_whole = start < end and timeline.last_ms[end - 1] <= end_ms
    edges.last[window] = end if is_whole else start
    edges.inside[window] = min(edges.inside[window], edges.last[window])
    if is_none or is_whole:
        return
    if not edges.is_uncertain[window]:
        forget_cells(edges, window)
        edges.width_ms[window] = 0
        edges.covered_ms[window] = 0
    add_cells(edges, window, timeline, start, end)
    edges.seen_start[window] = UNKNOWN
    edges.is_uncertain[window] = True
    begin_ms = begin_ms if width_ms > 1 else timeline.first_ms[start]
    edges.width_ms[window] += width_ms if width_ms > 1 else timeline.last_ms[end - 1] - begin_ms + 1
    edges.covered_ms[window] += end_ms - begin_ms + 1


@inlined
def _events(timeline: Timeline, counted, first, end):
    """Return how many events of cells `[first, end)` count."""
    if counted < 0:
        return timeline.prefix_count[end] - timeline.prefix_count[first]
    events, _ = total(timeline, counted, first, end)
    return events


@leaf
def counted_at_edge(edges: Edges, counted, window):
    """Return how many events of a window's stretch count."""
    if counted < 0:
        return edges.event_count[window]
    return join_within(edges.plus[0, counted, window], edges.plus[1, counted, window])


@leaf
def counted_in(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, column):
    """Return how many events of its window a feature surely counts, and how many more it may count.

    These are the events with a value in `column`; all for NO_COLUMN.
    """
    window, counted = features.window[feature], features.counted[feature]
    inside, end, maybe = edges.inside[window], edges.last[window], np.int64(0)
    events = _events(timeline, counted, inside, end)
    if edges.is_uncertain[window]:
        maybe = counted_at_edge(edges, counted, window)
    if column >= 0:
        events -= timeline.total_nulls[column, end] - timeline.total_nulls[column, inside]
        maybe -= edges.nulls[column, window] if edges.is_uncertain[window] else 0
    return events, maybe


@leaf
def _begin_with_session(edges: Edges, window, timeline: Timeline, gap_ms, own, is_there, time_ms) -> None:
    """Begin a window no earlier than the session of its event. Cost: amortised O(1) while events are in order.

    If the search meets a cell of several events, the session may begin in it or before.
    """
    first, known, inside = own, own + 1, edges.inside[window]
    if edges.session_changes[window] == edges.changes[0] and edges.session_own[window] < own + is_there:
        known = edges.session_own[window]
    begin_ms = time_ms
    while first > inside and first != known and begin_ms - timeline.last_ms[first - 1] <= gap_ms:
        if not is_raw(timeline, first - 1):
            edges.session_changes[window] = UNKNOWN
            edges.inside[window] = min(first, edges.last[window])
            if not edges.is_uncertain[window]:
                forget_cells(edges, window)
            add_cells(edges, window, timeline, inside, first)
            edges.seen_start[window] = UNKNOWN
            edges.is_uncertain[window] = True
            edges.width_ms[window], edges.covered_ms[window] = 1, 1
            return
        first -= 1
        begin_ms = timeline.first_ms[first]
    if first == known:
        first = edges.session_start[window]
    if is_there:
        edges.session_start[window] = first
        edges.session_own[window] = own
        edges.session_changes[window] = edges.changes[0]
    if first > inside:
        edges.inside[window] = min(first, edges.last[window])
        edges.is_uncertain[window] = False


@leaf
def _keep_last(edges: Edges, window, timeline: Timeline, most, counted) -> None:
    """Reduce a window to its last `most` events that count. Cost: O(log cells)."""
    first, end = edges.inside[window], edges.last[window]
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        if _events(timeline, counted, middle, end) <= most:
            high = middle
        else:
            low = middle + 1
    lacking = most - _events(timeline, counted, low, end)
    edges.inside[window] = low
    edges.is_uncertain[window] = lacking > 0 and (low > first or edges.is_uncertain[window])
    if low > first and lacking > 0:
        forget_cells(edges, window)
        add_cells(edges, window, timeline, low - 1, low)
        edges.seen_start[window] = UNKNOWN
        edges.first_ms[window] = timeline.first_ms[low - 1]
        edges.last_ms[window] = timeline.last_ms[low - 1]
        edges.width_ms[window] = _events(timeline, counted, low - 1, low)
        edges.covered_ms[window] = lacking


@leaf
def find_border(timeline: Timeline, edge_ms, tiers: Tiers, borders):
    """Return two cells: all before the first lies before a time, and all from the second on does not.

    The cells between may be on either side. As for edges, which ones they are depends on the key's clock alone.
    """
    width_ms = width_at(tiers, borders, edge_ms)
    bucket_ms = floor_to(edge_ms, width_ms)
    start = np.int64(first_ending_at_or_after(timeline, bucket_ms))
    end, until_ms = start, edge_ms if width_ms == 1 else bucket_ms + width_ms
    while end < timeline.size[0] and timeline.first_ms[end] < until_ms:
        end += 1
    if start == end or edge_ms <= timeline.first_ms[start]:
        return start, start
    return (end, end) if edge_ms > timeline.last_ms[end - 1] else (start, end)


@leaf
def hold_between(edges: Edges, window, timeline: Timeline, low, high, next_low, next_high) -> None:
    """Set a window to the cells between two borders from `find_border`."""
    edges.inside[window] = high
    edges.last[window] = max(next_low, high)
    edges.is_uncertain[window] = low < high or next_low < next_high
    if edges.is_uncertain[window]:
        forget_cells(edges, window)
        add_cells(edges, window, timeline, low, high)
        add_cells(edges, window, timeline, edges.last[window], max(next_high, high))
        edges.seen_start[window] = UNKNOWN
