"""What an open window can be: value, lower and upper bound, when events of its edge bucket may each be in or out.

With `S, C` the sum and count of the events that are surely inside, and a stretch at the edge of `n` events with
positive values adding up to `p`, negative ones to `-m`, the least `a` and the greatest `b`:

    count   C .. C + n
    sum     S - m .. S + p              with a known sign one of them is 0: no looser than the bucket itself
    min     the least with the stretch .. the least without it;   max likewise
    avg     of k events of the stretch the sum is between k·a and k·b, and between -m and p, so
            max(min(S/C, (S+n·a)/(C+n)), (S-m)/(C or C+n)) .. min(max(S/C, (S+n·b)/(C+n)), (S+p)/(C or C+n))

The value takes the stretch whole (include), not at all (exclude) or the part of it that the window covers in time
(prorate; a minimum or maximum has no parts and includes).
"""

import numpy as np

from buckets.compiled import inlined, leaf
from buckets.edges import Edges
from buckets.plan import AVG, COUNT, EXCLUDE, MIN, PRORATE, SUM
from buckets.scaled import AVERAGE_FACTOR
from buckets.timeline import Timeline, extreme
from buckets.wide import join, join_within, share, times


@inlined
def average(summed, count):
    """The quotient, rounded half-even to millionths.

    Returns:
        Whole units (rounded down) and millionths, 0 to 999,999.
    """
    whole = summed // count
    scaled_rest = (summed - whole * count) * AVERAGE_FACTOR
    micro = scaled_rest // count
    twice = 2 * (scaled_rest - micro * count)
    if twice > count or (twice == count and micro % 2 == 1):
        micro += 1
    if micro == AVERAGE_FACTOR:
        return whole + 1, np.int64(0)
    return whole, micro


@inlined
def is_less(whole, micro, other_whole, other_micro):
    """Whether one value is smaller than another."""
    return whole < other_whole or (whole == other_whole and micro < other_micro)


@leaf
def _covered_ms(edges: Edges, window, edge_ms):
    """How much of the edge's bucket the window covers, and of how much."""
    width_ms = edges.width_ms[window]
    if width_ms == 1:
        first_ms = edges.first_ms[window]
        width_ms = edges.last_ms[window] - first_ms + 1
        return width_ms - (edge_ms - first_ms), width_ms
    return width_ms - edge_ms % width_ms, width_ms


@leaf
def held_in(edges: Edges, window, certain, edge_ms, policy):
    """The number of events that an open window is taken to hold."""
    if policy == EXCLUDE:
        return certain
    if policy == PRORATE:
        covered_ms, width_ms = _covered_ms(edges, window, edge_ms)
        _, part = share(np.int64(0), edges.held[window], covered_ms, width_ms)
        return certain + part
    return certain + edges.held[window]


@leaf
def _sum_pair(edges: Edges, window, column, high, low, edge_ms, policy):
    """The sum that an open window is taken to have, as a pair; `high, low` is the sum that is surely inside."""
    if policy == EXCLUDE:
        return high, low
    part_high = edges.plus[0, column, window] - edges.minus[0, column, window]
    part_low = edges.plus[1, column, window] - edges.minus[1, column, window]
    if policy == PRORATE:
        covered_ms, width_ms = _covered_ms(edges, window, edge_ms)
        part_high, part_low = share(part_high, part_low, covered_ms, width_ms)
    return high + part_high, low + part_low


@leaf
def _average_at_end(edges: Edges, side, window, column, high, low, certain):
    """The average at one end of its interval: the lower (side 0) or the upper (side 1)."""
    summed, _ = join(high, low)
    count = certain + edges.held[window]
    best_whole, best_micro = average(summed, certain)
    far = edges.extremes[side, column, window]
    part_high, part_low = times(far, edges.held[window])
    with_all, fits = join(high + part_high, low + part_low)
    whole, micro = average(with_all, count) if fits else (far, np.int64(0))
    if is_less(whole, micro, best_whole, best_micro) == (side == 0):
        best_whole, best_micro = whole, micro
    if side == 0:
        bound, fits = join(high - edges.minus[0, column, window], low - edges.minus[1, column, window])
    else:
        bound, fits = join(high + edges.plus[0, column, window], low + edges.plus[1, column, window])
    if fits:
        whole, micro = average(bound, count if (bound >= 0) == (side == 0) else certain)
        if is_less(best_whole, best_micro, whole, micro) == (side == 0):
            best_whole, best_micro = whole, micro
    return best_whole, best_micro


@leaf
def _open_average(edges: Edges, window, column, high, low, certain, edge_ms, policy):
    _, certain_fits = join(high, low)
    value_high, value_low = _sum_pair(edges, window, column, high, low, edge_ms, policy)
    summed, fits = join(value_high, value_low)
    zero = np.int64(0)
    if not (fits and certain_fits):
        return False, zero, zero, zero, zero, zero, zero
    lower_whole, lower_micro = _average_at_end(edges, 0, window, column, high, low, certain)
    upper_whole, upper_micro = _average_at_end(edges, 1, window, column, high, low, certain)
    whole, micro = average(summed, held_in(edges, window, certain, edge_ms, policy))
    if is_less(whole, micro, lower_whole, lower_micro):
        whole, micro = lower_whole, lower_micro
    if is_less(upper_whole, upper_micro, whole, micro):
        whole, micro = upper_whole, upper_micro
    return True, whole, micro, lower_whole, lower_micro, upper_whole, upper_micro


@leaf
def _open_extreme(timeline: Timeline, edges: Edges, side, window, column, end, policy):
    without = extreme(timeline, side, column, edges.inside[window], end)
    far = edges.extremes[side, column, window]
    with_stretch = min(without, far) if side == 0 else max(without, far)
    value = without if policy == EXCLUDE else with_stretch
    return value, min(without, with_stretch), max(without, with_stretch)


@leaf
def open_value(timeline: Timeline, edges: Edges, function, column, window, end, edge_ms, policy):
    """Value and bounds of a function over an open window.

    Args:
        timeline: the cells.
        edges: where the windows begin.
        function: code of `plan`.
        column: the measure.
        window: which window.
        end: the cell behind the window's last.
        edge_ms: the window's left end.
        policy: what the value does with the stretch, INCLUDE | EXCLUDE | PRORATE.

    Returns:
        Whether the value's sum fits 64 bits; then value, lower and upper bound, each as whole and micro.
    """
    zero = np.int64(0)
    inside = edges.inside[window]
    certain = timeline.held[end] - timeline.held[inside]
    if function == COUNT:
        value = held_in(edges, window, certain, edge_ms, policy)
        return True, value, zero, certain, zero, certain + edges.held[window], zero
    if function in (SUM, AVG):
        high = timeline.total_high[column, end] - timeline.total_high[column, inside]
        low = timeline.total_low[column, end] - timeline.total_low[column, inside]
        if function == AVG:
            return _open_average(edges, window, column, high, low, certain, edge_ms, policy)
        value_high, value_low = _sum_pair(edges, window, column, high, low, edge_ms, policy)
        value, fits = join(value_high, value_low)
        lower = join_within(high - edges.minus[0, column, window], low - edges.minus[1, column, window])
        upper = join_within(high + edges.plus[0, column, window], low + edges.plus[1, column, window])
        return fits, value, zero, lower, zero, upper, zero
    side = 0 if function == MIN else 1
    value, lower, upper = _open_extreme(timeline, edges, side, window, column, end, policy)
    return True, value, zero, lower, zero, upper, zero
