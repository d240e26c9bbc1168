"""The constants of scoring a group's events: its rules, its policies, and the layout of timelines."""

from typing import NamedTuple

import numpy as np

from buckets.aggregates.component import COUNT_DISTINCT, FIRST, FIRST_TIME, MAX, PERIODS, PREVIOUS
from buckets.arrays import Flags, Int64s
from buckets.kernel.plan import FeatureArrays, RuleArrays, Windows
from buckets.timeline.tiers import Paging, Tiers

FIRST_CELL, CELL_BEFORE, EVERY_CELL, FIRST_VALUE = 1, 2, 4, 8
"""The cells of a window that an operation reads one by one: the first, the one before the event, or any; FIRST_VALUE
means any if some event has no value."""


class Policy(NamedTuple):
    """The policies for events that break the order, in ms and policy codes of `plan`."""

    horizon_ms: int
    late: int
    collision: int
    edge: int
    repeats_ms: int  # how far apart in time two events of one id may be to be duplicates; 0: only at the same time


class Context(NamedTuple):
    """The constants of one call."""

    features: FeatureArrays  # what is computed
    rules: RuleArrays  # the limits to compare with
    windows: Windows  # the windows
    # int64 `(windows,)`, which cells of each window are read one by one, see `cells_read_of`
    cells_read: Int64s
    # bool `(columns,)`, whether some rule asks for a measure's least or greatest value
    needs_extremes: Flags
    is_text: Flags  # bool `(columns,)`, whether a column holds texts
    tiers: Tiers  # the buckets older than the tail
    policy: Policy  # what happens to events that break the order
    paging: Paging  # how timelines are cut
    generation: int  # of the group
    emit_all: bool  # whether rows are written for every rule, or for the fired ones only
    has_event_features: bool  # whether some feature looks at the events of its window one by one
    has_resets: bool  # whether some window is reset when its rule fires
    pair_features: int  # how many features list the events of their windows
    period_room: int  # how many integers the listed periods of all features take at one event


def cells_read_of(features: FeatureArrays, windows: Windows) -> Int64s:
    """Return which cells of each window its features read: sums of the codes above; 0 for none."""
    until_ms, cells_read = windows.until_ms, np.zeros(len(windows.until_ms), np.int64)
    for feature in np.flatnonzero((features.operation > MAX) & (features.operation < PERIODS)):
        operation = features.operation[feature]
        read = FIRST_CELL if operation in (FIRST, FIRST_TIME) else CELL_BEFORE
        if operation in (FIRST, PREVIOUS):
            read |= FIRST_VALUE
        if operation >= COUNT_DISTINCT or features.counted[feature] >= 0 or until_ms[features.window[feature]] > 0:
            read = EVERY_CELL
        cells_read[features.window[feature]] |= read
    cells_read[windows.gap_ms > 0] = EVERY_CELL
    return cells_read
