"""Fields that some events do not have: a rule sees what it has the fields for, and takes nothing from other rules."""

import json
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.aggregates.plain import CountedEvents
from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from buckets.outputs import columns
from buckets.rules.filter import write_filter
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from buckets.rules.window import Window
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import Pipeline
from tests.laws import examples

GROUPINGS = [["payer"], ["kind"], ["payer", "kind"], ["account"], []]
LENGTHS = ["1ms", "5ms", "20ms", "100ms"]
LIMITS = st.one_of(st.integers(-5, 5).map(str), st.just("0.2625"))
"""Amounts have fewer digits than the last: every one of them is different from it."""
FILTERS = [None, None, {"vip": True}, "kind <> 'a'", "amount > 0"]
ATTRIBUTES = ("payer", "kind", "account", "vip")
Row = dict[str, Any]


@st.composite
def plain_rules(draw, rule_id: str) -> Rule:
    function = draw(st.sampled_from(SHORT_FUNCTIONS))
    return rule(
        rule_id,
        group_by=draw(st.sampled_from(GROUPINGS)),
        where=draw(st.sampled_from(FILTERS)),
        aggregate={"function": function, "measure": draw(st.sampled_from(["amount", "fee"]))},
        window={"length": draw(st.sampled_from(LENGTHS)), "left": draw(st.sampled_from(["closed", "open"]))},
        limit={"operator": draw(st.sampled_from(["<", ">=", "!="])), "value": draw(LIMITS)},
    )


@st.composite
def features(draw) -> dict[str, Any]:
    function = draw(st.sampled_from(list(AGGREGATES)))
    takes = AGGREGATES[function].takes
    fields = [name for name, kind in OF.items() if kind in takes]
    written = {
        "function": function,
        "window": draw(st.sampled_from([*LENGTHS, {"last": 1, "within": "20ms"}, {"last": 3, "within": "100ms"}])),
        "of": draw(st.sampled_from(fields)) if fields else None,
        "where": draw(st.sampled_from(FILTERS)),
        "group_by": draw(st.sampled_from([None, None, *GROUPINGS])),
        "p": "50" if AGGREGATES[function].parameter == "p" else None,
        "half_life": "10ms" if AGGREGATES[function].parameter == "half_life" else None,
    }
    if AGGREGATES[function].needs_steps:
        steps = ["kind = 'a'", {"large": "amount > 1"}, "vip OR fee > 0"]
        written |= {"steps": steps, "without": draw(st.sampled_from([None, "account = 1"])), "where": None}
        if AGGREGATES[function].parameter == "within":
            written |= {"steps": steps[:1], "without": "account = 1", "within": draw(st.sampled_from(["2ms", "30ms"]))}
            written["window"] = draw(st.sampled_from(["40ms", "1s"]))
    return {name: value for name, value in written.items() if value is not None}


TESTS = {"number": "{0} > 1", "boolean": "{0}", "text": "{0} = kind"}
OF = {"amount": "measure", "fee": "measure", "account": "long", "kind": "string", "vip": "boolean"}


@st.composite
def feature_rules(draw, rule_id: str) -> Rule:
    named = {f"f{index}": each for index, each in enumerate(draw(st.lists(features(), min_size=1, max_size=3)))}
    kinds = {name: AGGREGATES[each["function"]].kind(OF.get(each.get("of"))) for name, each in named.items()}
    tests = [TESTS[kind].format(name) for name, kind in kinds.items()]
    return Rule.model_validate(
        {
            "rule_id": rule_id,
            "group_by": draw(st.sampled_from(GROUPINGS)),
            "features": named,
            "when": " OR ".join(tests),
        }
    )


@st.composite
def rule_lists(draw) -> list[Rule]:
    kinds = draw(st.lists(st.booleans(), min_size=1, max_size=5))
    return [draw(feature_rules(f"r{n}") if is_long else plain_rules(f"r{n}")) for n, is_long in enumerate(kinds)]


@st.composite
def payments(draw) -> list[Row]:
    """Payments at different times, in order; any field but id and time may be null."""

    def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
        return st.one_of(values, values, values, st.none())

    fields = {
        "payer": maybe(st.sampled_from(["p", "q"])),
        "kind": maybe(st.sampled_from(["a", "b"])),
        "account": maybe(st.integers(1, 3)),
        "vip": maybe(st.booleans()),
        "amount": maybe(st.integers(-300, 300).map(lambda cents: Decimal(cents).scaleb(-2))),
        "fee": maybe(st.integers(-3, 3)),
        "step": st.sampled_from([1, 1, 2, 5, 30]),
    }
    rows, at = [], 1_000
    for position, row in enumerate(draw(st.lists(st.fixed_dictionaries(fields), min_size=8, max_size=30)), 1):
        at += row.pop("step")
        rows.append(row | {"id": f"e{position}", "at": at, "position": position})
    return rows


def run(rules: list[Rule], rows: list[Row], cuts: list[int] = (), shards: int = 3, **engine: Any) -> Pipeline:
    pipeline = Pipeline(first_rule_set(rules), SCHEMA, shards=shards, **engine)
    ends = sorted({0, len(rows), *(min(each, len(rows)) for each in cuts)})
    for start, end in pairwise(ends):
        pipeline.batch([rows[start:end]])
    return pipeline


def results(pipeline: Pipeline) -> dict[str, list[Row]]:
    """The evaluations and alerts of each rule, in order."""
    found: dict[str, list[Row]] = {}
    for output in (columns.EVALUATIONS, columns.ALERTS):
        for row in pipeline.output(output):
            told = {name: value for name, value in row.items() if name != "ruleset_version"}
            found.setdefault(row["rule_id"], []).append(told | {"output": output})
    for rows in found.values():
        rows.sort(key=lambda row: (row["output"], row["position"]))
    return found


CUTS = st.lists(st.integers(0, 30), max_size=4)


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(rule_lists(), payments(), CUTS, st.integers(1, 4))
def test_each_rule_finds_what_it_finds_alone(rules, rows, cuts, shards):
    together = results(run(rules, rows, cuts, shards))
    for each in rules:
        alone = results(run([each], rows))
        assert together.get(each.rule_id, []) == alone.get(each.rule_id, [])


def value_at(fields: tuple[str, ...], row: Row, rows: list[Row], window: Window, of: str | None, counts) -> list[Row]:
    """The payments of the same key in the window that count and have a value."""
    same = [each for each in rows if all(each[name] == row[name] is not None for name in fields)]
    inside = [each for each in same if row["at"] - window.length_ms <= each["at"] <= row["at"]]
    counted = [each for each in inside if counts(each)][-window.last :]
    return [each for each in counted if of is None or each[of] is not None]


PASSES = {
    "None": lambda row: True,
    "vip": lambda row: row["vip"] is True,
    "kind <> 'a'": lambda row: row["kind"] == "b",
    "amount > 0": lambda row: row["amount"] is not None and row["amount"] > 0,
}


def steps_of(row: Row, has_without: bool) -> tuple[bool, ...]:
    """Which steps of the sequences above a payment passes, and whether it must not come between."""
    is_large, has_fee = ((row[name] or 0) > least for name, least in (("amount", 1), ("fee", 0)))
    return row["kind"] == "a", is_large, row["vip"] is True or has_fee, has_without and row["account"] == 1


def passes(where: Any):
    return PASSES["vip" if isinstance(where, dict) else str(where)]


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.integers(0, 9).flatmap(lambda n: feature_rules(f"r{n}")), payments(), CUTS)
def test_a_feature_leaves_out_what_has_no_value_and_is_null_outside_of_its_groups(each, rows, cuts):
    found = {row["event_id"]: json.loads(row["terms"]) for row in run([each], rows, cuts).output(columns.EVALUATIONS)}
    seen = [row for row in rows if all(row[name] is not None for name in each.group_by)]
    assert set(found) == {row["id"] for row in seen}
    for row in seen:
        for named, term in zip(each.named_features(), found[row["id"]], strict=True):
            feature = named.feature
            if any(row[name] is None for name in named.fields):
                assert (term["value"], term["exact"], term["count"], term["warm"]) == (None, True, 0, True)
                continue
            of = None if feature.aggregate.by_value else feature.of
            counts = passes(None if feature.where is None else write_filter(feature.where))
            came = [other for other in rows if other["at"] <= row["at"]]
            counted = value_at(named.fields, row, came, feature.window, of, counts)
            scale = 2 if of == "amount" else 0
            values = [None if of is None else scaled(other[of], scale) for other in counted]
            if feature.steps:
                values = [steps_of(other, feature.without is not None) for other in counted]
                if len(feature.steps) == 1:
                    values = [(is_first, is_between) for is_first, *_, is_between in values]
            own = next((index for index, other in enumerate(counted) if other is row), None)
            events = CountedEvents([other["at"] for other in counted], values, own, row["at"])
            expected = feature.aggregate.plain(events, scale).shown
            said = term["value"]
            assert term["exact"]
            is_plain = said is None or isinstance(said, bool) or "type" in term
            assert said == expected if is_plain else Decimal(said) == expected


def scaled(value: Any, scale: int) -> Any:
    return int(value.scaleb(scale)) if isinstance(value, Decimal) else value


@settings(max_examples=examples(40))
@given(rule_lists(), payments(), CUTS)
def test_strict_is_as_if_what_lacks_a_field_had_not_come(rules, rows, cuts):
    needed = first_rule_set(rules).needed_fields
    whole = [row for row in rows if all(row[name] is not None for name in needed)]
    strict = run(rules, rows, cuts, nulls="strict")
    assert results(strict) == results(run(rules, whole))
    dead = [row["position"] for row in strict.output(columns.DEAD_LETTERS)]
    assert dead == [row["position"] for row in rows if row not in whole]


@settings(max_examples=examples(40))
@given(rule_lists(), payments(), CUTS)
def test_every_group_counts_the_events_that_do_not_belong_to_it(rules, rows, cuts):
    pipeline = run(rules, rows, cuts)
    counted: Counter[str] = Counter()
    for account in pipeline.accounts:
        assert not any(group.balance for group in account.groups)
        counted.update({group.group_id: group.no_key for group in account.groups})
    for group in first_rule_set(rules).groups:
        lacking = sum(any(row[name] is None for name in group.fields) for row in rows)
        assert counted[group.group_id] == lacking


ROW = {"id": "a", "at": 1, "payer": "p", "kind": "a", "amount": Decimal(1), "fee": 1}


def test_an_event_without_a_field_of_one_rule_is_seen_by_the_other():
    rules = [rule("cards", limit={"operator": ">", "value": "1"}), rule("kinds", group_by=["kind"], measure=None)]
    rows = [ROW, ROW | {"id": "b", "at": 2, "kind": None}]
    pipeline = run(rules, rows)
    assert [(row["rule_id"], row["event_id"]) for row in pipeline.output(columns.ALERTS)] == [("cards", "b")]
    cards, kinds = pipeline.accounts[-1].groups
    assert (cards.no_key, cards.evaluated, kinds.no_key, kinds.evaluated) == (0, 2, 1, 1)
    assert pipeline.output(columns.DEAD_LETTERS) == []


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max"])
@pytest.mark.parametrize("operator", ["<", "!="])
def test_an_aggregate_of_nothing_is_null_and_never_fires(function, operator):
    of_amount = {"function": function, "measure": "amount"}
    rules = [rule("r", aggregate=of_amount, limit={"operator": operator, "value": "100"}), rule("n", measure=None)]
    amounts = [("a", 1, None), ("b", 2, Decimal(3)), ("c", 3, None)]
    rows = [ROW | {"id": name, "at": at, "amount": amount} for name, at, amount in amounts]
    found = [row for row in run(rules, rows).output(columns.EVALUATIONS) if row["rule_id"] == "r"]
    assert [(row["value"], row["lower"], row["upper"], row["count"], row["fired"]) for row in found] == [
        (None, None, None, 0, False), (3, 3, 3, 1, True), (3, 3, 3, 1, True)
    ]  # fmt: skip
    counts = [row["value"] for row in run(rules, rows).output(columns.EVALUATIONS) if row["rule_id"] == "n"]
    assert counts == [1, 2, 3]
