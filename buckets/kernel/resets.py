"""Windows of rules that count from the start again once they have fired, each of which one rule has for itself.

They are apart from `find_edges` and `evaluate`, which run for every event: what is added there slows down all rules.
"""

from buckets.compiled import leaf
from buckets.kernel.context import Context
from buckets.kernel.result_rows import Rows
from buckets.kernel.window_edges import Edges
from buckets.timeline.timeline import Timeline, first_ending_at_or_after


@leaf
def stand_at_resets(edges: Edges, from_ms, key) -> None:
    """Take over since when the windows of a key count; int64 `(keys, windows)`."""
    for window in range(edges.from_ms.shape[0]):
        edges.from_ms[window] = from_ms[key, window]


@leaf
def keep_resets(edges: Edges, from_ms, key) -> None:
    """Note since when the windows of a key count now; int64 `(keys, windows)`, changed."""
    for window in range(edges.from_ms.shape[0]):
        from_ms[key, window] = edges.from_ms[window]


@leaf
def cut_at_resets(edges: Edges, timeline: Timeline, reach_ms, time_ms) -> None:
    """Let windows that were reset begin no earlier than that, once `find_edges` has found where they would.

    They lie in the tail, where an edge is never uncertain. A window that was reset at the event's time, or later, is
    empty.
    """
    for window in range(edges.from_ms.shape[0]):
        if edges.from_ms[window] > time_ms - reach_ms[window]:
            edges.inside[window] = first_ending_at_or_after(timeline, edges.from_ms[window])
            edges.is_uncertain[window] = False


@leaf
def reset_fired(edges: Edges, context: Context, rows: Rows, first, end, time_ms) -> None:
    """Reset the windows of rules that have fired at an event while they are in effect.

    Args:
        edges: changed.
        context: the features.
        rows: the results.
        first: the first row of the event.
        end: the row after its last.
        time_ms: the event's time.
    """
    features, numbers = context.features, context.rules.number
    for feature in range(features.operation.shape[0]):
        if not (features.resets[feature] and features.resets_from_ms[feature] <= time_ms):
            continue
        if time_ms >= features.resets_until_ms[feature]:
            continue
        window, number = features.window[feature], numbers[features.rules_from[feature]]
        for row in range(first, end):
            if rows.rule[row] == number and rows.fits[row] and rows.fired[row]:
                edges.from_ms[window] = max(edges.from_ms[window], time_ms + 1)
