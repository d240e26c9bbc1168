"""Value and bounds of an uncertain window, where each event of the bucket at its edge may be in or out.

Let `S, C` be the sum and count of the events that are surely inside. The stretch at the edge has `n` events, whose
positive values add up to `p` and negative ones to `-m`, with least value `a` and greatest `b`:

    count   C .. C + n
    sum     S - m .. S + p              with a known sign one of them is 0: no looser than the bucket itself
    min     the least with the stretch .. the least without it;   max likewise
    avg     of k events of the stretch the sum is between k·a and k·b, and between -m and p, so
            max(min(S/C, (S+n·a)/(C+n)), (S-m)/(C or C+n)) .. min(max(S/C, (S+n·b)/(C+n)), (S+p)/(C or C+n))

The value counts the stretch entirely (include), not at all (exclude), or in proportion to the time that the window
covers of it (prorate; a minimum or maximum cannot be divided, and includes it).

`C` and `n` count events with a value. With `C = 0` the window is NULL if no event of the stretch is in; if some are, a
minimum, maximum or average lies between `a` and `b`.

A sum passes 64 bits if all of `S - m .. S + p` does. If only a part of that range does, the actual sum may fit: the
bounds are the part that fits, and a value outside is moved to its nearer end.

Values and bounds are quotients `whole + rest / count`, see `quotient`; the rest is 0 except for an average.
"""

import numpy as np

from buckets.aggregates.component import AVG, COUNT, MIN, SUM
from buckets.compiled import inlined, leaf
from buckets.kernel.plan import EXCLUDE, PRORATE
from buckets.kernel.window_edges import Edges
from buckets.numbers.wide_sum import is_less, is_negative, join, join_within, quotient, share, times
from buckets.timeline.timeline import Timeline, extreme


@inlined
def maybe_in(edges: Edges, operation, column, window):
    """Return how many events of a window's stretch count for an operation."""
    return edges.event_count[window] if operation == COUNT else edges.event_count[window] - edges.nulls[column, window]


@leaf
def count_in(edges: Edges, window, certain, maybe, policy):
    """Return how many events an uncertain window counts, by the edge policy."""
    if policy == EXCLUDE:
        return certain
    if policy == PRORATE:
        _, part = share(np.int64(0), maybe, edges.covered_ms[window], edges.width_ms[window])
        return certain + part
    return certain + maybe


@leaf
def _sum_pair(edges: Edges, window, column, high, low, policy):
    """Return the sum of an uncertain window by the edge policy, as a pair; `high, low` is surely inside."""
    if policy == EXCLUDE:
        return high, low
    part_high = edges.plus[0, column, window] - edges.minus[0, column, window]
    part_low = edges.plus[1, column, window] - edges.minus[1, column, window]
    if policy == PRORATE:
        part_high, part_low = share(part_high, part_low, edges.covered_ms[window], edges.width_ms[window])
    return high + part_high, low + part_low


@leaf
def _passes_64_bits(edges: Edges, window, column, high, low):
    """Return whether the sum passes 64 bits whichever events of the stretch are in."""
    least_high, least_low = high - edges.minus[0, column, window], low - edges.minus[1, column, window]
    most_high, most_low = high + edges.plus[0, column, window], low + edges.plus[1, column, window]
    _, least_fits = join(least_high, least_low)
    _, most_fits = join(most_high, most_low)
    too_large = not least_fits and not is_negative(least_high, least_low)
    return too_large or (not most_fits and is_negative(most_high, most_low))


@leaf
def _average_at_end(edges: Edges, side, window, column, high, low, certain):
    """Return the average at one end of its interval, the lower (side 0) or the upper (side 1), as a quotient."""
    if certain == 0:
        return edges.extremes[side, column, window], np.int64(0), np.int64(1)
    maybe = edges.event_count[window] - edges.nulls[column, window]
    count = certain + maybe
    best, best_rest = quotient(high, low, certain)
    best_count = certain
    part_high, part_low = times(edges.extremes[side, column, window], maybe)
    whole, rest = quotient(high + part_high, low + part_low, count)
    if is_less(whole, rest, count, best, best_rest, best_count) == (side == 0):
        best, best_rest, best_count = whole, rest, count
    if side == 0:
        high, low = high - edges.minus[0, column, window], low - edges.minus[1, column, window]
    else:
        high, low = high + edges.plus[0, column, window], low + edges.plus[1, column, window]
    end_count = certain if is_negative(high, low) == (side == 0) else count
    whole, rest = quotient(high, low, end_count)
    if is_less(best, best_rest, best_count, whole, rest, end_count) == (side == 0):
        best, best_rest, best_count = whole, rest, end_count
    return best, best_rest, best_count


@leaf
def _average_value(edges: Edges, window, column, high, low, certain, count, policy):
    """Return the average of an uncertain window by the edge policy, as a quotient between its bounds.

    Including or excluding the stretch is a possible window; a prorated sum and count may lie beyond the bounds.
    """
    value_high, value_low = _sum_pair(edges, window, column, high, low, policy)
    whole, rest = quotient(value_high, value_low, count)
    if policy != PRORATE:
        return whole, rest, count
    end, end_rest, end_count = _average_at_end(edges, 0, window, column, high, low, certain)
    if is_less(whole, rest, count, end, end_rest, end_count):
        return end, end_rest, end_count
    end, end_rest, end_count = _average_at_end(edges, 1, window, column, high, low, certain)
    if is_less(end, end_rest, end_count, whole, rest, count):
        return end, end_rest, end_count
    return whole, rest, count


@leaf
def _certain_sum(timeline: Timeline, column, first, end):
    """Return the sum of cells `[first, end)`, as a pair."""
    high = timeline.total_high[column, end] - timeline.total_high[column, first]
    return high, timeline.total_low[column, end] - timeline.total_low[column, first]


@leaf
def uncertain_value(timeline: Timeline, edges: Edges, operation, column, window, policy, certain):
    """Return the value of an operation over an uncertain window, with `certain` events surely inside.

    The policy says how the value counts the stretch, INCLUDE | EXCLUDE | PRORATE.

    Returns:
        Whether the value's sum may fit 64 bits; whole, rest and count of the value; and how many events it counts.
        Without any, the value is meaningless.
    """
    zero, one = np.int64(0), np.int64(1)
    inside, end = edges.inside[window], edges.last[window]
    events = count_in(edges, window, certain, maybe_in(edges, operation, column, window), policy)
    if operation == COUNT:
        return True, events, zero, one, events
    if operation in (SUM, AVG):
        high, low = _certain_sum(timeline, column, inside, end)
        if _passes_64_bits(edges, window, column, high, low):
            return False, zero, zero, one, events
        if operation == AVG and events > 0:
            whole, rest, count = _average_value(edges, window, column, high, low, certain, events, policy)
            return True, whole, rest, count, events
        value_high, value_low = _sum_pair(edges, window, column, high, low, policy)
        return True, join_within(value_high, value_low), zero, one, events
    side = 0 if operation == MIN else 1
    value = extreme(timeline, side, column, inside, end)
    if policy != EXCLUDE:
        far = edges.extremes[side, column, window]
        value = min(value, far) if side == 0 else max(value, far)
    return True, value, zero, one, events


@inlined
def uncertain_bound(timeline: Timeline, edges: Edges, bound, operation, column, window, certain):
    """Return whole, rest and count of an operation's lower (bound 0) or upper (bound 1) bound over such a window."""
    zero, one = np.int64(0), np.int64(1)
    inside, end = edges.inside[window], edges.last[window]
    if operation != COUNT and certain + maybe_in(edges, operation, column, window) == 0:
        return zero, zero, one
    if operation == COUNT:
        return certain + bound * edges.event_count[window], zero, one
    if operation in (SUM, AVG):
        high, low = _certain_sum(timeline, column, inside, end)
        if operation == AVG:
            return _average_at_end(edges, bound, window, column, high, low, certain)
        if bound == 0:
            return join_within(high - edges.minus[0, column, window], low - edges.minus[1, column, window]), zero, one
        return join_within(high + edges.plus[0, column, window], low + edges.plus[1, column, window]), zero, one
    if certain == 0:
        return edges.extremes[bound, column, window], zero, one
    side = 0 if operation == MIN else 1
    without, far = extreme(timeline, side, column, inside, end), edges.extremes[side, column, window]
    with_stretch = min(without, far) if side == 0 else max(without, far)
    return (min(without, with_stretch) if bound == 0 else max(without, with_stretch)), zero, one
