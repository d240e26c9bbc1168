"""What the kernel needs of a group: its features and rules as flat arrays of integers.

A feature is what is computed: a function of a measure over a window. Rules that differ in their limits alone share one,
which is computed once for an event.

Limits are decimals of any scale; values are integers. So each limit becomes a threshold on the value's own grid:
`value > 10.005` at scale 2 is `scaled > 1000`, which is exact, and compares integers with integers. An average lies on
no grid: its limit is kept as it is, the whole and the digits after the point, see `quotient`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.config.engine import EngineSettings
from buckets.config.precision import Precision
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import DIGIT_BLOCK, DIGIT_BLOCKS, INT64_MAX, INT64_MIN
from buckets.rules.completeness import FROM_THE_FIRST, as_arrays
from buckets.rules.rule import Function, Limit, Rule, value_scale
from buckets.rules.rule_set import COUNT_TRACK, Group, canonical_group_id
from buckets.timeline.tiers import Tiers

SUM, COUNT, AVG, MIN, MAX, FIRST, FIRST_TIME, PREVIOUS, PREVIOUS_TIME, COUNT_DISTINCT = range(10)
FUNCTIONS: dict[Function, int] = {"sum": SUM, "count": COUNT, "avg": AVG, "min": MIN, "max": MAX}
"""What the kernel computes for each function of a rule."""
ALWAYS, NEVER, ABOVE, AT_LEAST, BELOW, AT_MOST, EXACTLY, NOT = range(8)
ADD, EVALUATE, DROP = range(3)
LATE_POLICIES = {"add": ADD, "evaluate": EVALUATE, "drop": DROP}
KEEP, KEEP_FIRST, REPLACE = range(3)
COLLISION_POLICIES = {"keep": KEEP, "keep_first": KEEP_FIRST, "replace": REPLACE}
INCLUDE, EXCLUDE, PRORATE = range(3)
EDGE_POLICIES = {"include": INCLUDE, "exclude": EXCLUDE, "prorate": PRORATE}

_RISING, _FALLING = (ABOVE, AT_LEAST), (BELOW, AT_MOST)
_CODES = {">": ABOVE, ">=": AT_LEAST, "<": BELOW, "<=": AT_MOST, "=": EXACTLY, "!=": NOT}

Int64s = npt.NDArray[np.int64]


class FeatureArrays(NamedTuple):
    """The different features of a group's evaluated rules, in the order in which rules name them, one element each.

    Attributes:
        function: int64, SUM | COUNT | AVG | MIN | MAX, or one of those after them, whose rules all have the comparison
            ALWAYS: FIRST | FIRST_TIME | PREVIOUS | PREVIOUS_TIME | COUNT_DISTINCT.
        measure: int64, the measure's column.
        second: int64, another column, if COUNT_DISTINCT counts pairs of their values; -1 for none.
        counted: int64, the column that is 1 in events that a function after MAX counts, and 0 in others; -1: all count.
        window: int64, the window's index in `WindowArrays`.
        patience_ms: int64, how far behind its key's clock an event may be to be evaluated.
        on_trial: bool, whether its rules are on trial (SHADOW), which changes nothing for others.
        rules_from: int64, where its rules begin in `RuleArrays`: those that fire above their limit, lowest limit first.
        falling_from: int64, where those begin that fire below their limit, highest limit first.
        other_from: int64, where all others begin.
        rules_end: int64, where its rules end.
    """

    function: Int64s
    measure: Int64s
    second: Int64s
    counted: Int64s
    window: Int64s
    patience_ms: Int64s
    on_trial: npt.NDArray[np.bool_]
    rules_from: Int64s
    falling_from: Int64s
    other_from: Int64s
    rules_end: Int64s


class RuleArrays(NamedTuple):
    """The evaluated rules of a group, feature by feature, one element each.

    Attributes:
        number: int32, the rule's index in `GroupPlan.rules`.
        is_average: bool, whether its feature is an average, which is compared with all digits of its limit.
        comparison: int64, ALWAYS | NEVER | ABOVE | AT_LEAST | BELOW | AT_MOST | EXACTLY | NOT.
        limit_whole: int64, the limit in scaled units; of an average's, rounded down.
        limit_digits: int64 `(rules, DIGIT_BLOCKS)`, what an average's limit has after the point: nine digits each.
    """

    number: npt.NDArray[np.int32]
    is_average: npt.NDArray[np.bool_]
    comparison: Int64s
    limit_whole: Int64s
    limit_digits: Int64s


class WindowArrays(NamedTuple):
    """The different windows of a group's evaluated rules: int64 arrays of shape `(windows,)`.

    A window holds events at or after `event_time - reach_ms`; a left-open window reaches 1 ms less.
    """

    reach_ms: Int64s


@dataclass(frozen=True)
class GroupPlan:
    """A group, ready for the kernel.

    Attributes:
        group: the group.
        rules: the evaluated rules, in file order.
        feature_arrays: their features.
        rule_arrays: their limits.
        reach_ms: int64 `(rules,)`, how far each rule's window reaches back.
        window_arrays: their windows' numbers.
        needs_extremes: bool, shape `(measures,)`: whether some rule asks for a measure's min or max.
        horizon_ms: longest window of all live rules, plus allowed lateness.
        late: late policy, ADD | EVALUATE | DROP.
        collision: collision policy, KEEP | KEEP_FIRST | REPLACE.
        edge: what a value does with the bucket of its edge, INCLUDE | EXCLUDE | PRORATE.
        tiers: the buckets beyond the tail.
        value_scales: digits after the point of each rule's value.
        complete_from_ms: int64, shape `(steps,)`: from which event time on each step of the next array holds.
        complete_since_ms: int64, shape `(rules, steps)`: since when each rule's track is complete.
    """

    group: Group
    rules: tuple[Rule, ...]
    feature_arrays: FeatureArrays
    rule_arrays: RuleArrays
    reach_ms: Int64s
    window_arrays: WindowArrays
    needs_extremes: npt.NDArray[np.bool_]
    horizon_ms: int
    late: int
    collision: int
    edge: int
    tiers: Tiers
    value_scales: tuple[int, ...]
    complete_from_ms: Int64s
    complete_since_ms: Int64s


def threshold(limit: Limit, scale: int) -> tuple[int, int]:
    """The comparison with a limit, on integers that count `10**-scale`.

    Returns:
        Comparison code and integer bound; ALWAYS or NEVER where the limit is beyond every value.
    """
    with localcontext() as context:
        context.prec = 200
        exact = limit.value * Decimal(10) ** scale
        below, above = math.floor(exact), math.ceil(exact)
    code = _CODES[limit.operator]
    if code in (EXACTLY, NOT) and below != above:
        return (NEVER if code == EXACTLY else ALWAYS), 0
    return code, above if code in (AT_LEAST, BELOW) else below


def _average_threshold(limit: Limit, scale: int) -> tuple[int, int, list[int]]:
    """The comparison of an average with a limit, in units of `10**-scale`: code, whole, and digits after the point."""
    with localcontext() as context:
        context.prec = 200
        exact = limit.value * Decimal(10) ** scale
        whole = math.floor(exact)
        behind = int((exact - whole) * Decimal(DIGIT_BLOCK) ** DIGIT_BLOCKS)
    digits = [behind // DIGIT_BLOCK**power % DIGIT_BLOCK for power in reversed(range(DIGIT_BLOCKS))]
    return _CODES[limit.operator], whole, digits


def _limit_numbers(rule: Rule, scale: int) -> tuple[int, int, list[int]]:
    """Comparison code, whole and digits of a rule's limit; ALWAYS or NEVER where it is beyond every value."""
    if rule.aggregate.function == "avg":
        code, whole, digits = _average_threshold(rule.limit, scale)
    else:
        code, whole = threshold(rule.limit, scale)
        digits = [0] * DIGIT_BLOCKS
    if INT64_MIN <= whole <= INT64_MAX:
        return code, whole, digits
    over = whole > 0
    if code in (EXACTLY, NOT):
        return (NEVER if code == EXACTLY else ALWAYS), 0, digits
    return (NEVER if over == (code in (ABOVE, AT_LEAST)) else ALWAYS), 0, digits


def tiers_of(precision: Precision) -> Tiers:
    """A precision as arrays: one tier for `resolution`, then the others; none for `tail: all`."""
    if precision.tail is None:
        return Tiers(np.empty(0, np.int64), np.empty(0, np.int64))
    after = [precision.tail, *(tier.after for tier in precision.tiers)]
    widths = [precision.resolution, *(tier.resolution for tier in precision.tiers)]
    return Tiers(np.array(after, np.int64), np.array(widths, np.int64))


def plan_group(group: Group, schema: EventSchema, engine: EngineSettings) -> GroupPlan:
    """Lay a group's rules out for the kernel.

    Args:
        group: the group.
        schema: the event schema, for the measures' scales.
        engine: lateness, policies and precision.
    """
    rules = tuple(rule for rule in group.rules if rule.is_evaluated)
    precision = engine.precision.of_group(canonical_group_id(group.fields, group.where, schema), schema)
    reaches = [rule.window.length_ms - (rule.window.left == "open") for rule in rules]
    windows = sorted(set(reaches))
    tracks = [group.complete[rule.measure or COUNT_TRACK] for rule in rules]
    from_ms, since_ms = as_arrays([track or FROM_THE_FIRST for track in tracks])
    extremes = {rule.measure for rule in rules if FUNCTIONS[rule.aggregate.function] in (MIN, MAX)}
    limits = _limits(rules, schema)
    features = _features(group, rules, reaches, limits)
    return GroupPlan(
        group=group,
        rules=rules,
        feature_arrays=_feature_arrays(features, group, windows, engine.allowed_lateness),
        rule_arrays=_rule_arrays(features, limits),
        reach_ms=_int64s(reaches),
        window_arrays=WindowArrays(reach_ms=_int64s(windows)),
        needs_extremes=np.array([measure in extremes for measure in group.measures], np.bool_),
        horizon_ms=group.longest_window_ms + engine.allowed_lateness,
        late=LATE_POLICIES[engine.late],
        collision=COLLISION_POLICIES[engine.collision],
        edge=EDGE_POLICIES[precision.edge],
        tiers=tiers_of(precision),
        value_scales=tuple(value_scale(rule, schema) for rule in rules),
        complete_from_ms=from_ms,
        complete_since_ms=since_ms,
    )


def _int64s(numbers: Sequence[int] | Sequence[list[int]]) -> Int64s:
    return np.array(numbers, np.int64)


class _Feature(NamedTuple):
    """What makes two rules share a feature; a rule on trial shares with others on trial alone."""

    function: int
    column: int
    reach_ms: int
    on_trial: bool


class _Ordered(NamedTuple):
    """The rules of a feature, as indices: in the order of `RuleArrays`, and how many of them rise and fall."""

    rules: list[int]
    rising: int
    falling: int


_LimitNumbers = tuple[int, int, list[int]]


def _limits(rules: Sequence[Rule], schema: EventSchema) -> list[_LimitNumbers]:
    units = [0 if rule.measure is None else schema.measures[rule.measure].scale for rule in rules]
    return [_limit_numbers(rule, unit) for rule, unit in zip(rules, units, strict=True)]


def _features(
    group: Group, rules: Sequence[Rule], reaches: Sequence[int], limits: Sequence[_LimitNumbers]
) -> dict[_Feature, _Ordered]:
    """The features of rules, in the order in which rules name them, and the rules of each."""
    column = {measure: index for index, measure in enumerate(group.measures)}
    members: dict[_Feature, list[int]] = {}
    for index, (rule, reach_ms) in enumerate(zip(rules, reaches, strict=True)):
        measure = column[rule.measure] if rule.measure is not None else 0
        feature = _Feature(FUNCTIONS[rule.aggregate.function], measure, reach_ms, rule.state == "SHADOW")
        members.setdefault(feature, []).append(index)
    return {feature: _ordered(indices, limits) for feature, indices in members.items()}


def _ordered(rules: Sequence[int], limits: Sequence[_LimitNumbers]) -> _Ordered:
    rising = sorted((rule for rule in rules if limits[rule][0] in _RISING), key=lambda rule: limits[rule][1])
    falling = sorted((rule for rule in rules if limits[rule][0] in _FALLING), key=lambda rule: -limits[rule][1])
    others = [rule for rule in rules if limits[rule][0] not in (*_RISING, *_FALLING)]
    return _Ordered([*rising, *falling, *others], len(rising), len(falling))


def _feature_arrays(
    features: Mapping[_Feature, _Ordered], group: Group, windows: Sequence[int], lateness_ms: int
) -> FeatureArrays:
    # An event may be so late that the window of a rule in force is kept by the rules in force alone.
    kept_ms = {on_trial: lateness_ms + _longest_ms(group, on_trial) for on_trial in (False, True)}
    sizes = _int64s([len(ordered.rules) for ordered in features.values()])
    end = np.cumsum(sizes, dtype=np.int64)
    falling_from = end - sizes + _int64s([ordered.rising for ordered in features.values()])
    return FeatureArrays(
        function=_int64s([feature.function for feature in features]),
        measure=_int64s([feature.column for feature in features]),
        second=np.full(len(features), -1, np.int64),
        counted=np.full(len(features), -1, np.int64),
        window=_int64s([windows.index(feature.reach_ms) for feature in features]),
        patience_ms=_int64s([kept_ms[feature.on_trial] - feature.reach_ms for feature in features]),
        on_trial=np.array([feature.on_trial for feature in features], np.bool_),
        rules_from=end - sizes,
        falling_from=falling_from,
        other_from=falling_from + _int64s([ordered.falling for ordered in features.values()]),
        rules_end=end,
    )


def _longest_ms(group: Group, on_trial: bool) -> int:
    """The longest window that rules in force keep, or that all rules do."""
    return max((rule.window.length_ms for rule in group.rules if on_trial or rule.state == "ACTIVE"), default=0)


def _rule_arrays(features: Mapping[_Feature, _Ordered], limits: Sequence[_LimitNumbers]) -> RuleArrays:
    order = [(rule, feature.function == AVG) for feature, ordered in features.items() for rule in ordered.rules]
    return RuleArrays(
        number=np.array([rule for rule, _ in order], np.int32),
        is_average=np.array([is_average for _, is_average in order], np.bool_),
        comparison=_int64s([limits[rule][0] for rule, _ in order]),
        limit_whole=_int64s([limits[rule][1] for rule, _ in order]),
        limit_digits=_int64s([limits[rule][2] for rule, _ in order]).reshape(len(order), DIGIT_BLOCKS),
    )
