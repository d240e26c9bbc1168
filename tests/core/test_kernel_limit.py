"""Limits that the kernel compares: a rule says the same in the short form, as a condition, and in a longer one."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.events.schema import EventSchema
from buckets.rules.group import kernel_limit
from buckets.rules.rule import Rule
from tests.laws import examples

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "time",
        "attributes": {"payer": "string", "kind": "string", "n": "long"},
        "measures": {"amount": {"scale": 2}},
    }
)
FUNCTIONS = ("sum", "count", "avg", "min", "max")
OPERATORS = (">", ">=", "<", "<=", "=", "!=")
LIMITS = ["0", "1", "2", "2.5", "3.333333", "3.3333333333", "7.25", "-0.005", f"{10**30}", f"-{10**30}"]
POLICIES: list[dict[str, Any]] = [
    {},
    {"state": "SHADOW"},
    {"cooldown": "3s"},
    {"require_warm": True, "tags": ["t"]},
    {"cooldown": "10s", "rollout": "50%"},
    {"effective": {"from": "2023-11-14T22:13:25Z"}},
]
ENGINES: list[dict[str, Any]] = [
    {"allowed_lateness": "3s", "late": "evaluate"},
    {"allowed_lateness": "0ms"},
    {"allowed_lateness": "1s", "precision": {"tail": "1s", "resolution": "4s"}},
    {"allowed_lateness": "0ms", "precision": {"tail": "1s", "resolution": "2s", "edge": "prorate"}},
]
OUTPUTS = ("alerts", "shadow_alerts", "held_alerts", "evaluations")
WRITTEN = ("value", "lower", "upper", "count", "count_lower", "count_upper", "operator", "limit", "terms", "condition")
"""Columns that are of the form in which a rule is written."""


def short(rule_id: str, draw: st.DataObject) -> dict[str, Any]:
    function, window = draw.draw(st.sampled_from(FUNCTIONS)), draw.draw(st.sampled_from(["2s", "5s", "30s"]))
    left = draw.draw(st.sampled_from(["closed", "open"]))
    limit = {"operator": draw.draw(st.sampled_from(OPERATORS)), "value": draw.draw(st.sampled_from(LIMITS))}
    measure = {} if function == "count" else {"measure": "amount"}
    group_by = draw.draw(st.sampled_from([["payer"], []]))
    rule = {"rule_id": rule_id, "group_by": group_by, "aggregate": {"function": function, **measure}}
    return rule | {"window": {"length": window, "left": left}, "limit": limit} | draw.draw(st.sampled_from(POLICIES))


def as_condition(rule: dict[str, Any], when: str = "{0}") -> dict[str, Any]:
    """A rule in the short form with a feature and a condition."""
    form = {name: value for name, value in rule.items() if name not in ("aggregate", "window", "limit")}
    of = {"of": rule["aggregate"]["measure"]} if "measure" in rule["aggregate"] else {}
    feature = {"function": rule["aggregate"]["function"], "window": rule["window"], **of}
    test = f"value {rule['limit']['operator']} {rule['limit']['value']}"
    return form | {"features": {"value": feature}, "when": when.format(test)}


@st.composite
def streams(draw: st.DrawFn) -> pa.Table:
    rows, time_ms = [], 1_700_000_000_000
    for number in range(draw(st.integers(1, 25))):
        time_ms += draw(st.sampled_from([0, 1, 500, 2000, 5000, -1500, 40_000]))
        amount = draw(st.sampled_from([None, "1.00", "2.50", "7.25", "-3.10", "0.01"]))
        rows.append((f"e{draw(st.integers(0, number))}", time_ms, draw(st.sampled_from("pq")), amount))
    ids, times, payers, amounts = zip(*rows, strict=True)
    return pa.table(
        {
            "id": ids,
            "time": pa.array(times, pa.int64()),
            "payer": payers,
            "kind": ["a"] * len(rows),
            "n": pa.array(range(len(rows)), pa.int64()),
            "amount": pa.array([None if each is None else Decimal(each) for each in amounts], pa.decimal128(9, 2)),
        }
    )


def said(rules: list[dict[str, Any]], pieces: list[pa.Table], engine: dict[str, Any]) -> list[dict[str, Any]]:
    """What comes out, without what depends on the form; values as the term of a condition has them."""
    evaluator = buckets.Evaluator(
        [Rule.model_validate(rule) for rule in rules], SCHEMA, buckets.EngineSettings.model_validate(engine)
    )
    found = []
    for number, piece in enumerate(pieces):
        results = evaluator.recorded(piece)
        for output in OUTPUTS:
            for row in getattr(results, output).to_pylist():
                same = {name: value for name, value in row.items() if name not in (*WRITTEN, "rule")}
                found.append({"piece": number, "output": output, **same, **value_of(row)})
    return sorted(found, key=repr)


def value_of(row: dict[str, Any]) -> dict[str, Any]:
    """The value of a row and its bounds."""
    if row["terms"] is None:
        lower, upper = (None, None) if row["exact"] else (row["lower"], row["upper"])
        return {"value": row["value"], "lower": lower, "upper": upper, "count": row["count"]}
    (term,) = json.loads(row["terms"])
    numbers = {name: None if term.get(name) is None else Decimal(term[name]) for name in ("value", "lower", "upper")}
    return numbers | {"count": term["count"]}


@settings(max_examples=examples(120))
@given(st.data(), streams(), st.integers(0, 25), st.sampled_from(ENGINES))
def test_a_rule_says_the_same_in_the_short_form_and_as_a_condition(data, events, cut, engine):
    rules = [short(f"r{number}", data) for number in range(data.draw(st.integers(1, 4)))]
    pieces = [piece for piece in (events.slice(0, cut), events.slice(cut)) if len(piece)]
    in_short, as_conditions = rules, [as_condition(rule) for rule in rules]
    assert said(in_short, pieces, engine) == said(as_conditions, pieces, engine)
    mixed = [data.draw(st.sampled_from(pair)) for pair in zip(in_short, as_conditions, strict=True)]
    assert said(mixed, pieces, engine) == said(in_short, pieces, engine)


@settings(max_examples=examples(60))
@given(st.data(), streams(), st.sampled_from(ENGINES))
def test_what_the_kernel_compares_is_what_a_longer_condition_says(data, events, engine):
    drawn = [short(f"r{number}", data) for number in range(data.draw(st.integers(1, 4)))]
    rules = [rule for rule in drawn if rule["aggregate"]["function"] != "avg"]
    compared = [as_condition(rule) for rule in rules]
    longer = [as_condition(rule, "{0} AND value IS NOT NULL") for rule in rules]
    assert all(kernel_limit(Rule.model_validate(rule)) is not None for rule in compared)
    assert all(kernel_limit(Rule.model_validate(rule)) is None for rule in longer)
    assert said(compared, [events], engine) == said(longer, [events], engine)


def rule_of(when: str, function: str = "avg", **more: Any) -> Rule:
    of = {} if function == "count" else {"of": "amount"}
    feature = {"function": function, "window": "1h", **of}
    return Rule.model_validate({"rule_id": "r", "group_by": ["payer"], "features": {"v": feature}, "when": when} | more)


@pytest.mark.parametrize(
    ("when", "limit"),
    [
        ("v > 100", (">", 100)),
        ("100 < v", (">", 100)),
        ("NOT v > -1.5", ("<=", Decimal("-1.5"))),
        ("v = 3 OR v = 3.0", ("=", 3)),
        ("v = 3 OR v = 4", None),
        ("v <> 3", ("!=", 3)),
        ("v > amount", None),
        ("v + 1 > 2", None),
        ("amount > 3", None),
        ("v IS NULL", None),
    ],
)
def test_a_limit_is_known_however_it_is_written(when, limit):
    found = kernel_limit(rule_of(when))
    assert (found and (found.operator, found.value)) == limit


def test_the_kernel_compares_what_is_of_all_events_of_a_group():
    assert kernel_limit(rule_of("v > 1", "sum")) is not None
    assert kernel_limit(rule_of("v > 1", "variance")) is None
    assert kernel_limit(rule_of("v > 1", "sum", where="kind = 'a'")) is None
    of_kind = {"function": "sum", "of": "amount", "window": "1h", "group_by": ["kind"]}
    assert kernel_limit(rule_of("v > 1", features={"v": of_kind})) is None
    assert kernel_limit(rule_of("v > 1", features={"v": of_kind, "w": of_kind})) is None


@pytest.mark.parametrize(("limit", "fires"), [("33.333333331", True), ("33.3333333334", False), ("33.333333", True)])
def test_an_average_is_compared_with_all_its_digits(limit, fires):
    times = [1_700_000_000_000 + number for number in range(3)]
    amounts = pa.array([Decimal("33.33"), Decimal("33.33"), Decimal("33.34")], pa.decimal128(9, 2))
    events = pa.table({"id": ["a", "b", "c"], "time": times, "payer": ["p"] * 3, "amount": amounts})
    alerts = buckets.Evaluator([rule_of(f"v > {limit}")], SCHEMA).recorded(events).alerts.to_pylist()
    assert [row["event_id"] for row in alerts] == (["c"] if fires else [])
