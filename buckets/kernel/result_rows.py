"""Results as rows, one per event and rule, in arrays that grow; and windows that restart after an alert."""

from typing import NamedTuple

import numpy as np

from buckets.arrays import Flags, Int32s, Int64s
from buckets.compiled import allocating, leaf
from buckets.kernel.context import Context
from buckets.kernel.window_edges import Edges
from buckets.timeline.timeline import Timeline, first_ending_at_or_after


class Rows(NamedTuple):
    """Results, one row for an event and a rule: arrays of one length."""

    event: Int64s  # int64, the event's index in `KeyedEvents`
    rule: Int32s  # int32, the rule's index in the plan
    whole: Int64s  # int64, the value in scaled units
    micro: Int32s  # int32, millionths of a unit, for averages
    lower_whole: Int64s  # int64, the lower bound of the value with `tail: all`
    lower_micro: Int32s  # int32
    upper_whole: Int64s  # int64, its upper bound
    upper_micro: Int32s  # int32
    # int64, how many events the window holds, its edge's bucket counted as the value counts it
    event_count: Int64s
    count_lower: Int64s  # int64, the fewest that it can hold
    count_upper: Int64s  # int64, the most that it can hold
    fired: Flags  # bool
    exact: Flags  # bool, whether lower and upper bound are equal, before an average is rounded
    certain: Flags  # bool, whether every value between the bounds fires, or none does
    # bool; False if the rule is on trial and its sum passes 64 bits: then only event and rule are set
    fits: Flags


@allocating
def new_rows(capacity):
    """Allocate `capacity` rows."""
    return Rows(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.bool_),
        np.empty(capacity, np.bool_),
        np.empty(capacity, np.bool_),
        np.empty(capacity, np.bool_),
    )


@leaf
def stand_at_resets(edges: Edges, from_ms, key) -> None:
    """Load from when the windows of a key count; `from_ms` is int64 `(keys, windows)`."""
    for window in range(edges.from_ms.shape[0]):
        edges.from_ms[window] = from_ms[key, window]


@leaf
def keep_resets(edges: Edges, from_ms, key) -> None:
    """Store from when the windows of a key count now in `from_ms`, int64 `(keys, windows)`."""
    for window in range(edges.from_ms.shape[0]):
        from_ms[key, window] = edges.from_ms[window]


@leaf
def cut_at_resets(edges: Edges, timeline: Timeline, reach_ms, time_ms) -> None:
    """Cut windows at their last reset, after `find_edges` has found their edges.

    They lie in the tail, where an edge is never uncertain. A window that was reset at the event's time or later is
    empty.
    """
    for window in range(edges.from_ms.shape[0]):
        if edges.from_ms[window] > time_ms - reach_ms[window]:
            edges.inside[window] = first_ending_at_or_after(timeline, edges.from_ms[window])
            edges.is_uncertain[window] = False


@leaf
def reset_fired(edges: Edges, context: Context, rows: Rows, first, end, time_ms) -> None:
    """Reset the windows of rules in effect that fired at an event, whose rows are `[first, end)`."""
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
