"""Conditions that differ in numbers alone are evaluated at once, and each says what it says alone."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.values import feature_rules
from buckets.events.schema import EventSchema
from buckets.rules.prepared import prepare
from buckets.rules.rule import Rule
from tests.laws import examples

SCHEMA = EventSchema.model_validate(
    {
        "name": "payments",
        "version": 1,
        "event_id": "id",
        "event_time": {"field": "time", "unit": "ms"},
        "attributes": {"payer": "string", "kind": "string", "n": "long"},
        "measures": {"amount": {"scale": 2}},
    }
)
FEATURES = {
    "total": {"function": "sum", "of": "amount", "window": "3s"},
    "usual": {"function": "avg", "of": "amount", "window": "5s"},
    "of_a": {"function": "max", "of": "amount", "where": "kind = 'a'", "window": "3s"},
    "other": {"function": "count_distinct", "of": "kind", "window": "3s"},
}
CONDITIONS = (
    "total > {0}",
    "total = {0}",
    "n != {0} AND total <= {1}",
    "NOT (kind = 'b' AND usual >= {0}) OR n < {1}",
    "{0} <= total AND other >= {1}",
    "of_a != {0} OR usual = {1}",
    "NOT (of_a > {0} AND usual < {1})",
    "NOT (kind = 'a' OR total = {0}) AND amount < {1}",
    "total > 2 * usual AND n > {0}",
    "of_a IS NULL OR total IN (1, 2) OR total - {0} > 0",
)
BOUNDS = st.one_of(
    st.decimals(-5, 20, places=1),
    st.sampled_from([Decimal("5.005"), Decimal("1e-30"), Decimal(10**30), Decimal(-(10**30)), Decimal("2.00")]),
)


def rule(number: int, when: str) -> Rule:
    written = {"rule_id": f"r{number}", "group_by": ["payer"], "features": FEATURES, "when": when}
    return Rule.model_validate(written)


@st.composite
def events(draw):
    size = draw(st.integers(1, 12))
    column = st.lists(st.integers(0, 6000), min_size=size, max_size=size)
    return pa.table(
        {
            "id": [f"e{index}" for index in range(size)],
            "time": pa.array([1_700_000_000_000 + time for time in draw(column)], pa.int64()),
            "payer": draw(st.lists(st.sampled_from("pq"), min_size=size, max_size=size)),
            "kind": pa.array(draw(st.lists(st.sampled_from(["a", "b"]), min_size=size, max_size=size)), pa.string()),
            "n": pa.array([time % 7 for time in draw(column)], pa.int64()),
            "amount": pa.array([Decimal(cents % 1500 - 300) / 100 for cents in draw(column)], pa.decimal128(9, 2)),
        }
    )


def fired(rules: list[Rule], table: pa.Table) -> list[tuple[str, str, str, str]]:
    rows = buckets.Evaluator(rules, SCHEMA).recorded(table).alerts.to_pylist()
    return [(row["rule_id"], row["event_id"], row["terms"], row["condition"]) for row in rows]


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.sampled_from(CONDITIONS), BOUNDS, BOUNDS), min_size=2, max_size=12), events())
def test_many_conditions_at_once_say_what_each_says_alone(written, table):
    rules = [rule(number, when.format(f"{one:f}", f"{two:f}")) for number, (when, one, two) in enumerate(written)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_rules, "_MOST_ROWS", 3 * len(table))
        together = fired(rules, table)
    assert sorted(together) == sorted(row for each in rules for row in fired([each], table))


def test_conditions_that_differ_in_their_comparisons_alone_have_one_template():
    alike = ["total > 5 AND other >= 2", "other >= 7 AND total > 1.25", "total > 5 AND other > 2", "2 * total > 5"]
    prepared = prepare([rule(number, when) for number, when in enumerate(alike)])
    assert [template.rules for template in prepared.templates] == [(0, 1, 2), (3,)]
    assert len(prepare([rule(number, f"total > {number}") for number in range(1000)]).templates) == 1
