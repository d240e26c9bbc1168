"""The values of a window's periods, such as each of 30 days, listed for features over these values.

A period is a run of integers: whether it may not count, because the key's first event of the window may be later; its
value with lower and upper bound, two words each; and the number of its events with lower and upper bound. A sum is a
pair of words (`wide_sum`), an average its whole and millionths, all else one word and 0.

A list depends only on events before the event's own period, so events in the same period share it.
"""

from typing import NamedTuple

import numpy as np

from buckets.aggregates.component import AVG, COUNT, MIN, PERIODS, SUM
from buckets.arrays import Int64s
from buckets.compiled import allocating, inlined, leaf
from buckets.kernel.context import Context
from buckets.kernel.listed_pairs import Pairs
from buckets.kernel.plan import EXCLUDE, NO_COLUMN, FeatureArrays, Windows
from buckets.kernel.window_edges import UNKNOWN, Edges, counted_in, find_border, hold_between, step_at, step_begin
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.numbers.wide_sum import quotient, rounded
from buckets.timeline.tiers import width_at
from buckets.timeline.timeline import Timeline

MAYBE, VALUE, LOWER, UPPER, EVENTS, FEWEST, MOST, SIZE = 0, 1, 3, 5, 7, 8, 9, 10
NO_PERIODS = -1


class ListedPeriods(NamedTuple):
    """The latest list of each feature: int64 `(features,)` each."""

    step: Int64s  # the day or step of its event
    changes: Int64s  # `Edges.changes` at that time; UNKNOWN if the list is valid only for that event
    width_ms: Int64s  # the width of buckets where its window begins
    begin: Int64s  # its offset
    periods: Int64s  # how many periods it has


def period_room(features: FeatureArrays, windows: Windows) -> int:
    """Return how many integers the periods of all features take for one event."""
    of = features.window[features.operation == PERIODS]
    return int(SIZE * (windows.back[of] // windows.per_period[of]).sum())


@allocating
def new_listed_periods(features):
    """Allocate room for this many features."""
    return ListedPeriods(
        np.zeros(features, np.int64),
        np.full(features, UNKNOWN),
        np.zeros(features, np.int64),
        np.zeros(features, np.int64),
        np.zeros(features, np.int64),
    )


@leaf
def list_periods(
    timeline: Timeline, edges: Edges, listed: ListedPeriods, feature, time_ms, context: Context, borders, pairs: Pairs
):
    """List the periods before an event's own, from that of the key's first event in the window on, oldest first.

    Cost: O(periods * log(cells)), once for all events of a period.

    Returns:
        The offset of the periods, or NO_PERIODS, and their number.
    """
    windows, window = context.windows, context.features.window[feature]
    back, per_period = windows.back[window], windows.per_period[window]
    step = step_at(windows, window, time_ms)
    begin_ms = step_begin(windows, window, step - back)
    width_ms = width_at(context.tiers, borders, begin_ms)
    is_known = listed.changes[feature] == edges.changes[0] and listed.step[feature] == step
    if is_known and listed.width_ms[feature] == width_ms:
        return listed.begin[feature], listed.periods[feature]
    low, high = find_border(timeline, begin_ms, context.tiers, borders)
    first_ms, is_aligned = np.int64(INT64_MAX), begin_ms % width_ms == 0
    surely_ms = first_ms
    if low < timeline.size[0]:
        first_ms = max(begin_ms, timeline.first_ms[low])
        surely_ms = first_ms if low == high else timeline.last_ms[high - 1]
    begin, periods, at = pairs.used[0], np.int64(0), pairs.used[0]
    for later in range(back - per_period, -1, -per_period):
        end_ms = step_begin(windows, window, step - later)
        is_aligned = is_aligned and end_ms % width_ms == 0
        next_low, next_high = find_border(timeline, end_ms, context.tiers, borders)
        if end_ms > first_ms:
            hold_between(edges, window, timeline, low, high, next_low, next_high)
            pairs.listed[at + MAYBE] = end_ms <= surely_ms
            _write(timeline, edges, context, feature, pairs, at)
            periods, at = periods + 1, at + SIZE
        low, high = next_low, next_high
    pairs.used[0] = at
    if periods == 0:
        begin = np.int64(NO_PERIODS)
    listed.step[feature] = step
    # If the end of a period may lie in a bucket, its bounds change with the clock.
    listed.changes[feature] = edges.changes[0] if is_aligned else UNKNOWN
    listed.width_ms[feature] = width_ms
    listed.begin[feature] = begin
    listed.periods[feature] = periods
    return begin, periods


@leaf
def _write(timeline: Timeline, edges: Edges, context: Context, feature, pairs: Pairs, at) -> None:
    """Write the value and bounds of a period, to which the feature's window is set."""
    features, listed = context.features, pairs.listed
    operation, column, window = features.parameter[feature], features.measure[feature], features.window[feature]
    takes_maybe = context.policy.edge != EXCLUDE
    of = np.int64(NO_COLUMN) if operation == COUNT else column
    fewest, maybe = counted_in(timeline, edges, features, feature, of)
    events = fewest + maybe if takes_maybe else fewest
    listed[at + EVENTS], listed[at + FEWEST], listed[at + MOST] = events, fewest, fewest + maybe
    for word in range(VALUE, EVENTS):
        listed[at + word] = 0
    if operation == COUNT:
        listed[at + VALUE], listed[at + LOWER], listed[at + UPPER] = events, fewest, fewest + maybe
        return
    if fewest + maybe == 0:
        return
    inside, end = edges.inside[window], edges.last[window]
    if operation in (SUM, AVG):
        for word in range(2):
            totals = timeline.total_high if word == 0 else timeline.total_low
            plus, minus = edges.plus[word, column, window], edges.minus[word, column, window]
            if not edges.is_uncertain[window]:
                plus, minus = np.int64(0), np.int64(0)
            summed = totals[column, end] - totals[column, inside]
            listed[at + VALUE + word] = summed + plus - minus if takes_maybe else summed
            listed[at + LOWER + word] = summed - minus
            listed[at + UPPER + word] = summed + plus
    if operation == AVG and events > 0:
        whole, rest = quotient(listed[at + VALUE], listed[at + VALUE + 1], events)
        listed[at + VALUE], listed[at + VALUE + 1] = rounded(whole, rest, events)
    if operation == AVG and not edges.is_uncertain[window]:
        for word in range(2):
            listed[at + LOWER + word] = listed[at + UPPER + word] = listed[at + VALUE + word]
    elif operation != SUM:
        _write_extremes(timeline, edges, operation, column, window, fewest, takes_maybe, listed, at)


@inlined
def _write_extremes(timeline: Timeline, edges: Edges, operation, column, window, fewest, takes_maybe, listed, at):
    """Write a minimum or maximum with its bounds, or the bounds of an average. Cost: O(cells)."""
    least, greatest = np.int64(INT64_MAX), np.int64(INT64_MIN)
    for cell in range(edges.inside[window], edges.last[window]):
        least = min(least, timeline.extremes[0, column, cell])
        greatest = max(greatest, timeline.extremes[1, column, cell])
    lower, upper = least, greatest
    if edges.is_uncertain[window]:
        lower, upper = min(least, edges.extremes[0, column, window]), max(greatest, edges.extremes[1, column, window])
    if operation == AVG:
        listed[at + LOWER], listed[at + LOWER + 1] = lower, 0
        listed[at + UPPER], listed[at + UPPER + 1] = upper, 0
        return
    certain, possible = (least, lower) if operation == MIN else (greatest, upper)
    listed[at + VALUE] = possible if takes_maybe or fewest == 0 else certain
    if fewest > 0:
        lower, upper = min(certain, possible), max(certain, possible)
    listed[at + LOWER], listed[at + UPPER] = lower, upper
