"""Evaluates one event: computes each feature on its window, and compares it with the limits of its rules.

Events without a value only count for a count. If no event of a window has a value, the result is NULL, which crosses no
limit; its row has 0 events and 0 for all values.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.aggregates.component import AVG, COUNT, MAX, MIN, SUM
from buckets.arrays import Int64s
from buckets.byte_strings import hash_bytes, slots_for
from buckets.compiled import allocating, inlined, leaf
from buckets.kernel.bounds import count_in, maybe_in, uncertain_bound, uncertain_value
from buckets.kernel.context import Context
from buckets.kernel.plan import ABOVE, ALWAYS, AT_LEAST, AT_MOST, BELOW, EVERY, EXACTLY, NEVER, NOT, RuleArrays
from buckets.kernel.result_rows import Rows
from buckets.kernel.window_edges import Edges
from buckets.numbers.wide_sum import is_less, rounded, side_of_digits
from buckets.timeline.timeline import Timeline, extreme, find_id, first_ending_at_or_after, is_raw, total, valued


@inlined
def side_of_limit(rules: RuleArrays, rule, whole, rest, count):
    """Compare a value with a rule's limit: -1 below, 0 equal, 1 above."""
    if whole != rules.limit_whole[rule]:
        return 1 if whole > rules.limit_whole[rule] else -1
    return side_of_digits(rest, count, rules.limit_digits, rule) if rules.is_average[rule] else 0


@inlined
def fires(comparison, side):
    """Return whether a value on this side of its limit makes the rule fire."""
    if comparison in (ALWAYS, NEVER, EVERY):
        return comparison != NEVER
    if comparison == ABOVE:
        return side > 0
    if comparison == AT_LEAST:
        return side >= 0
    if comparison == BELOW:
        return side < 0
    if comparison == AT_MOST:
        return side <= 0
    return (side == 0) == (comparison == EXACTLY)


@leaf
def _is_certain(comparison, lower_side, upper_side, is_point):
    """Return whether either all values between the bounds cross the limit or none does."""
    if comparison in (EXACTLY, NOT):
        return is_point or lower_side > 0 or upper_side < 0
    return fires(comparison, lower_side) == fires(comparison, upper_side)


@inlined
def _certain_events(timeline: Timeline, operation, column, first, end):
    """Return how many events of cells `[first, end)` count for an operation."""
    if operation == COUNT:
        return timeline.prefix_count[end] - timeline.prefix_count[first]
    return valued(timeline, column, first, end)


@inlined
def _exact_value(timeline: Timeline, operation, column, first, end, events):
    """Compute an operation over cells `[first, end)`, in which `events` have a value.

    Returns:
        Whether its sum fits 64 bits; whole, rest and count of its value.
    """
    zero, one = np.int64(0), np.int64(1)
    if operation == COUNT:
        return True, events, zero, one
    if operation in (SUM, AVG):
        summed, fits = total(timeline, column, first, end)
        if operation == AVG:
            count = max(events, one)
            whole = summed // count
            return fits, whole, summed - whole * count, count
        return fits, summed, zero, one
    return True, extreme(timeline, 0 if operation == MIN else 1, column, first, end), zero, one


@leaf
def _write_bounds(timeline: Timeline, edges: Edges, context: Context, feature, rule, rows, used):
    """Write bounds and counts of an uncertain window to a row, beside its value."""
    features, rules, policy = context.features, context.rules, context.policy.edge
    operation, column, window = features.operation[feature], features.measure[feature], features.window[feature]
    certain = _certain_events(timeline, operation, column, edges.inside[window], edges.last[window])
    maybe = maybe_in(edges, operation, column, window)
    lower, lower_rest, lower_count = uncertain_bound(timeline, edges, 0, operation, column, window, certain)
    upper, upper_rest, upper_count = uncertain_bound(timeline, edges, 1, operation, column, window, certain)
    rows.lower_whole[used], rows.lower_micro[used] = rounded(lower, lower_rest, lower_count)
    rows.upper_whole[used], rows.upper_micro[used] = rounded(upper, upper_rest, upper_count)
    is_point = not is_less(lower, lower_rest, lower_count, upper, upper_rest, upper_count)
    lower_side = side_of_limit(rules, rule, lower, lower_rest, lower_count)
    upper_side = side_of_limit(rules, rule, upper, upper_rest, upper_count)
    comparison, may_be_null = rules.comparison[rule], certain == 0 and operation != COUNT
    is_null = may_be_null and maybe == 0
    is_certain = _is_certain(comparison, lower_side, upper_side, is_point)
    # NULL crosses no limit.
    no_value_fires = is_certain and not fires(comparison, lower_side)
    rows.exact[used] = is_null or (is_point and not may_be_null)
    rows.certain[used] = is_null or no_value_fires or (is_certain and not may_be_null)
    rows.event_count[used] = count_in(edges, window, certain, maybe, policy)
    rows.count_lower[used] = certain
    rows.count_upper[used] = certain + maybe


@inlined
def _write_exact(rows: Rows, used, whole, micro, count):
    """Write bounds and counts of an exact window to a row, beside its value."""
    rows.lower_whole[used] = whole
    rows.lower_micro[used] = micro
    rows.upper_whole[used] = whole
    rows.upper_micro[used] = micro
    rows.event_count[used] = count
    rows.count_lower[used] = count
    rows.count_upper[used] = count
    rows.exact[used] = True
    rows.certain[used] = True


@inlined
def evaluate(timeline: Timeline, edges: Edges, event, late_by_ms, context: Context, rows: Rows, used):
    """Evaluate features up to MAX over their windows; append the rows that their rules need.

    A feature is skipped if the event is so late that its window may have lost cells, or if its window is empty because
    it was reset at the event's time or later. If the sum of a feature on trial does not fit 64 bits, each of its rules
    gets a row that says so, and nothing else changes.

    Returns:
        The number of rows used, and the first rule in force whose sum does not fit 64 bits; -1 for none.
    """
    features, rules, policy = context.features, context.rules, context.policy.edge
    for feature in range(features.operation.shape[0]):
        if late_by_ms > features.patience_ms[feature] or features.operation[feature] > MAX:
            continue
        window = features.window[feature]
        operation, column = features.operation[feature], features.measure[feature]
        inside, end, is_uncertain = edges.inside[window], edges.last[window], edges.is_uncertain[window]
        if features.resets[feature] and inside >= end:
            continue
        events = _certain_events(timeline, operation, column, inside, end)
        if is_uncertain:
            fits, whole, rest, count, events = uncertain_value(
                timeline, edges, operation, column, window, policy, events
            )
        else:
            fits, whole, rest, count = _exact_value(timeline, operation, column, inside, end, events)
        is_null = events == 0 and operation != COUNT
        if is_null:
            whole = np.int64(0)
        rule, rules_end = features.rules_from[feature], features.rules_end[feature]
        if not (fits or features.on_trial[feature]):
            return used, _first(rules.number, rule, rules_end)
        while rule < rules_end:
            if fits and not (context.emit_all or is_null):
                # Limits are sorted: after the first that is out of reach, all others of its kind are too.
                if rule < features.falling_from[feature] and rules.limit_whole[rule] > whole:
                    rule = features.falling_from[feature]
                    continue
                is_falling = features.falling_from[feature] <= rule < features.other_from[feature]
                if is_falling and rules.limit_whole[rule] < whole:
                    rule = features.other_from[feature]
                    continue
            fired = fits and fires(rules.comparison[rule], side_of_limit(rules, rule, whole, rest, count))
            fired = fired and not is_null
            if fits and not (context.emit_all or fired or rules.comparison[rule] == EVERY):
                rule += 1
                continue
            rows.event[used] = event
            rows.rule[used] = rules.number[rule]
            rows.fits[used] = fits
            if fits:
                shown, micro = whole, np.int64(0)
                if operation == AVG:
                    shown, micro = rounded(whole, rest, count)
                rows.whole[used] = shown
                rows.micro[used] = micro
                rows.fired[used] = fired
                if is_uncertain:
                    _write_bounds(timeline, edges, context, feature, rule, rows, used)
                else:
                    _write_exact(rows, used, shown, micro, events)
            used += 1
            rule += 1
    return used, -1


@leaf
def _first(numbers, begin, end):
    """Return the least of `numbers[begin:end]`."""
    first = numbers[begin]
    for at in range(begin + 1, end):
        first = min(first, numbers[at])
    return np.int64(first)


_FREE: Final = 0


class KnownIds(NamedTuple):
    """A hash table of the current key's event ids."""

    slots: Int64s  # int64 `(1,)`, how many slots are in use, a power of two
    hash: npt.NDArray[np.uint64]  # uint64 `(capacity,)`, the hash of an id; 0 in a free slot
    time_ms: Int64s  # int64 `(capacity,)`, the time of its event


@allocating
def new_known_ids(ids):
    """Allocate a table with room for this many ids."""
    capacity = slots_for(ids)
    return KnownIds(np.zeros(1, np.int64), np.zeros(capacity, np.uint64), np.empty(capacity, np.int64))


@leaf
def learn_id(ids: KnownIds, pool, start, length, time_ms):
    """Insert an id."""
    mixed, mask = hash_bytes(pool, start, length), ids.slots[0] - 1
    slot = np.int64(mixed >> np.uint64(32)) & mask
    while ids.hash[slot] != _FREE:
        slot = (slot + 1) & mask
    ids.hash[slot] = mixed
    ids.time_ms[slot] = time_ms


@leaf
def learn_ids(ids: KnownIds, timeline: Timeline, pool, more):
    """Replace all ids by those of a timeline, with room for `more`."""
    ids.slots[0] = slots_for(timeline.size[0] + more)
    ids.hash[: ids.slots[0]] = _FREE
    for cell in range(timeline.size[0]):
        if is_raw(timeline, cell):
            learn_id(ids, pool, timeline.id_start[cell], timeline.id_length[cell], timeline.first_ms[cell])


@leaf
def find_repeat(ids: KnownIds, timeline: Timeline, pool, start, length, time_ms, low_ms, high_ms):
    """Return the cell of an event with this id and a time in `[low_ms, high_ms]`; -1 for none.

    Of several it is the one nearest to `time_ms`, the earlier one if two are equally near.
    """
    mixed, mask = hash_bytes(pool, start, length), ids.slots[0] - 1
    slot, found = np.int64(mixed >> np.uint64(32)) & mask, np.int64(-1)
    while ids.hash[slot] != _FREE:
        other_ms = ids.time_ms[slot]
        if ids.hash[slot] == mixed and low_ms <= other_ms <= high_ms:
            cell = find_id(timeline, first_ending_at_or_after(timeline, other_ms), other_ms, pool, start, length)
            if cell >= 0:
                distance_ms = abs(other_ms - time_ms)
                best_ms = abs(timeline.first_ms[found] - time_ms) if found >= 0 else distance_ms + 1
                if distance_ms < best_ms or (distance_ms == best_ms and other_ms < time_ms):
                    found = np.int64(cell)
        slot = (slot + 1) & mask
    return found
