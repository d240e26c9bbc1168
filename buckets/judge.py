"""How one event is judged: every rule is computed on its window and compared with its limit."""

import numpy as np

from buckets.bounds import held_in, open_bound, open_value
from buckets.compiled import inlined, leaf
from buckets.edges import Edges
from buckets.plan import ABOVE, ALWAYS, AT_LEAST, AT_MOST, AVG, BELOW, COUNT, EXACTLY, MIN, NEVER, NOT, SUM
from buckets.quotient import is_less, rounded, side_of_digits
from buckets.timeline import Timeline, extreme, total


@inlined
def side_of_limit(plan, rule, whole, rest, count):
    """On which side of a rule's limit a value lies: -1 below, 0 on it, 1 above."""
    if whole != plan.limit_whole[rule]:
        return 1 if whole > plan.limit_whole[rule] else -1
    return side_of_digits(rest, count, plan.limit_digits, rule) if plan.function[rule] == AVG else 0


@inlined
def fires(comparison, side):
    """Whether a value on that side of its limit crosses it."""
    if comparison in (ALWAYS, NEVER):
        return comparison == ALWAYS
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
    """Whether every value between the bounds crosses the limit, or none does."""
    if comparison in (EXACTLY, NOT):
        return is_point or lower_side > 0 or upper_side < 0
    return fires(comparison, lower_side) == fires(comparison, upper_side)


@inlined
def _exact_value(timeline: Timeline, function, column, first, end):
    """A function over cells `[first, end)`: whether its sum fits 64 bits, then whole, rest and count of its value."""
    held, zero, one = timeline.held[end] - timeline.held[first], np.int64(0), np.int64(1)
    if function == COUNT:
        return True, held, zero, one
    if function in (SUM, AVG):
        summed, fits = total(timeline, column, first, end)
        if function == AVG:
            whole = summed // held
            return fits, whole, summed - whole * held, held
        return fits, summed, zero, one
    return True, extreme(timeline, 0 if function == MIN else 1, column, first, end), zero, one


@leaf
def _write_bounds(timeline: Timeline, edges: Edges, end, edge_ms, plan, rule, policy, rows, used):
    """What a row says of an open window beside its value."""
    function, column, window = plan.function[rule], plan.measure[rule], plan.window[rule]
    lower, lower_rest, lower_count = open_bound(timeline, edges, 0, function, column, window, end)
    upper, upper_rest, upper_count = open_bound(timeline, edges, 1, function, column, window, end)
    rows.lower_whole[used], rows.lower_micro[used] = rounded(lower, lower_rest, lower_count)
    rows.upper_whole[used], rows.upper_micro[used] = rounded(upper, upper_rest, upper_count)
    is_point = not is_less(lower, lower_rest, lower_count, upper, upper_rest, upper_count)
    rows.exact[used] = is_point
    rows.certain[used] = _is_certain(
        plan.comparison[rule],
        side_of_limit(plan, rule, lower, lower_rest, lower_count),
        side_of_limit(plan, rule, upper, upper_rest, upper_count),
        is_point,
    )
    certain = timeline.held[end] - timeline.held[edges.inside[window]]
    rows.held[used] = held_in(edges, window, certain, edge_ms, policy)
    rows.held_lower[used] = certain
    rows.held_upper[used] = certain + edges.held[window]


@inlined
def _write_exact(rows, used, whole, micro, held):
    """What a row says beside its value of a window that is known to the event."""
    rows.lower_whole[used] = whole
    rows.lower_micro[used] = micro
    rows.upper_whole[used] = whole
    rows.upper_micro[used] = micro
    rows.held[used] = held
    rows.held_lower[used] = held
    rows.held_upper[used] = held
    rows.exact[used] = True
    rows.certain[used] = True


@inlined
def judge(timeline, edges: Edges, end, late_by_ms, time_ms, event, plan, reach_ms, policy, rows, used, emit_all):
    """Evaluate every rule from its window's edge to `end`, and append the rows.

    A rule whose window reaches to where cells may be gone, for an event that is late by so much, is passed over. One
    that is on trial and whose sum does not fit 64 bits has a row that says so, and changes nothing else.

    Returns:
        The number of rows used, and another rule whose sum does not fit 64 bits; -1 for none.
    """
    for rule in range(plan.function.shape[0]):
        if late_by_ms > plan.patience_ms[rule]:
            continue
        window = plan.window[rule]
        edge_ms = time_ms - reach_ms[window]
        function, column = plan.function[rule], plan.measure[rule]
        inside, is_open = edges.inside[window], edges.is_open[window]
        if is_open:
            fits, whole, rest, count = open_value(timeline, edges, function, column, window, end, edge_ms, policy)
        else:
            fits, whole, rest, count = _exact_value(timeline, function, column, inside, end)
        if not (fits or plan.on_trial[rule]):
            return used, rule
        fired = fits and fires(plan.comparison[rule], side_of_limit(plan, rule, whole, rest, count))
        if fits and not (emit_all or fired):
            continue
        rows.event[used] = event
        rows.rule[used] = rule
        rows.fits[used] = fits
        if fits:
            micro = np.int64(0)
            if function == AVG:
                whole, micro = rounded(whole, rest, count)
            rows.whole[used] = whole
            rows.micro[used] = micro
            rows.fired[used] = fired
            if is_open:
                _write_bounds(timeline, edges, end, edge_ms, plan, rule, policy, rows, used)
            else:
                _write_exact(rows, used, whole, micro, timeline.held[end] - timeline.held[inside])
        used += 1
    return used, -1
