"""The events of windows, listed for features whose filter compares them with the event itself.

Each pair lies in a list of integers: whether it is the event itself, its time, and of each column of the timeline the
least and the greatest value, which are the same but where there is none.
"""

from typing import Final, NamedTuple

import numpy as np

from buckets.arrays import Int64s
from buckets.compiled import allocating, inlined, leaf
from buckets.kernel.plan import FeatureArrays
from buckets.kernel.window_edges import Edges
from buckets.timeline.timeline import Timeline, is_raw

OWN: Final = 0
TIME: Final = 1
VALUES: Final = 2


class Pairs(NamedTuple):
    """The list."""

    used: Int64s  # int64 `(1,)`, how much of it is used
    listed: Int64s  # int64 `(capacity,)`


@allocating
def new_pairs():
    """Make an empty list."""
    return Pairs(np.zeros(1, np.int64), np.empty(1024, np.int64))


@allocating
def with_pair_room(pairs: Pairs, needed) -> Pairs:
    """Return the same list with room for so much more, doubled where it is full."""
    if has_pair_room(pairs, needed):
        return pairs
    used = pairs.used[0]
    larger = np.empty(max(used + needed, 2 * pairs.listed.shape[0]), np.int64)
    for at in range(used):
        larger[at] = pairs.listed[at]
    return Pairs(pairs.used, larger)


@inlined
def has_pair_room(pairs: Pairs, needed):
    """Return whether there is room for so much more."""
    return pairs.used[0] + needed <= pairs.listed.shape[0]


@leaf
def list_pairs(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, own, pairs: Pairs):
    """List the events of a feature's window that count by themselves, oldest first.

    Returns:
        Where they begin, and how many there are; -1 where a bucket lies in the window or holds its beginning, since the
        tail was shorter before.
    """
    window, counted, begin, events = features.window[feature], features.counted[feature], pairs.used[0], np.int64(0)
    at, listed = begin, pairs.listed
    if edges.is_uncertain[window]:
        return begin, np.int64(-1)
    for cell in range(edges.inside[window], edges.last[window]):
        if not is_raw(timeline, cell):
            return begin, np.int64(-1)
        if counted >= 0 and timeline.extremes[1, counted, cell] <= 0:
            continue
        listed[at + OWN] = cell == own
        listed[at + TIME] = timeline.first_ms[cell]
        at += VALUES
        for column in range(timeline.extremes.shape[1]):
            listed[at] = timeline.extremes[0, column, cell]
            listed[at + 1] = timeline.extremes[1, column, cell]
            at += 2
        events += 1
    pairs.used[0] = at
    return begin, events
