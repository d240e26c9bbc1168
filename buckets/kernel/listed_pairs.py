"""The events of windows, listed for features whose filter compares them with the event itself.

A pair is a run of integers: whether it is the event itself, its time, and for each column of the timeline the least and
the greatest value, which are equal unless the event has none.
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
    """A list of pairs."""

    used: Int64s  # int64 `(1,)`, how much of the list is used
    listed: Int64s  # int64 `(capacity,)`


@allocating
def new_pairs():
    """Allocate an empty list."""
    return Pairs(np.zeros(1, np.int64), np.empty(1024, np.int64))


@allocating
def with_pair_room(pairs: Pairs, needed) -> Pairs:
    """Return the list with room for `needed` more; it at least doubles when it grows."""
    if has_pair_room(pairs, needed):
        return pairs
    used = pairs.used[0]
    larger = np.empty(max(used + needed, 2 * pairs.listed.shape[0]), np.int64)
    for at in range(used):
        larger[at] = pairs.listed[at]
    return Pairs(pairs.used, larger)


@inlined
def has_pair_room(pairs: Pairs, needed):
    """Return whether the list has room for `needed` more."""
    return pairs.used[0] + needed <= pairs.listed.shape[0]


@leaf
def list_pairs(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, own, pairs: Pairs):
    """List the events of a feature's window that count on their own, oldest first.

    Returns:
        Their offset in the list, and their number; -1 if the window contains or begins in a bucket, because the tail
        used to be shorter.
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
