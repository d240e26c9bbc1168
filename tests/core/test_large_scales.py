"""Measures with up to 18 digits after the point, beside others, against fractions."""

import json
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.events.schema import LARGEST_SCALE, MOST_APART, EventSchema, Measure
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN, format_scaled
from buckets.outputs.messages import JsonLines
from tests.laws import examples

FUNCTIONS = ("sum", "avg", "min", "max")


def schema_of(**scales: int) -> EventSchema:
    return EventSchema.model_validate(
        {
            "event_id": "id",
            "event_time": "t",
            "attributes": {"k": "string"},
            "measures": {name: {"scale": scale} for name, scale in scales.items()},
        }
    )


def rule(name: str, function: str, measure: str | None = None, **changes) -> buckets.Rule:
    aggregate = {"function": function} | ({"measure": measure} if measure else {})
    written = {
        "rule_id": name,
        "group_by": ["k"],
        "aggregate": aggregate,
        "window": {"length": "1h"},
        "limit": {"operator": "!=", "value": "0.5"},
    }
    return buckets.Rule.model_validate(written | changes)


def table(**columns) -> pa.Table:
    size = len(next(iter(columns.values())))
    return pa.table({"id": [f"e{row}" for row in range(size)], "t": range(size), "k": ["x"] * size, **columns})


@settings(max_examples=examples(100))
@given(
    st.integers(13, LARGEST_SCALE).flatmap(
        lambda scale: st.tuples(st.just(scale), st.integers(scale - MOST_APART, scale))
    ),
    st.lists(
        st.tuples(st.integers(-(2**59), 2**59), st.sampled_from([0, 1, -1, 2**58, -(2**58), 12345])),
        min_size=1,
        max_size=6,
    ),
)
def test_values_of_any_scales_are_those_of_fractions(scales, amounts):
    large, small = scales
    schema = schema_of(large=large, small=small)
    rules = [rule(f"{function}_{of}", function, of) for function in FUNCTIONS for of in ("large", "small")]
    written = {
        "large": [format_scaled(amount, large) for amount, _ in amounts],
        "small": [format_scaled(amount, small) for _, amount in amounts],
    }
    found = buckets.evaluate(table(**written), [*rules, rule("count", "count")], schema)
    for row in found.evaluations.to_pylist():
        numbers = range(row["position"] + 1)
        if row["rule_id"] == "count":
            assert row["value"] == len(numbers)
            continue
        function, of = row["rule_id"].split("_")
        seen = [Fraction(Decimal(written[of][number])) for number in numbers]
        digits = 10 ** (schema.measures[of].scale + 6)
        mean = Fraction(round(sum(seen) / len(seen) * digits), digits)
        expected = {"sum": sum(seen), "avg": mean, "min": min(seen), "max": max(seen)}[function]
        assert Fraction(row["value"]) == Fraction(row["lower"]) == Fraction(row["upper"]) == expected
    assert len(found.evaluations) == 9 * len(amounts)
    assert len(found.dead_letters) == 0


@pytest.mark.parametrize("value", [INT64_MAX, INT64_MIN])
def test_a_value_of_18_digits_is_written_to_the_last_one(value):
    text, schema = format_scaled(value, 18), schema_of(eth=18)
    evaluator = buckets.Evaluator([rule("sum", "sum", "eth"), rule("avg", "avg", "eth")], schema)
    recorded = evaluator.recorded(table(eth=[text])).evaluations
    rows = [
        json.loads(line) for line in JsonLines(evaluator._rule_set, schema).lines("evaluations", in_order(recorded))
    ]
    assert [row["value"] for row in rows] == [text, f"{text}000000"]
    assert recorded.schema.field("value").type == pa.decimal128(38, 24)


def in_order(rows: pa.Table) -> pa.Table:
    size = len(rows)
    return rows.append_column("source", pa.array(["t"] * size)).append_column("source_order", pa.array([0] * size))


def test_a_sum_beyond_64_bits_is_a_dead_letter_at_18_digits_too():
    found = buckets.evaluate(table(eth=["9.2", "0.1", "-1"]), [rule("sum", "sum", "eth")], schema_of(eth=18))
    assert [letter["position"] for letter in found.dead_letters.to_pylist()] == [1]
    assert found.evaluations["value"].to_pylist() == [Decimal("9.2"), Decimal("8.2")]


def test_scores_of_alerts_are_counted_beside_measures_of_18_digits():
    over = rule("over", "sum", "alert_score", on="alerts")
    found = buckets.evaluate(table(eth=["1", "2"]), [rule("sum", "sum", "eth", score=7), over], schema_of(eth=18))
    values = [row["value"] for row in found.evaluations.to_pylist() if row["rule_id"] == "over"]
    assert values == [7, 14]


def test_scales_that_no_column_has_room_for_are_refused(as_worded):
    assert schema_of(large=18, small=6).largest_scale == 18
    with pytest.raises(ValueError, check=as_worded):
        schema_of(large=18, small=5)
    with pytest.raises(ValueError, check=as_worded):
        Measure(scale=19)


def test_a_measure_that_does_not_round_is_written_as_ever():
    assert Measure(scale=2).model_dump() == {"scale": 2}
    assert Measure.model_validate({"scale": 2, "round": "half_even"}).model_dump() == {"scale": 2, "round": "half_even"}
