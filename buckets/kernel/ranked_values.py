"""The values of a window in order: for each column and window that needs ranks, a tree that moves with the window.

For a key and a batch, all values that may enter a window are known in advance: those of its cells, and those of the
key's events still to come. They are sorted once. The leaves of a binary tree are the distinct values, ascending, and
hold how often each occurs in cells `[first, end)`. A node holds the sum of its two children; for the mode, it holds the
greater one, and leaves also have the last of their cells in the lower bits. With the values `1 1 3 5` it is

        4               2
      3   1           2   1
     2 1 1 0         2 1 1 0
     1 3 5           1 3 5

As events arrive in order, cells enter at the end and leave at the beginning, and the n-th least value is found on the
way down from the root, each in O(log values). When other cells have changed, because an event came late or was removed,
the cells of the window are counted again. If one of their values is unknown, because the window of a late event reaches
further back, all values are sorted again. A cell of several events does not say which values it holds, and is left out.
"""

from typing import NamedTuple

import numpy as np

from buckets.aggregates.component import COUNT_DISTINCT, MODE, PAIRS, PERCENTILE
from buckets.arrays import Flags, Int64s
from buckets.byte_strings import hash_bytes, slots_for
from buckets.compiled import allocating, inlined, leaf
from buckets.kernel.plan import FeatureArrays
from buckets.kernel.window_edges import Edges
from buckets.timeline.timeline import Timeline, is_null, is_raw, same_texts, text_length, text_start

_NO_KEY = -1
_CELL_BITS = 32
_UNKNOWN, _NOT_COUNTED = -2, -1


class RankedValues(NamedTuple):
    """The trees of all features that need ranks: int64 arrays of shape `(tables,)` unless said otherwise.

    Features with the same column, window and counted events share one, except that the mode has its own.
    """

    table: Int64s  # int64 `(features,)`, the table of each feature; -1 for none
    to_come: Int64s  # int64 `(columns, events)`, the values of all events of the call
    nulls_to_come: Flags  # bool `(columns, events)`, which of them are missing
    key_end: Int64s  # int64 `(1,)`, the event after the current key's last one
    first: Int64s  # the first cell whose value is counted
    end: Int64s  # the cell after the last
    # `Edges.changes` when they were counted; another number means that the counts are not valid any more
    changes: Int64s
    sorted_for: Int64s  # `key_end` when values were sorted
    different: Int64s  # how many different values are known
    leaves: Int64s  # how many leaves the tree has, a power of two
    events: Int64s  # how many events the tree counts
    value: Int64s  # int64 `(tables, capacity)`, the different values, sorted
    room: Int64s  # int64 `(capacity,)`, for sorting
    # int64 `(tables, capacity)`, the counted rank of each cell in `[first, end)`; below 0 for none
    rank: Int64s
    texts: Int64s  # int64 `(slots,)`, room for a table of the places of texts
    # int64 `(tables, 4 * capacity)`, the root at 1, the children of node n at 2n and 2n + 1
    tree: Int64s


@leaf
def _table_of(features: FeatureArrays, table, feature):
    """Return the table of an earlier feature that this one shares; -1 for none."""
    for other in range(feature):
        if (
            table[other] >= 0
            and (features.operation[other] == MODE) == (features.operation[feature] == MODE)
            and features.measure[other] == features.measure[feature]
            and features.counted[other] == features.counted[feature]
            and features.window[other] == features.window[feature]
        ):
            return table[other]
    return np.int64(-1)


@allocating
def new_ranked_values(features: FeatureArrays, cells, to_come, nulls_to_come):
    """Allocate empty tables for timelines of up to this many cells. Only rows with values take memory.

    `to_come` are the values of all events, int64 `(columns, events)`; `nulls_to_come` says which are missing.
    """
    table, tables = np.full(features.operation.shape[0], -1, np.int64), np.int64(0)
    for feature in range(features.operation.shape[0]):
        if PERCENTILE <= features.operation[feature] < PAIRS:
            table[feature] = _table_of(features, table, feature)
            if table[feature] < 0:
                table[feature] = tables
                tables += 1
    capacity = cells if tables > 0 else np.int64(0)
    return RankedValues(
        table,
        to_come,
        nulls_to_come,
        np.zeros(1, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.full(tables, _NO_KEY, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.empty((tables, capacity), np.int64),
        np.empty(capacity, np.int64),
        np.empty((tables, capacity), np.int64),
        np.empty(slots_for(capacity), np.int64),
        np.empty((tables, 4 * capacity), np.int64),
    )


@leaf
def _sort(numbers, room, size):
    """Sort the first `size` numbers of an array, by merging runs of 1, 2, 4 and so on. Cost: O(size log size)."""
    run = np.int64(1)
    while run < size:
        for begin in range(0, size - run, 2 * run):
            middle, end = begin + run, min(begin + 2 * run, size)
            if numbers[middle - 1] <= numbers[middle]:
                continue
            for at in range(begin, middle):
                room[at] = numbers[at]
            left, right, at = begin, middle, begin
            while left < middle and right < end:
                # Without a branch, which would be mispredicted every other time.
                is_right = numbers[right] < room[left]
                numbers[at] = numbers[right] if is_right else room[left]
                right += is_right
                left += not is_right
                at += 1
            for rest in range(left, middle):
                numbers[at + rest - left] = room[rest]
        run *= 2


@inlined
def _is_counted(timeline: Timeline, counted, column, cell):
    """Return whether a cell holds a single event that counts and has a value."""
    if timeline.prefix_count[cell + 1] - timeline.prefix_count[cell] != 1 or is_null(timeline, column, cell):
        return False
    if timeline.is_text[column] and not is_raw(timeline, cell):
        return False
    return counted < 0 or timeline.extremes[0, counted, cell] != 0


@leaf
def _learn(timeline: Timeline, ranked: RankedValues, features: FeatureArrays, feature, first, event):
    """Sort the values of cells from `first` on, and of the key's events after `event`; empties the tree."""
    table, column, counted = ranked.table[feature], features.measure[feature], features.counted[feature]
    value, size = ranked.value[table], np.int64(0)
    for cell in range(first, timeline.size[0]):
        if _is_counted(timeline, counted, column, cell):
            value[size] = timeline.extremes[0, column, cell]
            size += 1
    for later in range(event + 1, ranked.key_end[0]):
        is_there = not ranked.nulls_to_come[column, later]
        if is_there and (counted < 0 or ranked.to_come[counted, later] != 0):
            value[size] = ranked.to_come[column, later]
            size += 1
    _sort(value, ranked.room, size)
    different = np.int64(0)
    for at in range(size):
        if different == 0 or value[at] != value[different - 1]:
            value[different] = value[at]
            different += 1
    leaves = np.int64(1)
    while leaves < different:
        leaves *= 2
    ranked.different[table] = different
    ranked.leaves[table] = leaves
    ranked.sorted_for[table] = ranked.key_end[0]
    for node in range(2 * leaves):
        ranked.tree[table, node] = 0
    ranked.events[table] = 0
    ranked.first[table] = first
    ranked.end[table] = first


@inlined
def _rank_of(timeline: Timeline, ranked: RankedValues, features: FeatureArrays, feature, table, cell):
    """Return the rank of a cell's value, from 0; _NOT_COUNTED if it does not count, _UNKNOWN if it is new."""
    if not _is_counted(timeline, features.counted[feature], features.measure[feature], cell):
        return np.int64(_NOT_COUNTED)
    value, different = ranked.value[table], ranked.different[table]
    wanted = timeline.extremes[0, features.measure[feature], cell]
    low, step = np.int64(0), ranked.leaves[table] >> 1
    while step > 0:
        after = low + step
        low = after if after <= different and value[after - 1] < wanted else low
        step >>= 1
    return low if low < different and value[low] == wanted else np.int64(_UNKNOWN)


@leaf
def _count(ranked: RankedValues, table, is_mode, rank, step, cell):
    """Add (step 1) or remove (step -1) the value of a cell."""
    tree = ranked.tree[table]
    node = ranked.leaves[table] + rank
    if not is_mode:
        tree[node] += step
    elif step < 0:
        tree[node] -= np.int64(1) << _CELL_BITS
    else:
        tree[node] = (((tree[node] >> _CELL_BITS) + 1) << _CELL_BITS) | np.int64(cell)
    ranked.events[table] += step
    node >>= 1
    while node > 0:
        if is_mode:
            most = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == most:
                break
            tree[node] = most
        else:
            tree[node] += step
        node >>= 1


@leaf
def count_ranked(timeline: Timeline, edges: Edges, ranked: RankedValues, features: FeatureArrays, feature, event):
    """Update a feature's tree to the cells of its window, and return how many events it counts.

    Cost: amortised O(log values) for an event in order.
    """
    first, end = edges.inside[features.window[feature]], edges.last[features.window[feature]]
    table, changes, is_mode = ranked.table[feature], edges.changes[0], features.operation[feature] == MODE
    if ranked.sorted_for[table] != ranked.key_end[0]:
        _learn(timeline, ranked, features, feature, first, event)
        ranked.changes[table] = changes
    known_end = ranked.end[table]
    stands = ranked.changes[table] == changes and ranked.first[table] <= first <= known_end <= end
    for cell in range(ranked.first[table], first if stands else known_end):
        if ranked.rank[table, cell] >= 0:
            _count(ranked, table, is_mode, ranked.rank[table, cell], -1, cell)
    ranked.first[table] = first
    ranked.changes[table] = changes
    cell = known_end if stands else first
    while cell < end:
        rank = _rank_of(timeline, ranked, features, feature, table, cell)
        if rank == _UNKNOWN:
            _learn(timeline, ranked, features, feature, first, event)
            cell = first
            continue
        ranked.rank[table, cell] = rank
        if rank >= 0:
            _count(ranked, table, is_mode, rank, 1, cell)
        cell += 1
    ranked.end[table] = end
    return ranked.events[table]


@leaf
def ranked_value(ranked: RankedValues, table, is_mode, nth):
    """Return the n-th least value in a tree, from 1; from the mode's tree, the most frequent one, latest among equals.

    Cost: O(log values).
    """
    tree, leaves = ranked.tree[table], ranked.leaves[table]
    node = np.int64(1)
    while node < leaves:
        node *= 2
        if is_mode:
            node += tree[node] < tree[node + 1]
        else:
            is_right = nth > tree[node]
            nth -= tree[node] if is_right else np.int64(0)
            node += is_right
    return ranked.value[table, node - leaves]


@inlined
def _shared(slot, slots, pool, place):
    """Return the place that a table has for a text; inserts a new one."""
    at = np.int64(hash_bytes(pool, text_start(place), text_length(place)) >> np.uint64(32)) & (slots - 1)
    while slot[at] != _FREE and not same_texts(pool, slot[at], place):
        at = (at + 1) & (slots - 1)
    if slot[at] == _FREE:
        slot[at] = place
    return slot[at]


@leaf
def share_texts(timeline: Timeline, ranked: RankedValues, column, first, pool) -> None:
    """Give equal texts of a key the same place, in its cells and in its events from `first` on, so that they rank.

    Cost: O(cells and events).
    """
    slots, end = slots_for(timeline.size[0] + ranked.key_end[0] - first), ranked.key_end[0]
    ranked.texts[:slots] = _FREE
    for cell in range(timeline.size[0]):
        if is_raw(timeline, cell) and not is_null(timeline, column, cell) and timeline.extremes[0, column, cell] != 0:
            place = _shared(ranked.texts, slots, pool, timeline.extremes[0, column, cell])
            timeline.extremes[0, column, cell] = place
            timeline.extremes[1, column, cell] = place
    for event in range(first, end):
        if not ranked.nulls_to_come[column, event] and ranked.to_come[column, event] != 0:
            ranked.to_come[column, event] = _shared(ranked.texts, slots, pool, ranked.to_come[column, event])


_DISTINCT_VALUES_UNKNOWN = -1
_FREE = 0


class DistinctValues(NamedTuple):
    """The tables of all features that count different values: int64 `(tables,)` unless said otherwise."""

    table: Int64s  # int64 `(features,)`, the table of each feature; -1 for none
    first: Int64s  # the first cell whose value is in the table
    end: Int64s  # the cell after the last
    # `Edges.changes` when the table was built; another number means that it is not valid any more
    changes: Int64s
    slots: Int64s  # how many slots are in use
    taken: Int64s  # how many of these have a value, including values that have left
    different: Int64s  # how many different values the cells hold
    events: Int64s  # how many events the table counts
    # int64 `(tables, capacity, 3)`: a value, that of the second column, and how often both occur in the cells, plus 1;
    # 0 in a free slot
    slot: Int64s


@allocating
def new_distinct_values(features: FeatureArrays, cells):
    """Allocate empty tables for timelines of up to this many cells. Only slots in use take memory."""
    table, tables = np.full(features.operation.shape[0], -1, np.int64), np.int64(0)
    for feature in range(features.operation.shape[0]):
        if features.operation[feature] == COUNT_DISTINCT:
            table[feature] = tables
            tables += 1
    return DistinctValues(
        table,
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.full(tables, _DISTINCT_VALUES_UNKNOWN, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
        np.empty((tables, slots_for(cells), 3), np.int64),
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
    """Return the slot of a value, or the free slot for it."""
    at = _hash(value, second) & (slots - 1)
    while slot[at, 2] != _FREE and (slot[at, 0] != value or slot[at, 1] != second):
        at = (at + 1) & (slots - 1)
    return at


@leaf
def _distinct_values_count(timeline: Timeline, distinct: DistinctValues, features: FeatureArrays, feature, cell, step):
    """Add (step 1) or remove (step -1) the value of a cell, if the feature counts its event."""
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
    """Empty a table, with slots for the values of cells `[first, end)`."""
    slots = slots_for(end - first)
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
def count_distinct(timeline: Timeline, edges: Edges, distinct: DistinctValues, features: FeatureArrays, feature):
    """Return how many distinct values a feature has in the cells of its window, and how many events have them.

    Cost: amortised O(1) while events are in order.
    """
    first, end = edges.inside[features.window[feature]], edges.last[features.window[feature]]
    table, changes = distinct.table[feature], edges.changes[0]
    known_end = distinct.end[table]
    if distinct.changes[table] != changes or not distinct.first[table] <= first <= known_end <= end:
        _clear(distinct, table, first, end, changes)
    for cell in range(distinct.first[table], first):
        _distinct_values_count(timeline, distinct, features, feature, cell, -1)
    distinct.first[table] = first
    cell = distinct.end[table]
    while cell < end:
        if 4 * distinct.taken[table] >= 3 * distinct.slots[table]:
            _clear(distinct, table, first, end, changes)
            cell = first
        _distinct_values_count(timeline, distinct, features, feature, cell, 1)
        cell += 1
    distinct.end[table] = end
    return distinct.different[table], distinct.events[table]
