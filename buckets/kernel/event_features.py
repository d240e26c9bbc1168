"""Features that look at the events of their windows one by one: those after MAX, whose rules fire for every value.

They are apart from `evaluate`, in a loop that runs only where there are some: that loop is compiled into every kernel,
and what it calls made all others slower.
"""

import numpy as np

from buckets.aggregates.operation import MAX, PERCENTILE
from buckets.compiled import inlined, leaf
from buckets.kernel.context import Context
from buckets.kernel.distinct_values import DistinctValues
from buckets.kernel.plan import FeatureArrays
from buckets.kernel.ranked_values import RankedValues
from buckets.kernel.ranks import find_ranked
from buckets.kernel.result_rows import Rows
from buckets.kernel.single_events import FoundValue, find_single
from buckets.kernel.window_edges import Edges
from buckets.timeline.timeline import Timeline


@inlined
def _append_rows(found: FoundValue, features: FeatureArrays, feature, numbers, event, rows: Rows, used):
    """Append a row for each rule of a feature.

    Returns:
        The number of rows used.
    """
    is_point = found.lower == found.upper
    is_exact = is_point and found.events_lower == found.events_upper
    bound_micro = found.micro if is_point else np.int64(0)
    for rule in range(features.rules_from[feature], features.rules_end[feature]):
        rows.event[used] = event
        rows.rule[used] = numbers[rule]
        rows.whole[used] = found.value
        rows.micro[used] = found.micro
        rows.lower_whole[used] = found.lower
        rows.lower_micro[used] = bound_micro
        rows.upper_whole[used] = found.upper
        rows.upper_micro[used] = bound_micro
        rows.event_count[used] = found.events
        rows.count_lower[used] = found.events_lower
        rows.count_upper[used] = found.events_upper
        rows.fired[used] = True
        rows.exact[used] = is_exact
        rows.certain[used] = is_exact
        rows.fits[used] = True
        used += 1
    return used


@leaf
def append_event_features(
    timeline: Timeline,
    edges: Edges,
    distinct: DistinctValues,
    ranked: RankedValues,
    own,
    end,
    event,
    late_by_ms,
    context: Context,
    rows: Rows,
    used,
):
    """Append a row for each rule of each such feature whose window has all its events.

    Args:
        timeline: the cells.
        edges: where the windows begin.
        distinct: the values of windows that are counted.
        ranked: the values of windows in their order.
        own: the event's cell.
        end: the cell after it, and after all others of its time.
        event: the event.
        late_by_ms: by how much it is late.
        context: the features.
        rows: has room.
        used: rows in use.

    Returns:
        The number of rows used.
    """
    features, numbers = context.features, context.rules.number
    for feature in range(features.operation.shape[0]):
        if late_by_ms > features.patience_ms[feature] or features.operation[feature] <= MAX:
            continue
        if features.operation[feature] >= PERCENTILE:
            found = find_ranked(timeline, edges, ranked, features, feature, end, event)
        else:
            found = find_single(timeline, edges, distinct, features, feature, own, end)
        used = _append_rows(found, features, feature, numbers, event, rows, used)
    return used
