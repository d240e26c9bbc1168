"""Filters of features that name the event itself, against loops over lists."""

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.rules.feature import Feature
from tests.core.aggregates.oracle import Seen, oracles, rounded
from tests.core.streams import Row, schema_of, streams, table_of
from tests.laws import examples
from tests.oracle import COMPARE

SCHEMA = schema_of(payer="string", bene="string", kind="string", flag="boolean", n="long")
ORACLES = oracles()
STEPS_MS = [0, 1, 1, 500, 500, 1000, 2000, 40_000]
FIELDS = {
    "payer": st.sampled_from("pppq"),
    "bene": st.sampled_from(["p", "b"]),
    "kind": st.sampled_from(["a", "a", "A", "ß", "", None]),
    "flag": st.sampled_from([True, True, False, None]),
    "n": st.sampled_from([-1, 0, 3, None]),
    "amount": st.sampled_from([*map(Decimal, ("1.00", "1.05", "1.09", "2.50", "7.25", "7.30", "-3.10")), None]),
}


def known(test: Callable[..., Any], *values: Any) -> bool:
    """Whether a test is true of values; of a null it is unknown."""
    return None not in values and bool(test(*values))


FILTERS: dict[str, Callable[[Row, Row], bool]] = {
    "amount BETWEEN 0.9 * this.amount AND 1.1 * this.amount": lambda x, this: known(
        lambda a, b: 9 * b <= 10 * a <= 11 * b, x["amount"], this["amount"]
    ),
    "kind <> this.kind": lambda x, this: known(lambda a, b: a != b, x["kind"], this["kind"]),
    "lower(kind) = lower(this.kind) AND amount > 2": lambda x, this: (
        known(lambda a, b: a.lower() == b.lower(), x["kind"], this["kind"]) and known(lambda a: a > 2, x["amount"])
    ),
    "n > this.n OR flag = this.flag": lambda x, this: (
        known(lambda a, b: a > b, x["n"], this["n"]) or known(lambda a, b: a == b, x["flag"], this["flag"])
    ),
    "bene = this.payer": lambda x, this: known(lambda a, b: a == b, x["bene"], this["payer"]),
    "minute(time) <> 13 AND amount > this.amount": lambda x, this: (
        x["time"] // 60_000 % 60 != 13 and known(lambda a, b: a > b, x["amount"], this["amount"])
    ),
    "this.flag AND amount < 5": lambda x, this: known(lambda a, b: a and b < 5, this["flag"], x["amount"]),
}
FUNCTIONS = {
    "count": None, "sum": "amount", "avg": "amount", "min": "n", "max": "amount", "is_first": None,
    "count_distinct": "bene", "first": "n", "previous": "amount", "last": "amount", "time_since_first": None,
    "time_since_previous": None, "stddev": "amount", "decayed_count": None, "decayed_sum": "amount",
    "entropy": "bene",
}  # fmt: skip


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    function = draw(st.sampled_from(list(FUNCTIONS)))
    end = draw(st.sampled_from([{}, {}, {}, {"exclude": "current"}, {"offset": "1s"}]))
    window = {"length": draw(st.sampled_from(["2s", "30s"])), "left": draw(st.sampled_from(["open", "closed"]))}
    found = {"function": function, "window": window | end, "where": draw(st.sampled_from(sorted(FILTERS)))}
    group_by = draw(st.sampled_from([None, None, ["bene"], []]))
    found |= {} if group_by is None else {"group_by": group_by}
    found |= {"half_life": "900ms"} if function.startswith("decayed") else {}
    return found | ({} if FUNCTIONS[function] is None else {"of": FUNCTIONS[function]})


def expected(rows: list[Row], at: int, feature: Feature, fields: tuple[str, ...]) -> Any:
    """A feature at a row, by a loop over the rows up to it."""
    this, window = rows[at], feature.window
    inside = [x for x in rows[: at + 1] if all(x[name] == this[name] for name in fields)]
    first_ms, last_ms = this["time"] - window.reach_ms, this["time"] - window.offset_ms
    inside = [x for x in inside if first_ms <= x["time"] <= last_ms and (window.exclude is None or x is not this)]
    passes = FILTERS[feature.where.text]
    counted = [x for x in inside if passes(x, this)]
    if feature.of is not None:
        counted = [x for x in counted if x[feature.of] is not None]
    before = [x for x in counted if x is not this]
    exact = [x | {"amount": None if x["amount"] is None else Fraction(x["amount"])} for x in (this, *counted, *before)]
    seen = Seen(
        exact[0], exact[1 : 1 + len(counted)], exact[1 + len(counted) :], feature.of, feature.p, feature.half_life or 1
    )
    value = ORACLES[feature.function].value(seen)
    if value is None or isinstance(value, bool | str):
        return value
    return rounded(value, ORACLES[feature.function].digits(seen.scale))


@settings(max_examples=examples(1000))
@given(
    st.lists(features(), min_size=2, max_size=6),
    streams(STEPS_MS, FIELDS, most=30),
    st.lists(st.integers(1, 25), max_size=3),
    st.sampled_from(["all", "1h"]),
)
def test_events_are_compared_with_the_event_itself(written, rows, cuts, tail):
    named = {f"f{index}": feature for index, feature in enumerate(written)}
    when = " OR ".join(f"{name} IS NULL" for name in named)
    rule = buckets.Rule.model_validate({"rule_id": "r", "group_by": ["payer"], "features": named, "when": when})
    written_engine = {"precision": {"tail": tail}, "allowed_lateness": "0ms", "shards": 2}
    engine = buckets.EngineSettings.model_validate(written_engine)
    evaluator, begin = buckets.Evaluator([rule], SCHEMA, engine), 0
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        for found in evaluator.recorded(table_of(rows[begin:end], SCHEMA)).evaluations.to_pylist():
            at = begin + found["position"]
            for term in json.loads(found["terms"]):
                each = next(each for each in rule.named_features() if each.name == term["name"])
                value = expected(rows, at, each.feature, each.fields)
                is_plain = value is None or isinstance(value, bool)
                assert term["value"] == value if is_plain else Fraction(term["value"]) == value, (term, rows[at])
                assert term["exact"]
        begin = end


@settings(max_examples=examples(400))
@given(features(), st.sampled_from([">", ">=", "<", "=", "!="]), st.integers(-3, 9), streams(STEPS_MS, FIELDS, most=30))
def test_a_single_feature_is_compared_with_a_number(written, operator, limit, rows):
    rule = {"rule_id": "r", "group_by": ["payer"], "features": {"f": written}}
    is_truth = written["function"] == "is_first"
    rule["when"] = "f" if is_truth else f"f {operator} {limit}"
    read = buckets.Rule.model_validate(rule)
    (named,) = read.named_features()
    alerts = buckets.evaluate(table_of(rows, SCHEMA), [read], SCHEMA).alerts
    fired = set(alerts["position"].to_pylist())
    for at in range(len(rows)):
        value = expected(rows, at, named.feature, named.fields)
        holds = value is True if is_truth else value is not None and COMPARE[operator](value, limit)
        assert (at in fired) == holds, (at, value)


def rule_with(where: str, **feature: Any) -> dict[str, Any]:
    written = {"function": "count", "window": "1h", "where": where} | feature
    return {"rule_id": "r", "group_by": ["payer"], "features": {"f": written}, "when": "f > 1"}


@pytest.mark.parametrize(
    "written",
    [
        rule_with("amount > this.amonut"),
        rule_with("amount > this.kind"),
        rule_with("time > this.time"),
        rule_with("minute(time) = this.n"),
        rule_with("hour(this.time) = 1"),
        rule_with("alert_score > this.alert_score", on="alerts"),
        rule_with("amount > this.amount", function="percentile", of="amount", p=5),
        rule_with("amount > this.amount", window={"last": 3, "within": "1h"}),
        {**rule_with("kind = 'a'"), "where": "amount > this.amount"},
        {**rule_with("kind = 'a'"), "when": "f > this.amount"},
    ],
)
def test_what_cannot_be_compared_with_the_event_is_refused(written, as_worded):
    def read() -> None:
        buckets.Evaluator([buckets.Rule.model_validate(written)], SCHEMA)

    with pytest.raises((ValueError, buckets.BucketsError), check=as_worded):
        read()


def test_a_window_beyond_the_tail_is_refused(as_worded):
    rule = buckets.Rule.model_validate(rule_with("amount > this.amount", window="2h"))
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule], SCHEMA, buckets.EngineSettings.model_validate({"precision": {"tail": "1h"}}))


def test_a_sum_beyond_64_bits_is_a_dead_letter_and_all_else_is_scored():
    largest, amounts = Decimal("92233720368547758.07"), pa.decimal128(20, 2)
    rows = {
        "id": ["a", "b", "c"],
        "time": [1, 2, 3],
        "k": ["x"] * 3,
        "amount": pa.array([largest] * 2 + [Decimal(1)], amounts),
    }
    schema = {
        "event_id": "id",
        "event_time": "time",
        "attributes": {"k": "string"},
        "measures": {"amount": {"scale": 2}},
    }
    features = {
        "alike": {"function": "sum", "of": "amount", "window": "1h", "where": "amount = this.amount"},
        "fading": {"function": "decayed_sum", "of": "amount", "half_life": "1h", "window": "1h"},
        "plain": {"function": "count", "window": "1h"},
    }
    rules = [
        buckets.Rule.model_validate({"rule_id": name, "group_by": ["k"], "features": {"f": each}, "when": "f > 0"})
        for name, each in features.items()
    ]
    schema = buckets.EventSchema.model_validate(
        schema | {"event_time": {"field": "time", "earliest": "1900-01-01T00:00:00Z"}}
    )
    results = buckets.Evaluator(rules, schema).recorded(pa.table(rows))
    results.account.check()
    scored = {name: [] for name in features}
    for each in results.evaluations.to_pylist():
        scored[each["rule_id"]].append(each["event_id"])
    assert scored == {"alike": ["a", "c"], "fading": ["a"], "plain": ["a", "b", "c"]}
    letters = {each["position"]: each["reason"] for each in results.dead_letters.to_pylist()}
    assert set(letters) == {1, 2}
    assert all("has no result" in reason and "\n" not in reason for reason in letters.values())


def test_a_mapping_does_not_know_the_event_itself(as_worded):
    with pytest.raises(ValueError, check=as_worded):
        buckets.Rule.model_validate(
            {
                "rule_id": "r",
                "group_by": ["k"],
                "features": {"f": {"function": "count", "window": "1h", "where": {"k": "this.k"}}},
                "when": "f > 0",
            }
        )
