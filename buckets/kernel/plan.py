"""Plans a group for the kernel: its features and rules as flat arrays of integers.

A feature is what is computed: an operation on a column over a window. Rules that differ only in their limits share one,
which is computed once for an event. So do the parts of rules with conditions, which have no limit.

Limits are decimals of any scale; values are integers. So each limit becomes a threshold on the value's own grid:
`value > 10.005` at scale 2 is `scaled > 1000`, which is exact, and compares integers with integers. An average lies on
no grid, so its limit is kept in full, as its whole and the digits after the point, see `quotient`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np

from buckets.aggregates.component import AVG, FIRST, MAX, MIN, PAIRS, PERIODS
from buckets.arrays import Flags, Int32s, Int64s
from buckets.config.engine import EngineSettings, Precision
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import DIGIT_BLOCK, DIGIT_BLOCKS, INT64_MAX, INT64_MIN
from buckets.rules.completeness import as_arrays
from buckets.rules.feature import Part
from buckets.rules.group import Group, canonical_group_id, kernel_limit
from buckets.rules.rule import Rule, extra_digits, value_scale
from buckets.rules.steps import MOST_STEPS
from buckets.time_zone import period_starts_ms
from buckets.timeline.tiers import Tiers

NO_COLUMN = NO_RULE = -1
BEFORE_ITSELF = -1
"""Stands for how long before its event a window ends that holds all but the event itself."""
ALWAYS, NEVER, ABOVE, AT_LEAST, BELOW, AT_MOST, EXACTLY, NOT, EVERY = range(9)
ADD, EVALUATE, DROP = range(3)
LATE_POLICIES = {"add": ADD, "evaluate": EVALUATE, "drop": DROP}
KEEP, KEEP_FIRST, REPLACE = range(3)
COLLISION_POLICIES = {"keep": KEEP, "keep_first": KEEP_FIRST, "replace": REPLACE}
INCLUDE, EXCLUDE, PRORATE = range(3)
EDGE_POLICIES = {"include": INCLUDE, "exclude": EXCLUDE, "prorate": PRORATE}

_ALWAYS = INT64_MIN, INT64_MAX
_RISING, _FALLING = (ABOVE, AT_LEAST), (BELOW, AT_MOST)
_CODES = {">": ABOVE, ">=": AT_LEAST, "<": BELOW, "<=": AT_MOST, "=": EXACTLY, "!=": NOT}


class FeatureArrays(NamedTuple):
    """The different features of a group's evaluated rules, in the order in which rules name them, one element each."""

    operation: Int64s  # int64, what is computed, one of `buckets.aggregates.component`
    measure: Int64s  # int64, the column that it reads; 0 if it needs none
    # int64, a second column if pairs of values are counted; for a sequence, the column with 1 in events that must not
    # come between its steps; NO_COLUMN for none
    second: Int64s
    counted: Int64s  # int64, the column with 1 in events that count; NO_COLUMN if all count
    # int64, for a percentile its rank in hundredths of a per cent, for periods the operation over each; otherwise 0
    parameter: Int64s
    # int64 `(features, MOST_STEPS)`, for a sequence the columns with 1 in events of each step; otherwise NO_COLUMN
    steps: Int64s
    window: Int64s  # int64, the window's index in `GroupPlan.windows`
    patience_ms: Int64s  # int64, how far behind its key's clock an event may be to be evaluated
    on_trial: Flags  # bool, whether its rules are on trial (SHADOW), so that they do not affect other rules
    resets: Flags  # bool, whether its only rule restarts its window after it has fired
    resets_from_ms: Int64s  # int64, the first event time at which it does so; its rule is not in effect before
    resets_until_ms: Int64s  # int64, the first event time at which it does so no more
    # int64, where its rules begin in `RuleArrays`: first those that fire above their limit, lowest limit first
    rules_from: Int64s
    falling_from: Int64s  # int64, where rules begin that fire below their limit, highest limit first
    other_from: Int64s  # int64, where all other rules begin
    rules_end: Int64s  # int64, where its rules end


class Windows(NamedTuple):
    """The different windows of a group."""

    # int64 `(windows,)`, how far each reaches back: it holds events at or after `event_time - reach_ms`, and a
    # left-open one reaches 1 ms less
    reach_ms: Int64s
    until_ms: Int64s  # int64 `(windows,)`, how long before its event each ends; 0: with it, or BEFORE_ITSELF
    # int64 `(windows,)` each, the range in `period_ms` of the calendar periods with which a window begins; empty for
    # other windows
    period_from: Int64s
    period_end: Int64s
    period_ms: Int64s  # int64, when periods begin
    most: Int64s  # int64 `(windows,)`, the most events that each holds, its last ones; 0 for any number
    # int64 `(windows,)`, the column with 1 in events that count towards `most`; NO_COLUMN if all do
    counted: Int64s
    gap_ms: Int64s  # int64 `(windows,)`, for a session the largest gap between its events; otherwise 0
    # int64 `(windows,)` each, for windows of whole periods before their event's own: how many days or steps they hold,
    # how many of these make a period, and how long a step is, 0 for days; otherwise all 0
    back: Int64s
    per_period: Int64s
    step_ms: Int64s
    # bool `(windows,)`, whether it only has a length and ends with its event; most do, which takes a shorter path
    is_plain: Flags


class RuleArrays(NamedTuple):
    """The evaluated rules of a group, feature by feature, one element each."""

    number: Int32s  # int32, the rule's index in `GroupPlan.rules`; parts are numbered after the rules
    # bool, whether its feature is an average, which is compared with all digits of its limit
    is_average: Flags
    # int64, ALWAYS | NEVER | ABOVE | AT_LEAST | BELOW | AT_MOST | EXACTLY | NOT; none of these matches a null. EVERY
    # for a part, which has a row for every event.
    comparison: Int64s
    limit_whole: Int64s  # int64, the limit in scaled units; rounded down for an average
    limit_digits: Int64s  # int64 `(rules, DIGIT_BLOCKS)`, digits of an average's limit after the point, nine each


@dataclass(frozen=True)
class GroupPlan:
    """A group, ready for the kernel."""

    group: Group  # the group
    rules: tuple[Rule, ...]  # the evaluated rules whose value is compared with a limit here, in file order
    parts: tuple[Part, ...]  # the parts of rules with conditions; in results they are numbered after the rules
    feature_arrays: FeatureArrays  # their features
    rule_arrays: RuleArrays  # their limits
    reach_ms: Int64s  # int64 `(rules + parts,)`, how far each window reaches back
    windows: Windows  # the different windows
    # bool, shape `(measures,)`: whether some rule asks for a measure's min or max
    needs_extremes: Flags
    is_text: Flags  # bool, shape `(measures,)`: whether a column holds texts
    horizon_ms: int  # longest window of all live rules, plus allowed lateness
    late: int  # late policy, ADD | EVALUATE | DROP
    collision: int  # collision policy, KEEP | KEEP_FIRST | REPLACE
    edge: int  # how a value counts the bucket at its edge, INCLUDE | EXCLUDE | PRORATE
    repeats_ms: int  # how far apart in time two events of one id may be to be duplicates; 0: only at the same time
    tiers: Tiers  # the buckets beyond the tail
    value_scales: tuple[int, ...]  # digits after the point of each rule's value
    complete_from_ms: Int64s  # int64, shape `(steps,)`: the event time from which each step of the next array applies
    complete_since_ms: Int64s  # int64, shape `(rules + parts, steps)`: since when all tracks of each are complete
    resetting: tuple[int, ...]  # the indices of rules that restart their windows after they have fired
    reset_windows: Int64s  # int64, the window of each of these, which no other rule shares


def _limit_numbers(rule: Rule, schema: EventSchema) -> "_LimitNumbers":
    """Return comparison code, whole and digits of a rule's limit, in units of its scaled value.

    The code is ALWAYS or NEVER if the limit is beyond every value. Only averages have digits after the point.
    """
    limit, extra = kernel_limit(rule), extra_digits(rule)
    assert limit is not None
    code, digits = _CODES[limit.operator], [0] * DIGIT_BLOCKS
    with localcontext() as context:
        context.prec = 200
        exact = limit.value * Decimal(10) ** (value_scale(rule, schema) - extra)
        whole, is_whole = math.floor(exact), exact == math.floor(exact)
        if extra:
            behind = int((exact - whole) * Decimal(DIGIT_BLOCK) ** DIGIT_BLOCKS)
            digits = [behind // DIGIT_BLOCK**power % DIGIT_BLOCK for power in reversed(range(DIGIT_BLOCKS))]
    if not (extra or is_whole) and code in (AT_LEAST, BELOW):
        whole += 1
    fits = INT64_MIN <= whole <= INT64_MAX
    if code in (EXACTLY, NOT) and not (fits and (extra or is_whole)):
        return (NEVER if code == EXACTLY else ALWAYS), 0, digits
    if not fits:
        return (NEVER if (whole > 0) == (code in (ABOVE, AT_LEAST)) else ALWAYS), 0, digits
    return code, whole, digits


def tiers_of(precision: Precision) -> Tiers:
    """Convert a precision to arrays: one tier for `resolution`, then the others; none for `tail: all`."""
    if precision.tail is None:
        return Tiers(np.empty(0, np.int64), np.empty(0, np.int64))
    after = [precision.tail, *(tier.after for tier in precision.tiers)]
    widths = [precision.resolution, *(tier.resolution for tier in precision.tiers)]
    return Tiers(np.array(after, np.int64), np.array(widths, np.int64))


def plan_group(group: Group, schema: EventSchema, engine: EngineSettings) -> GroupPlan:
    """Plan a group's rules for the kernel."""
    rules, parts = group.limit_rules, group.parts
    # Of a rule with a limit the first part is its value; the second would be the count, which a row has anyway.
    values = [rule.parts(group.fields)[0] for rule in rules]
    precision = engine.precision.of_group(canonical_group_id(group.fields, group.where, schema), schema)
    column = {name: index for index, name in enumerate(group.measures)}
    computed = [_feature_of_part(part, column) for part in (*values, *parts)]
    for number, rule in enumerate(rules):
        if rule.reset_on_alert:
            in_effect_ms = _ALWAYS if rule.effective is None else rule.effective.span_ms()
            computed[number] = computed[number]._replace(resetting=number, in_effect_ms=in_effect_ms)
    windows = sorted({feature.window for feature in computed})
    resetting = tuple(number for number, rule in enumerate(rules) if rule.reset_on_alert)
    tracks = [group.completeness(*(track.name for track in part.tracks)) for part in (*values, *parts)]
    from_ms, since_ms = as_arrays(tracks)
    extremes = {feature.column for feature in computed if feature.operation in (MIN, MAX)}
    limits = [_limit_numbers(rule, schema) for rule in rules] + [(EVERY, 0, [0] * DIGIT_BLOCKS)] * len(parts)
    features = _features(computed, limits)
    return GroupPlan(
        group=group,
        rules=rules,
        parts=parts,
        feature_arrays=_feature_arrays(features, windows, engine.allowed_lateness, precision.tail),
        rule_arrays=_rule_arrays(features, limits),
        reach_ms=_int64s([feature.reach_ms for feature in computed]),
        windows=_windows(windows),
        needs_extremes=np.array([index in extremes for index in range(len(group.measures))], np.bool_),
        is_text=np.array(group.text_columns(schema), np.bool_),
        horizon_ms=group.longest_window_ms + engine.allowed_lateness,
        late=LATE_POLICIES[engine.late],
        collision=COLLISION_POLICIES[engine.collision],
        edge=EDGE_POLICIES[precision.edge],
        repeats_ms=engine.duplicates.within or 0,
        tiers=tiers_of(precision),
        value_scales=tuple(value_scale(rule, schema) for rule in rules),
        complete_from_ms=from_ms,
        complete_since_ms=since_ms,
        resetting=resetting,
        reset_windows=_int64s([windows.index(computed[number].window) for number in resetting]),
    )


def _int64s(numbers: Sequence[int] | Sequence[Sequence[int]]) -> Int64s:
    return np.array(numbers, np.int64)


class _Feature(NamedTuple):
    """The identity of a feature: rules with equal ones share it. A rule on trial only shares with others on trial.

    A rule that restarts its window after it has fired shares with none: `resetting` is its index, and `in_effect_ms`
    the interval in which it is in effect.
    """

    operation: int
    column: int
    second: int
    counted: int
    parameter: int
    reach_ms: int
    until_ms: int
    period: tuple[str, str]
    most: int
    gap_ms: int
    period_steps: tuple[int, int, int]
    on_trial: bool
    steps: tuple[int, ...] = (NO_COLUMN,) * MOST_STEPS
    resetting: int = NO_RULE
    in_effect_ms: tuple[int, int] = _ALWAYS

    @property
    def window(self) -> "_Window":
        """The identity of its window: features with equal ones share it."""
        last = self.most, self.counted if self.most else NO_COLUMN
        return self.reach_ms, self.until_ms, self.resetting, self.period, last, self.gap_ms, self.period_steps


_Window = tuple[int, int, int, tuple[str, str], tuple[int, int], int, tuple[int, int, int]]
_NO_PERIOD, _NO_STEPS = ("", ""), (0, 0, 0)


def _windows(windows: Sequence[_Window]) -> Windows:
    """Convert windows to arrays, with the beginnings of each different kind of period once."""
    reach_ms, until_ms, _, periods, last, gap_ms, steps = zip(*windows, strict=True) if windows else ((),) * 7
    starts = {period: period_starts_ms(*period) for period in dict.fromkeys(periods) if period != _NO_PERIOD}
    end = dict(zip(starts, np.cumsum([len(each) for each in starts.values()]).tolist(), strict=True))
    ends = [end.get(period, 0) for period in periods]
    return Windows(
        reach_ms=_int64s(reach_ms),
        until_ms=_int64s(until_ms),
        period_from=_int64s([at - len(starts.get(period, ())) for at, period in zip(ends, periods, strict=True)]),
        period_end=_int64s(ends),
        period_ms=np.concatenate([_int64s([]), *starts.values()]),
        most=_int64s([most for most, _ in last]),
        counted=_int64s([counted for _, counted in last]),
        gap_ms=_int64s(gap_ms),
        back=_int64s([back for back, _, _ in steps]),
        per_period=_int64s([per_period for _, per_period, _ in steps]),
        step_ms=_int64s([step_ms for _, _, step_ms in steps]),
        is_plain=np.array(
            [
                (until, period, (most, gap), step) == (0, _NO_PERIOD, (0, 0), _NO_STEPS)
                for until, period, (most, _), gap, step in zip(until_ms, periods, last, gap_ms, steps, strict=True)
            ],
            np.bool_,
        ),
    )


class _Ordered(NamedTuple):
    """The rules of a feature as indices, in the order of `RuleArrays`, and how many of them are rising and falling."""

    rules: list[int]
    rising: int
    falling: int


_LimitNumbers = tuple[int, int, list[int]]


def _feature_of_part(part: Part, column: Mapping[str, int]) -> _Feature:
    is_listed = part.is_listed
    of = column[part.column.name] if part.column is not None and not is_listed else 0
    second, counted = (NO_COLUMN if track is None else column[track.name] for track in (part.second, part.counted))
    until_ms = BEFORE_ITSELF if part.window.exclude is not None else part.window.offset_ms
    period = part.window.calendar or _NO_PERIOD
    window = part.window.reach_ms, until_ms, period, part.window.last, part.window.session_ms, part.window.period_steps
    if is_listed:
        return _Feature(PAIRS, of, NO_COLUMN, counted, 0, *window, part.on_trial)
    if part.over is not None:
        return _Feature(PERIODS, of, NO_COLUMN, counted, part.operation, *window, part.on_trial)
    steps = (*(column[track.name] for track in part.steps), *[NO_COLUMN] * (MOST_STEPS - len(part.steps)))
    return _Feature(part.operation, of, second, counted, part.parameter, *window, part.on_trial, steps)


def _features(computed: Sequence[_Feature], limits: Sequence[_LimitNumbers]) -> dict[_Feature, _Ordered]:
    """Return the distinct features of rules and parts, in order, with the rules and parts of each."""
    members: dict[_Feature, list[int]] = {}
    for index, feature in enumerate(computed):
        members.setdefault(feature, []).append(index)
    features = {}
    for feature, rules in members.items():
        rising = sorted((rule for rule in rules if limits[rule][0] in _RISING), key=lambda rule: limits[rule][1])
        falling = sorted((rule for rule in rules if limits[rule][0] in _FALLING), key=lambda rule: -limits[rule][1])
        others = [rule for rule in rules if limits[rule][0] not in (*_RISING, *_FALLING)]
        features[feature] = _Ordered([*rising, *falling, *others], len(rising), len(falling))
    return features


def _feature_arrays(
    features: Mapping[_Feature, _Ordered],
    windows: Sequence[_Window],
    lateness_ms: int,
    tail_ms: int | None,
) -> FeatureArrays:
    sizes = _int64s([len(ordered.rules) for ordered in features.values()])
    end = np.cumsum(sizes, dtype=np.int64)
    falling_from = end - sizes + _int64s([ordered.rising for ordered in features.values()])
    return FeatureArrays(
        operation=_int64s([feature.operation for feature in features]),
        measure=_int64s([feature.column for feature in features]),
        second=_int64s([feature.second for feature in features]),
        counted=_int64s([feature.counted for feature in features]),
        parameter=_int64s([feature.parameter for feature in features]),
        steps=_int64s([feature.steps for feature in features]).reshape(len(features), MOST_STEPS),
        window=_int64s([windows.index(feature.window) for feature in features]),
        patience_ms=_int64s([_patience_ms(feature, lateness_ms, tail_ms) for feature in features]),
        on_trial=np.array([feature.on_trial for feature in features], np.bool_),
        resets=np.array([feature.resetting != NO_RULE for feature in features], np.bool_),
        resets_from_ms=_int64s([feature.in_effect_ms[0] for feature in features]),
        resets_until_ms=_int64s([feature.in_effect_ms[1] for feature in features]),
        rules_from=end - sizes,
        falling_from=falling_from,
        other_from=falling_from + _int64s([ordered.falling for ordered in features.values()]),
        rules_end=end,
    )


def _patience_ms(feature: _Feature, lateness_ms: int, tail_ms: int | None) -> int:
    """Return how late an event may be for a feature: less if its window has to lie in the tail.

    Longer windows of other rules, which keep more events, do not count: each rule gives the same result as if alone.
    """
    needs_raw_events = FIRST <= feature.operation < PERIODS or feature.resetting != NO_RULE
    needs_raw_events = needs_raw_events or feature.most > 0 or feature.gap_ms > 0
    return min(lateness_ms, tail_ms - feature.reach_ms) if needs_raw_events and tail_ms is not None else lateness_ms


def _rule_arrays(features: Mapping[_Feature, _Ordered], limits: Sequence[_LimitNumbers]) -> RuleArrays:
    order = [(rule, feature.operation == AVG) for feature, ordered in features.items() for rule in ordered.rules]
    return RuleArrays(
        number=np.array([rule for rule, _ in order], np.int32),
        is_average=np.array([is_average for _, is_average in order], np.bool_),
        comparison=_int64s([limits[rule][0] for rule, _ in order]),
        limit_whole=_int64s([limits[rule][1] for rule, _ in order]),
        limit_digits=_int64s([limits[rule][2] for rule, _ in order]).reshape(len(order), DIGIT_BLOCKS),
    )
