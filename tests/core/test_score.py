"""Scores that are computed: by Python's own fractions, in every output, and in what rules over alerts make of them."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

import buckets
from buckets.events.schema import EventSchema
from buckets.rules.condition import LARGEST_SCORE, SqlScore, parse_score, scores
from buckets.rules.flink_message import check_against_schema
from buckets.rules.renaming import renamed_rule
from buckets.rules.rule import Rule, policy_sentence
from tests.core.conditions import NUMBER_VALUES, ROWS, value
from tests.core.lint_rules import found
from tests.laws import examples

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "at",
        "attributes": {"kind": "string", "country code": "string", "account": "long", "vip": "boolean"},
        "measures": {"amount": {"scale": 2}},
        "arrays": {"tags[]": "string", "lines[].codes": "long", "flags[]": "boolean"},
    }
)


def rule(score: Any, **more: Any) -> Rule:
    features = {"payments": {"function": "count", "window": "1h"}, "before": {"function": "previous", "of": "amount"}}
    features["before"]["window"] = "1h"
    written = {"rule_id": "r", "group_by": ["kind"], "features": features, "when": "payments >= 1", "score": score}
    return Rule.model_validate(written | more)


def raised(*rules: Rule, amounts: tuple[str, ...] = ("1.00", "2.50", "7.25")) -> buckets.Results:
    size = len(amounts)
    columns = {
        "id": pa.array([f"e{number}" for number in range(size)]),
        "at": pa.array([60_000 * number for number in range(size)], pa.int64()),
        "kind": pa.array(["a"] * size),
        "account": pa.array([None, *range(1, size)], pa.int64()),
        "amount": pa.array([Decimal(amount) for amount in amounts], pa.decimal128(20, 2)),
    }
    columns |= {name: pa.nulls(size, pa.string()) for name in ("country code",)} | {"vip": pa.nulls(size, pa.bool_())}
    columns |= {name: pa.nulls(size, pa.list_(pa.string())) for name in ("tags[]",)}
    columns |= {"lines[].codes": pa.nulls(size, pa.list_(pa.int64())), "flags[]": pa.nulls(size, pa.list_(pa.bool_()))}
    return buckets.evaluate(pa.table(columns), list(rules), SCHEMA)


def scores_of(results: buckets.Results, output: str = "alerts") -> list[int]:
    return sorted_scores(getattr(results, output))


def sorted_scores(table: pa.Table) -> list[int]:
    return [row["score"] for row in sorted(table.to_pylist(), key=lambda row: (row["position"], row["rule_id"]))]


@settings(max_examples=examples(200))
@given(NUMBER_VALUES, ROWS)
def test_a_score_is_the_number_rounded_half_to_even_within_its_bounds_and_null_is_0(expression, rows):
    fields: dict[str, Any] = {
        "kind": pa.array([row["kind"] for row in rows], pa.string()),
        "country code": pa.array([row["country code"] for row in rows], pa.string()),
        "account": pa.array([None if row["account"] is None else int(row["account"]) for row in rows], pa.int64()),
        "amount": pa.array([None if row["amount"] is None else int(row["amount"] * 100) for row in rows], pa.int64()),
        "tags[]": pa.array([row["tags[]"] for row in rows], pa.list_(pa.string())),
        "flags[]": pa.array([row["flags[]"] for row in rows], pa.list_(pa.bool_())),
        "vip": pa.array([row["vip"] for row in rows], pa.bool_()),
        "at": pa.array([row["at"] for row in rows], pa.int64()),
    }
    codes = [row["lines[].codes"] for row in rows]
    whole = [of and [None if code is None else int(code) for code in of] for of in codes]
    fields["lines[].codes"] = pa.array(whole, pa.list_(pa.int64()))
    named = {name: fields[name] for name in set(expression.fields())}
    found = scores(SqlScore(expression, ""), named, {}, SCHEMA, len(rows)).tolist()
    numbers = [value(expression, row) for row in rows]
    assert found == [0 if each is None else min(max(round(each), 0), LARGEST_SCORE) for each in numbers]


@pytest.mark.parametrize(
    ("score", "came"),
    [
        (40, [40, 40, 40]),
        ("40", [40, 40, 40]),
        ("40 + 10 * payments", [50, 60, 70]),
        ("40 + 10 * least(payments, 2)", [50, 60, 60]),
        ("CASE WHEN amount > 2 THEN 80 ELSE 10 * payments END", [10, 80, 80]),
        ("payments / 2", [0, 1, 2]),  # 0.5 and 1.5, half to even
        ("amount * 4", [4, 10, 29]),
        ("2 - payments", [1, 0, 0]),
        ("before", [0, 1, 2]),
        ("coalesce(before, 9)", [9, 1, 2]),
        ("account + 5", [0, 6, 7]),
        ("amount * 500000000", [500_000_000, LARGEST_SCORE, LARGEST_SCORE]),
    ],
)
def test_each_alert_has_its_own_score(score, came):
    assert scores_of(raised(rule(score))) == came
    assert scores_of(raised(rule(score, state="SHADOW")), "shadow_alerts") == came
    assert scores_of(raised(rule(score, cooldown="1h")), "held_alerts") == came[1:]


def test_a_rule_in_the_short_form_calls_its_aggregate_value():
    short = {"rule_id": "r", "group_by": ["kind"], "aggregate": {"function": "sum", "measure": "amount"}}
    short |= {"window": {"length": "1h"}, "limit": {"operator": ">", "value": "2"}, "score": "value * 2 + account"}
    read = Rule.model_validate(short)
    assert check_against_schema(read, SCHEMA) is None
    assert scores_of(raised(read)) == [8, 24]


def test_rules_over_alerts_see_the_score_of_the_alert():
    written = {"rule_id": "sum", "on": "alerts", "group_by": ["kind"], "window": {"length": "1h"}}
    written |= {"aggregate": {"function": "sum", "measure": "alert_score"}, "limit": {"operator": ">", "value": "100"}}
    over = Rule.model_validate(written | {"score": "value - 100"})
    alerts = raised(rule("40 + 10 * payments"), over).alerts.to_pylist()
    assert [(row["value"], row["score"]) for row in alerts if row["rule_id"] == "sum"] == [(110, 10), (180, 80)]


def test_a_score_is_written_as_it_was_read_also_under_new_names():
    read = rule("40 + 10*payments - account")
    assert json.loads(read.model_dump_json())["score"] == "40 + 10*payments - account"
    assert Rule.model_validate_json(read.model_dump_json(by_alias=True)) == read
    assert renamed_rule(read, {"account": "konto", "payments": "x"}).score == parse_score("40 + 10*payments - konto")
    assert read.filter_fields == {"account"}
    assert policy_sentence(read) == "Score 40 + (10 times payments) - account."
    assert policy_sentence(rule(1200)) == "Score 1,200."


@pytest.mark.parametrize("score", ["-1", 1_000_000_001, 1.5, True, None, "", "40 +", "sum(amount)", [5]])
def test_what_is_no_score_is_refused(score, as_worded):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - pydantic's
        rule(score)
    assert as_worded(str(caught.value.errors()[0]["msg"]))


@pytest.mark.parametrize("score", ["paymnts", "payments > 5", "kind", '10 + "account"', "payments + tags[]"])
def test_a_score_that_does_not_fit_is_refused_with_its_column(score, as_worded):
    (field,), reason = check_against_schema(rule(score), SCHEMA)
    assert field == "score"
    assert as_worded(reason)


@pytest.mark.parametrize(
    ("score", "codes"),
    [
        ("payments + before", []),
        ("payments", ["B106"]),
        ("before - before + 0 * payments", []),
        ("1000000000 + payments + abs(before)", []),
        ("1000000000 + payments + coalesce(abs(before), 0)", ["B109"]),
        ("2 - payments + 0 * abs(before)", []),
        ("-payments - abs(before)", ["B109"]),
    ],
)
def test_lint_looks_at_scores(score, codes):
    features = {"payments": {"function": "count", "window": "1h"}, "before": {"function": "previous", "of": "amount"}}
    features["before"]["window"] = "1h"
    assert found({"group_by": ["k"], "features": features, "when": "payments > 1", "score": score}) == codes
