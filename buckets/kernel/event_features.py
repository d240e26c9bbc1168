"""Features that look at the events of their windows one by one: those after MAX, whose rules fire for every value.

They are separate from `evaluate`, in a loop that runs only for groups with such features: the loop of `evaluate` is
compiled into every kernel, and calling these functions there made all other features slower.
"""

from typing import NamedTuple

import numpy as np

from buckets.aggregates.component import (
    ABSENCE,
    COUNT_DISTINCT,
    FIRST_TIME,
    MAX,
    MEDIAN,
    MODE,
    PAIRS,
    PERCENTILE,
    PERIODS,
    PREVIOUS,
    PREVIOUS_TIME,
    SEQUENCE,
)
from buckets.compiled import inlined, leaf
from buckets.kernel.context import Context
from buckets.kernel.listed_pairs import Pairs, list_pairs
from buckets.kernel.listed_periods import list_periods
from buckets.kernel.plan import NO_COLUMN, FeatureArrays
from buckets.kernel.ranked_values import DistinctValues, RankedValues, count_distinct, count_ranked, ranked_value
from buckets.kernel.result_rows import Rows
from buckets.kernel.window_edges import Edges, counted_at_edge, counted_in
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.numbers.wide_sum import join_within
from buckets.timeline.timeline import Timeline, first_ending_at_or_after, is_null, is_raw, total


class FoundValue(NamedTuple):
    """The result for a window, as in rows: value, bounds, number of events, and bounds of that number.

    `micro` is the value's millionths; the bounds have the same millionths if they are equal, otherwise none.
    """

    value: np.int64
    micro: np.int64
    lower: np.int64
    upper: np.int64
    events: np.int64
    events_lower: np.int64
    events_upper: np.int64


@inlined
def is_counted(timeline: Timeline, counted, column, cell):
    """Return whether a cell has an event that a feature counts, with a value unless `column` is NO_COLUMN."""
    if counted >= 0 and timeline.extremes[1, counted, cell] <= 0:
        return False
    if column < 0:
        return True
    if counted < 0 or is_raw(timeline, cell):
        return not is_null(timeline, column, cell)
    return join_within(timeline.plus[0, counted, cell], timeline.plus[1, counted, cell]) > timeline.nulls[column, cell]


@leaf
def _find_cell(timeline: Timeline, counted, column, is_first, first, end):
    """Return the first or last of cells `[first, end)` that has a counted event; -1 for none."""
    if is_first:
        for cell in range(first, end):
            if is_counted(timeline, counted, column, cell):
                return cell
    else:
        for cell in range(end - 1, first - 1, -1):
            if is_counted(timeline, counted, column, cell):
                return cell
    return -1


@leaf
def _find_one(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, own):
    """Return the value or time of a window's first event, or of the one before an event.

    An uncertain window holds at least the last event of its stretch: if all events of the stretch count, it holds a
    counted one.
    """
    operation, column, counted = features.operation[feature], features.measure[feature], features.counted[feature]
    window = features.window[feature]
    is_first, is_time = operation not in (PREVIOUS, PREVIOUS_TIME), operation in (FIRST_TIME, PREVIOUS_TIME)
    of = np.int64(NO_COLUMN) if is_time else column
    end = edges.last[window] if is_first else min(edges.last[window], own)
    cell = _find_cell(timeline, counted, of, is_first, edges.inside[window], end)
    is_found, is_sure = cell >= 0, cell >= 0
    lower, upper = np.int64(0), np.int64(0)
    if is_found:
        lower = timeline.first_ms[cell] if is_time else timeline.extremes[0, column, cell]
        upper = timeline.last_ms[cell] if is_time else timeline.extremes[1, column, cell]
    value, is_raw_text = upper, not is_time and timeline.is_text[column] and is_found and is_raw(timeline, cell)
    nulls = np.int64(0) if is_time else edges.nulls[column, window]
    some_count = edges.is_uncertain[window] and counted_at_edge(edges, counted, window) > nulls
    if some_count and (is_first or not is_found):
        least = edges.first_ms[window] if is_time else edges.extremes[0, column, window]
        value = edges.last_ms[window] if is_time else edges.extremes[1, column, window]
        is_raw_text = False
        if nulls == 0 and (counted < 0 or edges.extremes[0, counted, window] > 0):
            lower, upper, is_sure = least, value, True
        else:
            lower, upper = min(lower, least), max(upper, value)
        is_found = True
    if not is_time and timeline.is_text[column] and is_found and not is_raw_text:
        lower = np.int64(_NO_PLACE)
    return FoundValue(value, np.int64(0), lower, upper, np.int64(is_found), np.int64(is_sure), np.int64(is_found))


@leaf
def find_single(timeline: Timeline, edges: Edges, distinct: DistinctValues, features: FeatureArrays, feature, own):
    """Compute a feature whose operation comes after MAX, up to COUNT_DISTINCT."""
    if features.operation[feature] != COUNT_DISTINCT:
        return _find_one(timeline, edges, features, feature, own)
    different, known = count_distinct(timeline, edges, distinct, features, feature)
    events, maybe = counted_in(timeline, edges, features, feature, features.measure[feature])
    upper, lower = different + (events - known) + maybe, max(different, min(events, np.int64(1)))
    return FoundValue(upper, np.int64(0), lower, upper, events + maybe, events, events + maybe)


_NO_PLACE = -1  # The lower bound of an unknown text: no text has this place
_ALL = 10_000  # Hundredths of a per cent in all
_HALF = 500_000  # Millionths


@leaf
def _extremes(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, maybe):
    """Return the least and greatest value that may count. Cost: O(cells)."""
    column, counted, window = features.measure[feature], features.counted[feature], features.window[feature]
    least, greatest = np.int64(INT64_MAX), np.int64(INT64_MIN)
    if maybe > 0:
        least, greatest = edges.extremes[0, column, window], edges.extremes[1, column, window]
    for cell in range(edges.inside[window], edges.last[window]):
        if is_counted(timeline, counted, column, cell):
            least = min(least, timeline.extremes[0, column, cell])
            greatest = max(greatest, timeline.extremes[1, column, cell])
    return least, greatest


@leaf
def _value(ranked: RankedValues, features: FeatureArrays, feature, events):
    """Return whole and millionths of a feature's value over the one or more `events` that its tree counts."""
    table, operation = ranked.table[feature], features.operation[feature]
    first = (events * features.parameter[feature] + _ALL - 1) // _ALL
    last = first
    if operation == MEDIAN:
        first, last = (events + 1) // 2, events // 2 + 1
    value = ranked_value(ranked, table, operation == MODE, first)
    if first == last:
        return value, np.int64(0)
    other = ranked_value(ranked, table, False, last)
    # Half of each and the carry of both, so that no sum passes 64 bits.
    return (value >> 1) + (other >> 1) + (value & other & 1), ((value ^ other) & 1) * _HALF


@leaf
def find_ranked(timeline: Timeline, edges: Edges, ranked: RankedValues, features: FeatureArrays, feature, event):
    """Compute a feature whose operation is a percentile, the median or the mode."""
    known = count_ranked(timeline, edges, ranked, features, feature, event)
    events, maybe = counted_in(timeline, edges, features, feature, features.measure[feature])
    value, micro = np.int64(0), np.int64(0)
    if known > 0:
        value, micro = _value(ranked, features, feature, known)
    lower, upper = value, value
    if events > known or maybe > 0:
        lower, upper = _extremes(timeline, edges, features, feature, maybe)
        if known == 0 and events > 0:
            value = upper
        if timeline.is_text[features.measure[feature]]:
            lower = np.int64(_NO_PLACE)
    return FoundValue(value, micro, lower, upper, events, events, events + maybe)


@leaf
def _last_passing(timeline: Timeline, column, first, end):
    """Return the last of cells `[first, end)` with an event that passes; -1 for none. Cost: O(log cells)."""
    low, high = first, end  # The cell lies in [low, high), if any does.
    while low < high:
        middle = (low + high) // 2
        passing, _ = total(timeline, column, middle, end)
        if passing > 0:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low > first else np.int64(-1)


@leaf
def _find_sequence(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, own):
    """Find whether an event completes a sequence of steps. Cost: O(steps * log cells).

    Going back from the event, each step is the latest event that can be it: so the first step is as late as possible,
    with the fewest events between. If a cell has several events, their order is unknown: only the last step is sure.
    """
    window, without, at = features.window[feature], features.second[feature], own
    first, last_step = min(edges.inside[window], own), np.int64(0)
    while last_step + 1 < features.steps.shape[1] and features.steps[feature, last_step + 1] >= 0:
        last_step += 1
    is_last = timeline.extremes[1, features.steps[feature, last_step], own] > 0
    for step in range(last_step - 1, -1, -1):
        if is_last and at >= 0:
            at = _last_passing(timeline, features.steps[feature, step], first, at)
    is_found = is_last and at >= 0
    if is_found and without >= 0:
        between, _ = total(timeline, without, at + 1, own)
        is_found = between == 0
    events = timeline.prefix_count[own] - timeline.prefix_count[first]
    is_known = not is_last or (events == own - first and not edges.is_uncertain[window])
    value, one = np.int64(is_found), np.int64(1)
    lower, upper = (value, value) if is_known else (np.int64(0), one)
    return FoundValue(value, np.int64(0), lower, upper, one, one, one)


@leaf
def _find_absence(timeline: Timeline, edges: Edges, features: FeatureArrays, feature, own):
    """Find the earliest step that nothing followed and whose time expires at an event. Cost: amortised O(log cells).

    Its time had not expired at the previous event, the key's clock: so each step is reported once, by the event that
    moves the clock past its time. A late event does not move the clock, and reports none.
    """
    window, step, within_ms = features.window[feature], features.steps[feature, 0], features.parameter[feature]
    first, none = min(edges.inside[window], own), np.int64(0)
    time_ms = timeline.first_ms[own]
    due_ms, overdue_ms = time_ms - within_ms - 1, time_ms
    if own > 0:
        overdue_ms = timeline.last_ms[own - 1] - within_ms
    if own + 1 < timeline.size[0] or overdue_ms > due_ms:
        return FoundValue(none, none, none, none, none, none, none)
    start = np.int64(first_ending_at_or_after(timeline, overdue_ms))
    is_known = start >= first or not edges.is_uncertain[window]
    start = max(start, first)
    is_known = is_known and timeline.prefix_count[own] - timeline.prefix_count[start] == own - start
    start = max(_last_passing(timeline, features.second[feature], start, own), start)
    end = min(np.int64(first_ending_at_or_after(timeline, due_ms + 1)), own)
    while start < end and timeline.extremes[1, step, start] <= 0:
        start += 1
    found, maybe = np.int64(start < end), np.int64(1)
    value = timeline.last_ms[start] if start < end else due_ms
    if is_known:
        return FoundValue(value, none, value, value, found, found, found)
    return FoundValue(value, none, overdue_ms, due_ms, maybe, none, maybe)


@inlined
def _append_rows(found: FoundValue, features: FeatureArrays, feature, numbers, event, rows: Rows, used):
    """Append a row for each rule of a feature; returns the number of rows used."""
    is_point = found.lower == found.upper
    is_exact = is_point and found.events_lower == found.events_upper
    bound_micro = found.micro if is_point else np.int64(0)
    for rule in range(features.rules_from[feature], features.rules_end[feature]):
        rows.event[used] = event
        rows.rule[used] = numbers[rule]
        rows.whole[used] = found.value
        rows.micro[used] = found.micro
        rows.lower_whole[used] = found.lower
        rows.lower_micro[used] = bound_micro
        rows.upper_whole[used] = found.upper
        rows.upper_micro[used] = bound_micro
        rows.event_count[used] = found.events
        rows.count_lower[used] = found.events_lower
        rows.count_upper[used] = found.events_upper
        rows.fired[used] = True
        rows.exact[used] = is_exact
        rows.certain[used] = is_exact
        rows.fits[used] = True
        used += 1
    return used


@leaf
def append_event_features(work, own, event, time_ms, late_by_ms, context: Context, rows: Rows, used, pairs: Pairs):
    """Append rows for the rules of each such feature whose window has all its events; returns the number of rows used.

    `work` is the kernel's. `own` is the event's cell, or where it would be if it only asks. The row of a feature of
    pairs or periods has their offset in the list.
    """
    timeline, edges = work.timeline, work.edges
    features, numbers = context.features, context.rules.number
    for feature in range(features.operation.shape[0]):
        if late_by_ms > features.patience_ms[feature] or features.operation[feature] <= MAX:
            continue
        if features.operation[feature] == PAIRS:
            begin, events = list_pairs(timeline, edges, features, feature, own, pairs)
            if events < 0:
                continue
            found = FoundValue(begin, np.int64(0), begin, begin, events, events, events)
        elif features.operation[feature] == SEQUENCE:
            found = _find_sequence(timeline, edges, features, feature, own)
        elif features.operation[feature] == ABSENCE:
            found = _find_absence(timeline, edges, features, feature, own)
        elif features.operation[feature] == PERIODS:
            begin, events = list_periods(timeline, edges, work.listed, feature, time_ms, context, work.borders, pairs)
            found = FoundValue(begin, np.int64(0), begin, begin, events, events, events)
        elif features.operation[feature] >= PERCENTILE:
            found = find_ranked(timeline, edges, work.ranked, features, feature, event)
        else:
            found = find_single(timeline, edges, work.distinct, features, feature, own)
        used = _append_rows(found, features, feature, numbers, event, rows, used)
    return used
