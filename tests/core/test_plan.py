"""Limits as thresholds on integers, and windows as reaches: exact for decimals of any scale."""

import json
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.aggregates.component import ABSENCE, DECAYED, ENTROPY, MAX, MODE, RANK, SEQUENCE
from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from buckets.compiled import compiled
from buckets.config.engine import EngineSettings, Precision
from buckets.kernel.evaluate import fires as fires_in_kernel
from buckets.kernel.evaluate import side_of_limit
from buckets.kernel.plan import DROP, EXCLUDE, INCLUDE, PRORATE, REPLACE, plan_group, tiers_of
from buckets.rules.rule_set import first_rule_set
from tests import oracle
from tests.core.examples import SCHEMA, rule
from tests.laws import examples
from tests.oracle import COMPARE
from tests.strategies import precisions

# As they run inside kernels: compiled.
fires_in_kernel, side_of_limit = compiled(fires_in_kernel), compiled(side_of_limit)

LEAST, GREATEST = -(2**63), 2**63 - 1
OPERATORS = st.sampled_from(list(COMPARE))
WHOLES = st.one_of(st.integers(-200, 200), st.integers(LEAST, GREATEST), st.sampled_from([LEAST, GREATEST]))


def plan_of(*rules, **engine):
    return plan_group(first_rule_set(rules).groups[0], SCHEMA, EngineSettings.model_validate(engine))


def fires(function: str, measure: str, operator: str, limit: Decimal, value: int, count: int = 1) -> bool:
    """Whether a value of the kernel, or for an average a sum of so many, crosses a limit as it stands in a rule."""
    plan = plan_of(
        rule(
            aggregate={"function": function, "measure": measure},
            limit={"operator": operator, "value": str(limit)},
        )
    )
    side = side_of_limit(plan.rule_arrays, 0, value // count, value % count, count)
    return bool(fires_in_kernel(plan.rule_arrays.comparison[0], side))


def exact(digits: int, scale: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(digits).scaleb(-scale)


def may_be_written(limit: Decimal) -> bool:
    """Whether a rule takes a limit of so many digits."""
    exponent = limit.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(limit.adjusted() + 1, 0) + max(-exponent, 0) <= 38


LIMITS = st.one_of(
    st.builds(exact, st.integers(-200, 200), st.integers(0, 5)),
    st.builds(exact, st.integers(-(10**18), 10**18), st.integers(0, 18)),
    st.builds(exact, st.integers(-9, 9), st.integers(-28, 9)),
    st.sampled_from([Decimal(LEAST), Decimal(GREATEST), exact(LEAST, 2), exact(GREATEST, 2), Decimal(GREATEST + 1)]),
).filter(may_be_written)


@settings(max_examples=examples(500))
@given(st.sampled_from(["sum", "min", "max"]), st.sampled_from(["amount", "fee"]), OPERATORS, LIMITS, WHOLES)
def test_a_threshold_decides_as_the_decimals_do(function, measure, operator, limit, whole):
    value = exact(whole, SCHEMA.measures[measure].scale)
    assert fires(function, measure, operator, limit, whole) == COMPARE[operator](value, limit)


@given(st.sampled_from(["amount", "fee"]), OPERATORS, WHOLES, st.integers(-1, 1))
def test_a_limit_on_the_value_or_beside_it_is_told_apart(measure, operator, whole, beside):
    value = exact(whole, SCHEMA.measures[measure].scale)
    with localcontext() as context:
        context.prec = 60
        limit = value + exact(beside, 3)
    if may_be_written(limit):
        assert fires("sum", measure, operator, limit, whole) == COMPARE[operator](value, limit)


def averages_and_limits():
    """A sum, its count, and a limit: any, or the average with some of its digits, the last of them one more or less."""

    def near(summed: int, count: int, digits: int, beside: int) -> tuple[int, int, Decimal]:
        return summed, count, exact(summed * 10**digits // count + beside, digits)

    counts = st.one_of(st.integers(1, 12), st.integers(1, 2**31 - 1))
    cut_off = st.builds(near, WHOLES, counts, st.integers(0, 36), st.integers(-1, 1))
    return st.one_of(st.tuples(WHOLES, counts, LIMITS), cut_off.filter(lambda each: may_be_written(each[2])))


@settings(max_examples=examples(800))
@given(st.sampled_from(["amount", "fee"]), OPERATORS, averages_and_limits())
def test_an_average_is_compared_exactly_with_a_limit_of_any_digits(measure, operator, case):
    summed, count, limit = case
    value = Fraction(summed, count * 10 ** SCHEMA.measures[measure].scale)
    assert fires("avg", measure, operator, limit, summed, count) == COMPARE[operator](value, Fraction(limit))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("33.333333331", {">": True, ">=": True, "<": False, "<=": False, "=": False, "!=": True}),
        ("33.333333", {">": True, ">=": True, "<": False, "<=": False, "=": False, "!=": True}),
        ("33.333334", {">": False, ">=": False, "<": True, "<=": True, "=": False, "!=": True}),
        ("33." + "3" * 36, {">": True, ">=": True, "<": False, "<=": False, "=": False, "!=": True}),
        ("33." + "3" * 35 + "4", {">": False, ">=": False, "<": True, "<=": True, "=": False, "!=": True}),
    ],
)
def test_a_third_of_a_hundred_is_above_what_it_is_shown_as(limit, expected):
    assert {operator: fires("avg", "fee", operator, Decimal(limit), 100, 3) for operator in COMPARE} == expected


@given(OPERATORS, LIMITS, st.integers(1, 100))
def test_the_threshold_of_a_count_has_no_digits_after_the_point(operator, limit, count):
    assert fires("count", "amount", operator, limit, count) == COMPARE[operator](Decimal(count), limit)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [(">", False), (">=", False), ("<", True), ("<=", True), ("=", False), ("!=", True)],
)
def test_a_limit_above_every_value_is_decided_without_a_value(operator, expected):
    for whole in (LEAST, 0, GREATEST):
        assert fires("sum", "amount", operator, Decimal("1e20"), whole) is expected
        assert fires("sum", "amount", operator, Decimal("-1e20"), whole) is (expected == (operator in ("=", "!=")))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["1ms", "2ms", "1s", "1h"]),
            st.sampled_from(["closed", "open"]),
            st.sampled_from(["ACTIVE", "SHADOW", "PAUSE"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_closed_window_reaches_its_length_and_an_open_one_1_ms_less(windows):
    lengths_ms = {"1ms": 1, "2ms": 2, "1s": 1000, "1h": 3_600_000}
    rules = [
        rule(f"r{index}", window={"length": length, "left": left}, state=state)
        for index, (length, left, state) in enumerate(windows)
    ]
    plan = plan_of(*rules, allowed_lateness="5ms")
    expected = [lengths_ms[length] - (left == "open") for length, left, state in windows if state != "PAUSE"]
    reaches = plan.windows.reach_ms.tolist()
    assert plan.reach_ms.tolist() == expected
    features = plan.feature_arrays
    named = zip(features.window.tolist(), features.on_trial.tolist(), strict=True)
    evaluated = [
        (reach, state == "SHADOW")
        for reach, (_, _, state) in zip(expected, (each for each in windows if each[2] != "PAUSE"), strict=True)
    ]
    assert [(reaches[window], on_trial) for window, on_trial in named] == list(dict.fromkeys(evaluated))
    assert len(set(reaches)) == len(reaches)
    assert plan.horizon_ms == max(lengths_ms[length] for length, _, _ in windows) + 5


def test_paused_rules_are_not_evaluated_and_hold_the_horizon():
    plan = plan_of(rule("a"), rule("b", length="2h", state="PAUSE"), allowed_lateness="0ms")
    assert [each.rule_id for each in plan.rules] == ["a"]
    assert plan.horizon_ms == 7_200_000


def test_how_late_an_event_may_be_to_be_evaluated_by_a_rule_does_not_depend_on_other_rules():
    rules = [rule("a"), rule("b", length="3h", state="SHADOW"), rule("c", length="2h", state="PAUSE")]
    plan = plan_of(*rules, allowed_lateness="5ms")
    assert plan.feature_arrays.patience_ms.tolist() == [5, 5]
    assert plan.feature_arrays.on_trial.tolist() == [False, True]
    shorter = plan_of(rule("a", length="4h"), rule("b"), rule("d", state="SHADOW"), allowed_lateness="5ms")
    assert shorter.feature_arrays.patience_ms.tolist() == [5, 5, 5]


def limited(name: str, operator: str, value: str, **changes):
    return rule(name, limit={"operator": operator, "value": value}, **changes)


def test_rules_that_differ_in_their_limits_share_a_feature_and_stand_in_the_order_of_their_limits():
    plan = plan_of(
        limited("a", ">", "5"), limited("b", "<", "1"), limited("c", "=", "3"), limited("d", ">=", "2.01"),
        limited("e", "<=", "4"), limited("f", ">", "1", length="2h"), limited("g", ">", "1", state="SHADOW"),
    )  # fmt: skip
    features, names = plan.feature_arrays, [plan.rules[number].rule_id for number in plan.rule_arrays.number]
    assert names == ["d", "a", "e", "b", "c", "f", "g"]
    assert features.rules_from.tolist() == [0, 5, 6]
    assert features.falling_from.tolist() == [2, 6, 7]
    assert features.other_from.tolist() == [4, 6, 7]
    assert features.rules_end.tolist() == [5, 6, 7]
    assert plan.windows.reach_ms[features.window].tolist() == [3_600_000, 7_200_000, 3_600_000]


def test_every_function_of_a_rule_is_made_of_operations_of_the_kernel_and_in_the_published_schema():
    published = json.loads((Path(__file__).parents[2] / "schemas" / "rule-change-v1.json").read_text())["$defs"]
    of_rules = published["rule"]["properties"]["aggregate"]["properties"]["function"]["enum"]
    of_features = published["feature"]["properties"]["function"]["enum"]
    assert set(of_rules) == set(SHORT_FUNCTIONS)
    assert set(of_features) == set(AGGREGATES) >= set(of_rules)
    components = [
        one for each in AGGREGATES.values() for counts_all in (True, False) for one in each.components(counts_all)
    ]
    looked = {SEQUENCE, ABSENCE, DECAYED, ENTROPY, RANK}
    assert {component.operation for component in components} == {*range(MODE + 1), *looked}
    assert all(AGGREGATES[function].operation <= MAX for function in of_rules)


@pytest.mark.parametrize("function", SHORT_FUNCTIONS)
def test_the_sentence_of_a_rule_names_every_function(function):
    sentence = rule(aggregate={"function": function, "measure": "amount"}).sentence()
    assert sentence.endswith("events of the same payer over the last 1h is above 100")


def test_stacks_are_kept_for_measures_with_a_minimum_or_a_maximum_alone():
    lowest = rule("b", aggregate={"function": "min", "measure": "fee"})
    assert plan_of(rule("a"), lowest).needs_extremes.tolist() == [False, True]
    assert plan_of(rule("a")).needs_extremes.tolist() == [False]


def test_values_have_the_scale_of_their_measure_and_averages_six_digits_more():
    average = rule("b", aggregate={"function": "avg", "measure": "amount"})
    assert plan_of(rule("a"), average, rule("c", measure=None), rule("d", "fee")).value_scales == (2, 8, 0, 0)


def test_policies_are_handed_on():
    plan = plan_of(rule(), late="drop", collision="replace")
    assert (plan.late, plan.collision) == (DROP, REPLACE)


# Precision


def test_without_a_tail_there_are_no_tiers():
    tiers = plan_of(rule()).tiers
    assert [(array.tolist(), array.dtype) for array in tiers] == [([], np.int64)] * 2


def test_the_resolution_is_the_first_tier_and_the_others_follow():
    precision = {"tail": "1h", "resolution": "1m", "tiers": [{"after": "2d", "resolution": "1h"}]}
    tiers = plan_of(rule(), precision=precision).tiers
    assert [(array.tolist(), array.dtype) for array in tiers] == [
        ([3_600_000, 172_800_000], np.int64),
        ([60_000, 3_600_000], np.int64),
    ]


@given(precisions())
def test_tiers_are_the_precision_as_arrays(written):
    precision = Precision.model_validate(written)
    assert list(zip(*map(np.ndarray.tolist, tiers_of(precision)), strict=True)) == oracle.tiers_of(precision)


def test_each_group_has_its_own_precision():
    groups = [{"group_by": ["kind"], "tail": "5m", "edge": "exclude"}, {"group_by": ["account"], "tail": "all"}]
    engine = EngineSettings.model_validate({"precision": {"tail": "1h", "edge": "prorate", "groups": groups}})
    rules = [rule("a"), rule("b", group_by=["kind"]), rule("c", group_by=["account"])]
    plans = [plan_group(group, SCHEMA, engine) for group in first_rule_set(rules).groups]
    assert [(plan.tiers.after_ms.tolist(), plan.edge) for plan in plans] == [
        ([3_600_000], PRORATE),
        ([300_000], EXCLUDE),
        ([], PRORATE),
    ]


def test_the_edge_is_included_where_nothing_else_is_said():
    assert plan_of(rule()).edge == INCLUDE
