"""The plans of several groups as one set of flat arrays, so that one call of the kernel scores the events of all.

Each array of the plans is concatenated group by group, with offsets for each kind of array.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from buckets.aggregates.component import MAX, PAIRS
from buckets.arrays import Flags, Int64s, starts_of
from buckets.compiled import allocating, between
from buckets.kernel.context import Context, Policy, cells_read_of
from buckets.kernel.listed_periods import period_room
from buckets.kernel.plan import FeatureArrays, GroupPlan, RuleArrays, Windows
from buckets.timeline.tiers import Paging, Tiers


class GroupPlans(NamedTuple):
    """The plans of several groups."""

    features: FeatureArrays  # what each computes
    rules: RuleArrays  # the limits that it is compared with
    tiers: Tiers  # the buckets older than each tail
    windows: Windows  # over what
    cells_read: Int64s  # int64 `(windows,)`, which cells of each window are read one by one
    # bool `(columns,)`, whether some rule asks for a measure's least or greatest value
    needs_extremes: Flags
    is_text: Flags  # bool `(columns,)`, whether a column holds texts
    # int64 `(groups + 1,)` each: where the features, rules, tiers, windows and columns of each group begin
    feature_start: Int64s
    rule_start: Int64s
    tier_start: Int64s
    window_start: Int64s
    column_start: Int64s
    # int64 `(groups,)` each: the fields of `Policy`, and the generation
    horizon_ms: Int64s
    late: Int64s
    collision: Int64s
    edge: Int64s
    repeats_ms: Int64s
    generation: Int64s
    # bool `(groups,)`, whether some feature looks at the events of its window one by one
    has_event_features: Flags
    has_resets: Flags  # bool `(groups,)`, whether some window is reset when its rule fires
    pair_features: Int64s  # int64 `(groups,)`, how many features list the events of their windows
    period_room: Int64s  # int64 `(groups,)`, how many integers all periods take that features list at one event


def join_plans(plans: Sequence[GroupPlan]) -> GroupPlans:
    """Concatenate the plans of one or more groups into flat arrays."""
    features, rules = [plan.feature_arrays for plan in plans], [plan.rule_arrays for plan in plans]
    tiers = [plan.tiers for plan in plans]
    read = [cells_read_of(plan.feature_arrays, plan.windows) for plan in plans]
    periods = starts_of([len(plan.windows.period_ms) for plan in plans])[:-1]
    windows = [
        each._replace(period_from=at + each.period_from, period_end=at + each.period_end)
        for at, each in zip(periods, (plan.windows for plan in plans), strict=True)
    ]
    extremes = [plan.needs_extremes for plan in plans]
    return GroupPlans(
        features=FeatureArrays(*map(np.concatenate, zip(*features, strict=True))),
        rules=RuleArrays(*map(np.concatenate, zip(*rules, strict=True))),
        tiers=Tiers(*map(np.concatenate, zip(*tiers, strict=True))),
        windows=Windows(*map(np.concatenate, zip(*windows, strict=True))),
        cells_read=np.concatenate(read),
        needs_extremes=np.concatenate(extremes),
        is_text=np.concatenate([plan.is_text for plan in plans]),
        feature_start=starts_of([len(each.operation) for each in features]),
        rule_start=starts_of([len(each.number) for each in rules]),
        tier_start=starts_of([len(each.after_ms) for each in tiers]),
        window_start=starts_of([len(each.reach_ms) for each in windows]),
        column_start=starts_of([len(each) for each in extremes]),
        **{name: np.array([get(plan) for plan in plans], np.int64) for name, get in _NUMBERS.items()},
        has_event_features=np.array([bool((each.operation > MAX).any()) for each in features], np.bool_),
        has_resets=np.array([bool(plan.resetting) for plan in plans], np.bool_),
        pair_features=np.array([(each.operation == PAIRS).sum() for each in features], np.int64),
        period_room=np.array([period_room(plan.feature_arrays, plan.windows) for plan in plans], np.int64),
    )


_NUMBERS = {name: attrgetter(name) for name in ("horizon_ms", "late", "collision", "edge", "repeats_ms")}
_NUMBERS["generation"] = attrgetter("group.generation")


@allocating
def context_of(plans: GroupPlans, group, paging: Paging, emit_all) -> Context:
    """Return the constants of scoring a group's events."""
    window, window_end = plans.window_start[group], plans.window_start[group + 1]
    column, column_end = plans.column_start[group], plans.column_start[group + 1]
    return Context(
        between(plans.features, plans.feature_start[group], plans.feature_start[group + 1]),
        between(plans.rules, plans.rule_start[group], plans.rule_start[group + 1]),
        Windows(
            plans.windows.reach_ms[window:window_end],
            plans.windows.until_ms[window:window_end],
            plans.windows.period_from[window:window_end],
            plans.windows.period_end[window:window_end],
            plans.windows.period_ms,
            plans.windows.most[window:window_end],
            plans.windows.counted[window:window_end],
            plans.windows.gap_ms[window:window_end],
            plans.windows.back[window:window_end],
            plans.windows.per_period[window:window_end],
            plans.windows.step_ms[window:window_end],
            plans.windows.is_plain[window:window_end],
        ),
        plans.cells_read[window:window_end],
        plans.needs_extremes[column:column_end],
        plans.is_text[column:column_end],
        between(plans.tiers, plans.tier_start[group], plans.tier_start[group + 1]),
        Policy(
            plans.horizon_ms[group],
            plans.late[group],
            plans.collision[group],
            plans.edge[group],
            plans.repeats_ms[group],
        ),
        paging,
        plans.generation[group],
        emit_all,
        plans.has_event_features[group],
        plans.has_resets[group],
        plans.pair_features[group],
        plans.period_room[group],
    )
