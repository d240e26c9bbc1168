"""How many different values a window holds: a hash table for each feature that asks for it, moving with the window.

A table counts how often each value stands in cells `[first, end)`. As events arrive in order, cells come in at its end
and leave at its beginning, in amortised O(1) each. When other cells have changed, as for an event that comes late or is
taken out again, it is built again from the cells of the window.

It is an array with linear probing, of which the first `slots` are in use, a power of two. A value that has left keeps
its slot until the table is built again, which happens when three quarters of the slots are taken: then half of them are
taken at most. A cell of several events does not tell which values it holds, and is left out.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.aggregates.operation import COUNT_DISTINCT
from buckets.compiled import allocating, inlined, leaf
from buckets.kernel.plan import FeatureArrays
from buckets.kernel.window_edges import Edges
from buckets.timeline.timeline import Timeline, is_null

_FEWEST_SLOTS = 16
_UNKNOWN = -1
_FREE = 0


class DistinctValues(NamedTuple):
    """The tables of all features that count different values: int64 `(tables,)` unless said otherwise."""

    table: npt.NDArray[np.int64]  # int64 `(features,)`, the table of each feature; -1 for none
    first: npt.NDArray[np.int64]  # the first cell whose value is in the table
    end: npt.NDArray[np.int64]  # the cell after the last
    # what `Edges.changes` was when the table was built; another number means that it holds no more
    changes: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]  # how many slots are in use
    taken: npt.NDArray[np.int64]  # how many of these have a value, be it one that has left
    different: npt.NDArray[np.int64]  # how many different values the cells hold
    events: npt.NDArray[np.int64]  # how many events the table counts
    # int64 `(tables, capacity, 3)`: a value, that of the second column, and 1 more than how often both stand in the
    # cells; 0 where the slot is free
    slot: npt.NDArray[np.int64]


@leaf
def _slots_for(cells):
    """Return the slots of a table of so many cells: at least twice as many, and a power of two."""
    slots = np.int64(_FEWEST_SLOTS)
    while slots < 2 * cells:
        slots *= 2
    return slots


@allocating
def new_distinct_values(features: FeatureArrays, cells):
    """Make empty tables with room for timelines of up to so many cells. Memory is used as far as slots are."""
    table, tables = np.full(features.operation.shape[0], -1, np.int64), np.int64(0)
    for feature in range(features.operation.shape[0]):
        if features.operation[feature] == COUNT_DISTINCT:
            table[feature] = tables
            tables += 1
    return DistinctValues(
        table,
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.full(tables, _UNKNOWN, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.empty((tables, _slots_for(cells), 3), np.int64),
    )


@inlined
def _hash(value, second):
    """Mix two values to a number whose lowest bits depend on all bits of both.

    Source: the finalizer of SplitMix64, Steele, Lea and Flood, "Fast splittable pseudorandom number generators".
    """
    mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) + np.uint64(second) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1))


@inlined
def _slot_of(slot, slots, value, second):
    """Return the slot of a value, or the free one that it is to take."""
    at = _hash(value, second) & (slots - 1)
    while slot[at, 2] != _FREE and (slot[at, 0] != value or slot[at, 1] != second):
        at = (at + 1) & (slots - 1)
    return at


@leaf
def _count(timeline: Timeline, distinct: DistinctValues, features: FeatureArrays, feature, cell, step):
    """Let the value of a cell come in (step 1) or leave (step -1), where the feature counts its event."""
    if timeline.prefix_count[cell + 1] - timeline.prefix_count[cell] != 1:
        return
    table, counted, other = distinct.table[feature], features.counted[feature], features.second[feature]
    if counted >= 0 and timeline.extremes[0, counted, cell] == 0:
        return
    if is_null(timeline, features.measure[feature], cell):
        return
    value = timeline.extremes[0, features.measure[feature], cell]
    second = timeline.extremes[0, other, cell] if other >= 0 else np.int64(0)
    slot = distinct.slot[table]
    at = _slot_of(slot, distinct.slots[table], value, second)
    if slot[at, 2] == _FREE:
        slot[at, 0], slot[at, 1], slot[at, 2] = value, second, 1
        distinct.taken[table] += 1
    slot[at, 2] += step
    distinct.events[table] += step
    if step > 0:
        distinct.different[table] += slot[at, 2] == 2
    else:
        distinct.different[table] -= slot[at, 2] == 1


@leaf
def _clear(distinct: DistinctValues, table, first, end, changes):
    """Take all values out of a table that is to hold those of cells `[first, end)`."""
    slots = _slots_for(end - first)
    for at in range(slots):
        distinct.slot[table, at, 2] = _FREE
    distinct.slots[table] = slots
    distinct.taken[table] = 0
    distinct.different[table] = 0
    distinct.events[table] = 0
    distinct.changes[table] = changes
    distinct.first[table] = first
    distinct.end[table] = first


@leaf
def count_distinct(
    timeline: Timeline, edges: Edges, distinct: DistinctValues, features: FeatureArrays, feature, first, end
):
    """Count the different values of a feature in cells `[first, end)`. Cost: amortised O(1) while events are in order.

    Returns:
        How many different values there are, and how many events have them.
    """
    table, changes = distinct.table[feature], edges.changes[0]
    known_end = distinct.end[table]
    if distinct.changes[table] != changes or not distinct.first[table] <= first <= known_end <= end:
        _clear(distinct, table, first, end, changes)
    for cell in range(distinct.first[table], first):
        _count(timeline, distinct, features, feature, cell, -1)
    distinct.first[table] = first
    cell = distinct.end[table]
    while cell < end:
        if 4 * distinct.taken[table] >= 3 * distinct.slots[table]:
            _clear(distinct, table, first, end, changes)
            cell = first
        _count(timeline, distinct, features, feature, cell, 1)
        cell += 1
    distinct.end[table] = end
    return distinct.different[table], distinct.events[table]
