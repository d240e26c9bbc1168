"""How one event is judged: its windows are found, every rule is computed on its window and compared with its limit."""

import numpy as np

from buckets.compiled import leaf
from buckets.plan import ABOVE, ALWAYS, AT_LEAST, AT_MOST, AVG, BELOW, COUNT, EXACTLY, MIN, NEVER, SUM
from buckets.scaled import AVERAGE_FACTOR
from buckets.timeline import Timeline, extreme, first_at_or_after, total


@leaf
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


@leaf
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
def find_edges(edges, timeline: Timeline, reach_ms, time_ms, is_last):
    """Set each window's first cell for an event at `time_ms`.

    Args:
        edges: int64 `(windows,)`, from the last event; changed.
        timeline: the cells.
        reach_ms: int64 `(windows,)`.
        time_ms: the event's time.
        is_last: whether no cell is later than the event; then edges move along, else they are searched.
    """
    for window in range(edges.shape[0]):
        start_ms = time_ms - reach_ms[window]
        if not is_last:
            edges[window] = first_at_or_after(timeline, start_ms)
            continue
        edge = min(edges[window], timeline.size[0])
        while edge > 0 and timeline.times_ms[edge - 1] >= start_ms:
            edge -= 1
        while timeline.times_ms[edge] < start_ms:
            edge += 1
        edges[window] = edge


@leaf
def judge(timeline, edges, end, held_from_ms, time_ms, event, plan, reach_ms, rows, used, emit_all):
    """Evaluate every rule on the stretch from its window's edge to `end`, and append the rows.

    A rule whose window reaches behind `held_from_ms`, where cells may be gone, is passed over.

    Returns:
        The number of rows used, and the rule whose sum does not fit 64 bits; -1 for none.
    """
    for rule in range(plan.function.shape[0]):
        window = plan.window[rule]
        if time_ms - reach_ms[window] < held_from_ms:
            continue
        first, column, function = edges[window], plan.measure[rule], plan.function[rule]
        count = end - first
        whole, micro = np.int64(count), np.int64(0)
        if function in (SUM, AVG):
            whole, fits = total(timeline, column, first, end)
            if not fits:
                return used, rule
            if function == AVG:
                whole, micro = average(whole, count)
        elif function != COUNT:
            whole = extreme(timeline, 0 if function == MIN else 1, column, first, end)
        fired = fires(plan.comparison[rule], whole, micro, plan.limit_whole[rule], plan.limit_micro[rule])
        if emit_all or fired:
            rows.event[used] = event
            rows.rule[used] = rule
            rows.whole[used] = whole
            rows.micro[used] = micro
            rows.held[used] = count
            rows.fired[used] = fired
            used += 1
    return used, -1
