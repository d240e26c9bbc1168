"""What single events of a window say: its first one, and the latest one before the event itself; and how many differ.

Windows of these operations lie in the tail, where each cell is one event, so that what they say is exact. Only after
the tail was made longer on an old checkpoint a cell of several events may be in the window, or its edge be uncertain:

- of the first or the previous event all that is known then is between what two of the cell's values it lies;
- events of which the values are not known may all be different, or all have a value that is known.

An event without a value is passed over where a value is asked for, and not where only its time is.

Where there is no such event, the value is 0, as their number says.
"""

from typing import NamedTuple

import numpy as np

from buckets.aggregates.operation import COUNT_DISTINCT, FIRST_TIME, PREVIOUS, PREVIOUS_TIME
from buckets.compiled import inlined, leaf
from buckets.kernel.distinct_values import DistinctValues, count_distinct
from buckets.kernel.plan import NO_COLUMN, FeatureArrays
from buckets.kernel.window_edges import Edges
from buckets.numbers.wide_sum import join_within
from buckets.timeline.timeline import Timeline, is_null, is_raw, total


class FoundValue(NamedTuple):
    """What is found in a window, as rows say it: value, bounds, number of events, and the bounds of that.

    `micro` is millionths after the value; where its bounds are the same, they have them too, and none where not.
    """

    value: np.int64
    micro: np.int64
    lower: np.int64
    upper: np.int64
    events: np.int64
    events_lower: np.int64
    events_upper: np.int64


@inlined
def is_counted(timeline: Timeline, counted, column, cell):
    """Return whether a cell has an event that a feature counts, with a value if `column` is not NO_COLUMN."""
    if counted >= 0 and timeline.extremes[1, counted, cell] <= 0:
        return False
    if column < 0:
        return True
    if counted < 0 or is_raw(timeline, cell):
        return not is_null(timeline, column, cell)
    return join_within(timeline.plus[0, counted, cell], timeline.plus[1, counted, cell]) > timeline.nulls[column, cell]


@leaf
def _find_cell(timeline: Timeline, counted, column, is_first, first, end):
    """Return the first or the last of cells `[first, end)` with an event that is counted; -1 where none has one."""
    if is_first:
        for cell in range(first, end):
            if is_counted(timeline, counted, column, cell):
                return cell
    else:
        for cell in range(end - 1, first - 1, -1):
            if is_counted(timeline, counted, column, cell):
                return cell
    return -1


@leaf
def _find_one(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, own, end):
    """Return the first event of a window, or the one before an event: its value or its time.

    An uncertain window holds at least the last event of its stretch: where the stretch's events all count, it holds one
    that counts.
    """
    operation, column, counted = features.operation[feature], features.measure[feature], features.counted[feature]
    window = features.window[feature]
    is_first, is_time = operation not in (PREVIOUS, PREVIOUS_TIME), operation in (FIRST_TIME, PREVIOUS_TIME)
    of = np.int64(NO_COLUMN) if is_time else column
    cell = _find_cell(timeline, counted, of, is_first, edges.inside[window], end if is_first else own)
    is_found, is_sure = cell >= 0, cell >= 0
    lower, upper = np.int64(0), np.int64(0)
    if is_found:
        lower = timeline.first_ms[cell] if is_time else timeline.extremes[0, column, cell]
        upper = timeline.last_ms[cell] if is_time else timeline.extremes[1, column, cell]
    value = upper
    nulls = np.int64(0) if is_time else edges.nulls[column, window]
    some_count = edges.is_uncertain[window] and _counted_at_edge(edges, counted, window) > nulls
    if some_count and (is_first or not is_found):
        least = edges.first_ms[window] if is_time else edges.extremes[0, column, window]
        value = edges.last_ms[window] if is_time else edges.extremes[1, column, window]
        if nulls == 0 and (counted < 0 or edges.extremes[0, counted, window] > 0):
            lower, upper, is_sure = least, value, True
        else:
            lower, upper = min(lower, least), max(upper, value)
        is_found = True
    return FoundValue(value, np.int64(0), lower, upper, np.int64(is_found), np.int64(is_sure), np.int64(is_found))


@leaf
def _counted_at_edge(edges: Edges, counted, window):
    """Return how many events of a window's stretch count."""
    if counted < 0:
        return edges.event_count[window]
    return join_within(edges.plus[0, counted, window], edges.plus[1, counted, window])


@inlined
def counted_in(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, end):
    """Return how many events with a value a feature surely counts in its window, and how many more it may."""
    window, counted, column = features.window[feature], features.counted[feature], features.measure[feature]
    inside = edges.inside[window]
    events = timeline.prefix_count[end] - timeline.prefix_count[inside]
    if counted >= 0:
        events, _ = total(timeline, counted, inside, end)
    events -= timeline.total_nulls[column, end] - timeline.total_nulls[column, inside]
    maybe = _counted_at_edge(edges, counted, window) - edges.nulls[column, window]
    if not edges.is_uncertain[window]:
        maybe = np.int64(0)
    return events, maybe


@leaf
def _find_different(timeline: Timeline, edges: Edges, distinct: DistinctValues, features: FeatureArrays, feature, end):
    """Return how many different values a window holds."""
    inside = edges.inside[features.window[feature]]
    different, known = count_distinct(timeline, edges, distinct, features, feature, inside, end)
    events, maybe = counted_in(timeline, edges, features, feature, end)
    upper, lower = different + (events - known) + maybe, max(different, min(events, np.int64(1)))
    return FoundValue(upper, np.int64(0), lower, upper, events + maybe, events, events + maybe)


@leaf
def find_single(timeline: Timeline, edges: Edges, distinct: DistinctValues, features: FeatureArrays, feature, own, end):
    """Find what a feature says whose operation comes after MAX, up to COUNT_DISTINCT."""
    if features.operation[feature] == COUNT_DISTINCT:
        return _find_different(timeline, edges, distinct, features, feature, end)
    return _find_one(timeline, edges, features, feature, own, end)
