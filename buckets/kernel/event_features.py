"""Features that look at the events of their windows one by one: those after MAX, whose rules fire for every value.

They are apart from `evaluate`, in a loop that runs only where there are some: that loop is compiled into every kernel,
and what it calls made all others slower.
"""

from buckets.compiled import leaf
from buckets.kernel.context import Context
from buckets.kernel.distinct_values import DistinctValues
from buckets.kernel.plan import MAX, PERCENTILE
from buckets.kernel.ranked_values import RankedValues
from buckets.kernel.ranks import append_ranked
from buckets.kernel.result_rows import Rows
from buckets.kernel.single_events import append_found
from buckets.kernel.window_edges import Edges
from buckets.timeline.timeline import Timeline


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
    for feature in range(features.function.shape[0]):
        if late_by_ms > features.patience_ms[feature] or features.function[feature] <= MAX:
            continue
        if features.function[feature] >= PERCENTILE:
            used = append_ranked(timeline, edges, ranked, features, feature, end, numbers, event, rows, used)
        else:
            used = append_found(timeline, edges, distinct, features, feature, own, end, numbers, event, rows, used)
    return used
