"""What a window's values say in their order: a percentile, the median, and the mode, which is the most frequent one.

Windows of these operations lie in the tail, where each cell is one event, so that what they say is exact. Only after
the tail was made longer on an old checkpoint a cell of several events may be in the window, or its edge be uncertain.
Then the value is that of the events that are known, or the greatest that there may be if none is; it lies between the
least and the greatest of all that may count.
"""

import numpy as np

from buckets.aggregates.operation import MEDIAN, MODE
from buckets.compiled import leaf
from buckets.kernel.plan import FeatureArrays
from buckets.kernel.ranked_values import RankedValues, count_ranked, ranked_value
from buckets.kernel.single_events import FoundValue, counted_in, is_counted
from buckets.kernel.window_edges import Edges
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.timeline.timeline import Timeline

_ALL = 10_000
"""Hundredths of a per cent in all."""
_HALF = 500_000
"""Millionths."""


@leaf
def _extremes(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, end, maybe):
    """Return the least and the greatest value that may count. Cost: O(cells)."""
    column, counted, window = features.measure[feature], features.counted[feature], features.window[feature]
    least, greatest = np.int64(INT64_MAX), np.int64(INT64_MIN)
    if maybe > 0:
        least, greatest = edges.extremes[0, column, window], edges.extremes[1, column, window]
    for cell in range(edges.inside[window], end):
        if is_counted(timeline, counted, column, cell):
            least = min(least, timeline.extremes[0, column, cell])
            greatest = max(greatest, timeline.extremes[1, column, cell])
    return least, greatest


@leaf
def _value(ranked: RankedValues, features: FeatureArrays, feature, events):
    """Return the value of so many events that a tree counts, at least one: its whole and millionths."""
    table, operation = ranked.table[feature], features.operation[feature]
    first = (events * features.parameter[feature] + _ALL - 1) // _ALL
    last = first
    if operation == MEDIAN:
        first, last = (events + 1) // 2, events // 2 + 1
    value = ranked_value(ranked, table, operation == MODE, first)
    if first == last:
        return value, np.int64(0)
    other = ranked_value(ranked, table, False, last)
    # The half of each, and what both halves leave, so that no sum passes 64 bits.
    return (value >> 1) + (other >> 1) + (value & other & 1), ((value ^ other) & 1) * _HALF


@leaf
def find_ranked(timeline: Timeline, edges: Edges, ranked: RankedValues, features: FeatureArrays, feature, end, event):
    """Find what a feature says whose operation is a percentile, the median or the mode."""
    inside = edges.inside[features.window[feature]]
    known = count_ranked(timeline, edges, ranked, features, feature, inside, end, event)
    events, maybe = counted_in(timeline, edges, features, feature, end)
    value, micro = np.int64(0), np.int64(0)
    if known > 0:
        value, micro = _value(ranked, features, feature, known)
    lower, upper = value, value
    if events > known or maybe > 0:
        lower, upper = _extremes(timeline, edges, features, feature, end, maybe)
        if known == 0 and events > 0:
            value = upper
    return FoundValue(value, micro, lower, upper, events, events, events + maybe)
