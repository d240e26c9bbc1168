"""What the kernel needs of a group: its rules as flat arrays of integers.

Limits are decimals of any scale; values are integers. So each limit becomes a threshold on the value's own grid:
`value > 10.005` at scale 2 is `scaled > 1000`, which is exact, and compares integers with integers. An average lies on
no grid: its limit is kept as it is, the whole and the digits after the point, see `quotient`.
"""

import math
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

SUM, COUNT, AVG, MIN, MAX = range(5)
FUNCTIONS: dict[Function, int] = {"sum": SUM, "count": COUNT, "avg": AVG, "min": MIN, "max": MAX}
"""What the kernel computes for each function of a rule."""
ALWAYS, NEVER, ABOVE, AT_LEAST, BELOW, AT_MOST, EXACTLY, NOT = range(8)
ADD, EVALUATE, DROP = range(3)
LATE_POLICIES = {"add": ADD, "evaluate": EVALUATE, "drop": DROP}
KEEP, KEEP_FIRST, REPLACE = range(3)
COLLISION_POLICIES = {"keep": KEEP, "keep_first": KEEP_FIRST, "replace": REPLACE}
INCLUDE, EXCLUDE, PRORATE = range(3)
EDGE_POLICIES = {"include": INCLUDE, "exclude": EXCLUDE, "prorate": PRORATE}

_CODES = {">": ABOVE, ">=": AT_LEAST, "<": BELOW, "<=": AT_MOST, "=": EXACTLY, "!=": NOT}

Int64s = npt.NDArray[np.int64]


class RuleArrays(NamedTuple):
    """The evaluated rules of a group, one element each.

    Attributes:
        function: int64, SUM | COUNT | AVG | MIN | MAX.
        measure: int64, the measure's column.
        window: int64, the window's index in `WindowArrays`.
        comparison: int64, ALWAYS | NEVER | ABOVE | AT_LEAST | BELOW | AT_MOST | EXACTLY | NOT.
        limit_whole: int64, the limit in scaled units; of an average's, rounded down.
        limit_digits: int64 `(rules, DIGIT_BLOCKS)`, what an average's limit has after the point: nine digits each.
        patience_ms: int64, how far behind its key's clock an event may be to be evaluated.
        on_trial: bool, whether the rule is a SHADOW, which changes nothing for others.
    """

    function: Int64s
    measure: Int64s
    window: Int64s
    comparison: Int64s
    limit_whole: Int64s
    limit_digits: Int64s
    patience_ms: Int64s
    on_trial: npt.NDArray[np.bool_]


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
        rules: the evaluated rules, in file order; the arrays' elements.
        rule_arrays: the rules' numbers.
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
    rule_arrays: RuleArrays
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


def _patience_ms(rule: Rule, group: Group, reach_ms: int, allowed_lateness_ms: int) -> int:
    """How late an event may be for its whole window to be kept: for a rule in force, by the rules in force alone."""
    longest = [each.window.length_ms for each in group.rules if each.state == "ACTIVE" or rule.state != "ACTIVE"]
    return max(longest) + allowed_lateness_ms - reach_ms


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
    different = sorted(set(reaches))
    scales = tuple(value_scale(rule, schema) for rule in rules)
    units = [0 if rule.measure is None else schema.measures[rule.measure].scale for rule in rules]
    limits = [_limit_numbers(rule, unit) for rule, unit in zip(rules, units, strict=True)]
    lateness = engine.allowed_lateness
    patience = [_patience_ms(rule, group, reach, lateness) for rule, reach in zip(rules, reaches, strict=True)]
    column = {measure: index for index, measure in enumerate(group.measures)}
    tracks = [group.complete[rule.measure or COUNT_TRACK] for rule in rules]
    from_ms, since_ms = as_arrays([track or FROM_THE_FIRST for track in tracks])
    extremes = {rule.measure for rule in rules if FUNCTIONS[rule.aggregate.function] in (MIN, MAX)}

    def array(numbers: list[int] | list[list[int]]) -> Int64s:
        return np.array(numbers, np.int64)

    return GroupPlan(
        group=group,
        rules=rules,
        rule_arrays=RuleArrays(
            function=array([FUNCTIONS[rule.aggregate.function] for rule in rules]),
            measure=array([column[rule.measure] if rule.measure is not None else 0 for rule in rules]),
            window=array([different.index(reach) for reach in reaches]),
            comparison=array([code for code, _, _ in limits]),
            limit_whole=array([whole for _, whole, _ in limits]),
            limit_digits=array([digits for _, _, digits in limits]).reshape(len(rules), DIGIT_BLOCKS),
            patience_ms=array(patience),
            on_trial=np.array([rule.state == "SHADOW" for rule in rules], np.bool_),
        ),
        window_arrays=WindowArrays(reach_ms=array(different)),
        needs_extremes=np.array([measure in extremes for measure in group.measures], np.bool_),
        horizon_ms=group.longest_window_ms + lateness,
        late=LATE_POLICIES[engine.late],
        collision=COLLISION_POLICIES[engine.collision],
        edge=EDGE_POLICIES[precision.edge],
        tiers=tiers_of(precision),
        value_scales=scales,
        complete_from_ms=from_ms,
        complete_since_ms=since_ms,
    )
