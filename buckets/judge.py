"""How one event is judged: every rule is computed on its window and compared with its limit."""

import numpy as np

from buckets.bounds import average, held_in, is_less, open_value
from buckets.compiled import inlined, leaf
from buckets.edges import Edges
from buckets.plan import ABOVE, ALWAYS, AT_LEAST, AT_MOST, AVG, BELOW, COUNT, EXACTLY, MIN, NEVER, NOT, SUM
from buckets.timeline import Timeline, extreme, total


@inlined
def fires(comparison, whole, micro, limit_whole, limit_micro):
    """Whether a value crosses its limit."""
    if comparison in (ALWAYS, NEVER):
        return comparison == ALWAYS
    equal = whole == limit_whole and micro == limit_micro
    above = whole > limit_whole or (whole == limit_whole and micro > limit_micro)
    if comparison == ABOVE:
        return above
    if comparison == AT_LEAST:
        return above or equal
    if comparison == BELOW:
        return not (above or equal)
    if comparison == AT_MOST:
        return not above
    return equal if comparison == EXACTLY else not equal


@leaf
def _is_certain(plan, rule, rows, used):
    """Whether every value between the bounds crosses the limit, or none does."""
    comparison = plan.comparison[rule]
    limit_whole, limit_micro = plan.limit_whole[rule], plan.limit_micro[rule]
    lower_whole, lower_micro = rows.lower_whole[used], rows.lower_micro[used]
    upper_whole, upper_micro = rows.upper_whole[used], rows.upper_micro[used]
    if comparison in (EXACTLY, NOT):
        point = lower_whole == upper_whole and lower_micro == upper_micro
        below = is_less(limit_whole, limit_micro, lower_whole, lower_micro)
        return point or below or is_less(upper_whole, upper_micro, limit_whole, limit_micro)
    at_lower = fires(comparison, lower_whole, lower_micro, limit_whole, limit_micro)
    return at_lower == fires(comparison, upper_whole, upper_micro, limit_whole, limit_micro)


@inlined
def _exact_value(timeline: Timeline, function, column, first, end):
    """A function over cells `[first, end)`: whether its sum fits 64 bits, then its value as whole and micro."""
    held, zero = timeline.held[end] - timeline.held[first], np.int64(0)
    if function == COUNT:
        return True, held, zero
    if function in (SUM, AVG):
        whole, fits = total(timeline, column, first, end)
        if fits and function == AVG:
            whole, micro = average(whole, held)
            return True, whole, micro
        return fits, whole, zero
    return True, extreme(timeline, 0 if function == MIN else 1, column, first, end), zero


@inlined
def judge(timeline, edges: Edges, end, held_from_ms, time_ms, event, plan, reach_ms, policy, rows, used, emit_all):
    """Evaluate every rule from its window's edge to `end`, and append the rows.

    A rule whose window reaches behind `held_from_ms`, where cells may be gone, is passed over.

    Returns:
        The number of rows used, and the rule whose sum does not fit 64 bits; -1 for none.
    """
    for rule in range(plan.function.shape[0]):
        window = plan.window[rule]
        edge_ms = time_ms - reach_ms[window]
        if edge_ms < held_from_ms:
            continue
        function, column = plan.function[rule], plan.measure[rule]
        is_open = edges.is_open[window]
        if is_open:
            fits, whole, micro, lower_whole, lower_micro, upper_whole, upper_micro = open_value(
                timeline, edges, function, column, window, end, edge_ms, policy
            )
        else:
            fits, whole, micro = _exact_value(timeline, function, column, edges.inside[window], end)
            lower_whole, lower_micro, upper_whole, upper_micro = whole, micro, whole, micro
        if not fits:
            return used, rule
        fired = fires(plan.comparison[rule], whole, micro, plan.limit_whole[rule], plan.limit_micro[rule])
        if not (emit_all or fired):
            continue
        held = timeline.held[end] - timeline.held[edges.inside[window]]
        rows.event[used] = event
        rows.rule[used] = rule
        rows.whole[used] = whole
        rows.micro[used] = micro
        rows.lower_whole[used] = lower_whole
        rows.lower_micro[used] = lower_micro
        rows.upper_whole[used] = upper_whole
        rows.upper_micro[used] = upper_micro
        rows.held[used] = held_in(edges, window, held, edge_ms, policy) if is_open else held
        rows.fired[used] = fired
        rows.exact[used] = lower_whole == upper_whole and lower_micro == upper_micro
        rows.certain[used] = not is_open or _is_certain(plan, rule, rows, used)
        used += 1
    return used, -1
