"""Windows of the last events: as a loop over a list has them, in heads, pages and, behind a longer tail, in buckets."""

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.streams import CARDS, Row, card_stream, table_of
from tests.laws import examples

TEXTS = list("012345678")


def amounts(rows: list[Row]) -> list[Decimal]:
    return [row["amount"] for row in rows if row["amount"] is not None]


def median(values: list[Decimal]) -> Fraction | None:
    ordered = sorted(map(Fraction, values))
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else None


FUNCTIONS: dict[str, tuple[str | None, Callable[[list[Row]], Any]]] = {
    "count": (None, len),
    "sum": ("amount", lambda rows: sum(amounts(rows)) if amounts(rows) else None),
    "min": ("amount", lambda rows: min(amounts(rows), default=None)),
    "max": ("amount", lambda rows: max(amounts(rows), default=None)),
    "first": ("text", lambda rows: rows[0]["text"] if rows else None),
    "median": ("amount", lambda rows: median(amounts(rows))),
    "count_distinct": ("text", lambda rows: len({row["text"] for row in rows})),
}


def rules(last: int, functions: Iterable[str] = FUNCTIONS, seconds: int = 59) -> list[Rule]:
    window = {"last": last, "within": f"{seconds}s"}
    features = {
        name: {"function": name, "window": window} | ({"of": of} if of else {})
        for name, (of, _) in FUNCTIONS.items()
        if name in functions
    }
    features |= {f"{name}_flagged": each | {"where": "flag"} for name, each in features.items()}
    features["all"] = {"function": "sum", "of": "amount", "window": "10m"}
    long = {"rule_id": "long", "group_by": ["card"], "features": features, "when": "count > 0 OR all IS NULL"}
    short = {
        "aggregate": {"function": "sum", "measure": "amount"},
        "limit": {"operator": ">", "value": 3},
        "window": window,
    }
    return [
        Rule.model_validate(each)
        for each in (long, {"rule_id": "short", "group_by": ["card"], "where": "flag"} | short)
    ]


def expected(rows: list[Row], last: int, seconds: int = 59) -> list[dict[str, Any]]:
    """The features at each event; `short` is what the rule in the short form says, of an event to which it applies."""
    found, arrived = [], list[Row]()
    for own in rows:
        arrived.append(own)
        inside = [
            row
            for row in arrived
            if row["card"] == own["card"] and own["time"] - 1_000 * seconds <= row["time"] <= own["time"]
        ]
        inside.sort(key=lambda row: row["time"])
        flagged = [row for row in inside if row["flag"]]
        values = {name: of(inside[-last:]) for name, (_, of) in FUNCTIONS.items()}
        values |= {f"{name}_flagged": of(flagged[-last:]) for name, (_, of) in FUNCTIONS.items()}
        found.append(values | ({"short": FUNCTIONS["sum"][1](flagged[-last:])} if own["flag"] else {}))
    return found


def told(evaluations: list[Row], by_id: dict[str, dict[str, Any]], is_exact: bool = True) -> None:
    for row in evaluations:
        found = by_id.setdefault(row["event_id"], {})
        if row["rule_id"] == "short":
            assert row["exact"] or not is_exact
            found["short"] = row["value"], row["exact"], row["lower"], row["upper"]
            continue
        for term in json.loads(row["terms"] or "[]"):
            if term["name"] != "all":
                assert term["exact"] or not is_exact
                found[term["name"]] = term["value"], term["exact"], term.get("lower"), term.get("upper")


def same(value: Any, right: Any) -> bool:
    return value == right if value is None or right is None else Fraction(value) == Fraction(right)


@settings(max_examples=examples(12))
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 1_100), max_size=6, unique=True).map(sorted),
    st.sampled_from([1, 30, 100, 150, 190, 250, 1_000]),
    st.sampled_from([0.5, 0.01]),
    st.sampled_from([tuple(FUNCTIONS), ("count", "sum", "min", "max"), ("count", "first")]),
    st.sampled_from([59, 300]),
)
def test_the_last_events_are_those_of_a_loop_over_a_list(seed, cuts, last, flagged, functions, seconds):
    """The window takes several pages, or all there are; events come late, and what is older than the tail is folded.

    Some functions have all of these pages read, and others only the one in which the window begins.
    """
    check(card_stream(np.random.default_rng(seed), 1_200, TEXTS, 2_000, flagged), cuts, last, functions, seconds)


@pytest.mark.parametrize("last", [1, 60, 130, 200, 400])
@pytest.mark.parametrize("functions", [tuple(FUNCTIONS), ("count", "sum"), ("count", "first")])
def test_the_page_in_which_the_last_events_begin_is_read(last, functions):
    """In small batches, so that nearly all of the window lies in pages."""
    check(card_stream(np.random.default_rng(5), 900, TEXTS, 2_000), [*range(60, 900, 60)], last, functions, 300)


def check(rows: list[Row], cuts: list[int], last: int, functions: tuple[str, ...], seconds: int) -> None:
    """Compare what comes out with a loop over a list."""
    engine = {
        "late": "evaluate",
        "allowed_lateness": "2s",
        "precision": {"tail": f"{seconds + 4}s", "resolution": "7s"},
    }
    evaluator, found = (
        buckets.Evaluator(rules(last, functions, seconds), CARDS, buckets.EngineSettings.model_validate(engine)),
        {},
    )
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        told(evaluator.recorded(table_of(rows[begin:end], CARDS)).evaluations.to_pylist(), found)
    for row, right in zip(rows, expected(rows, last, seconds), strict=True):
        values = {name: value for name, (value, *_) in found[row["id"]].items()}
        assert len(values) == 2 * len(functions) + row["flag"]
        for name, value in values.items():
            assert same(value, right[name]), (row, name, value, right[name])


@pytest.mark.parametrize("edge", ["include", "exclude", "prorate"])
def test_behind_a_tail_that_was_made_longer_values_lie_within_their_bounds(edge):
    rows, job, found, exact = card_stream(np.random.default_rng(2), 420, TEXTS), None, {}, 0
    rule_set, wanted = RuleSet(0, (), (), {}), [each.model_copy() for each in rules(60)]
    short = [
        Rule.model_validate(json.loads(each.model_dump_json(by_alias=True).replace("59s", "5s"))) for each in wanted
    ]
    arrived: Any = ()
    for tail, now, part in (("5s", short, rows[:300]), ("70s", wanted, rows[300:])):
        precision = {"tail": tail, "resolution": "3s", "edge": edge}
        engine = buckets.EngineSettings.model_validate({"precision": precision, "shards": 1})
        scorer = Scorer(CARDS, engine, evaluations=True)
        job = job or InMemoryJob(scorer)
        job.scorer = scorer
        rule_set = revise(rule_set, changes_between(rule_set.rules, now), CARDS, arrived, 0).rule_set
        results = job.score_batch(table_arrivals(table_of(part, CARDS), CARDS), rule_set)
        arrived, decoder = results.account.arrived, OutputDecoder(rule_set, CARDS, engine)
        found.clear()
        told(decoder.table(EVALUATIONS, results.payloads[EVALUATIONS]).to_pylist(), found, is_exact=False)
    for row, right in zip(rows[300:], expected(rows, 60)[300:], strict=True):
        for name, (value, is_exact, lower, upper) in found[row["id"]].items():
            exact += is_exact
            if is_exact:
                assert same(value, right[name]), (row, name)
            elif lower is not None and right[name] is not None:
                assert Fraction(lower) <= Fraction(right[name]) <= Fraction(upper), (row, name)
    assert 100 < exact < sum(map(len, found.values())) - 100


def test_a_window_of_the_last_events_is_written_as_it_came_and_read_in_english():
    long, short = rules(10)
    assert Rule.model_validate(long.model_dump(mode="json", by_alias=True)) == long
    assert short.model_dump(mode="json", by_alias=True)["window"] == {"last": 10, "within": "59s"}
    before = short.window.model_validate({"last": 1, "within": "1h", "exclude": "current"})
    assert before.model_dump(by_alias=True) == {"last": 1, "within": "1h", "exclude": "current"}
    assert (before.text, before.words) == ("last 1 within 1h before", "the last event within 1h before the event")
    assert short.sentence() == (
        "The sum of amount of events of the same card where flag = TRUE over the last 10 events within 59s is above 3"
    )


@pytest.mark.parametrize(
    "window",
    [
        {"last": 10},
        {"within": "1h"},
        {"last": 0, "within": "1h"},
        {"last": True, "within": "1h"},
        {"last": 10, "within": "1h", "left": "open"},
        {"last": 10, "length": "1h"},
        {"last": 1_000_001, "within": "1h"},
        {"last": 10, "within": "1 hour"},
    ],
)
def test_a_window_of_the_last_events_says_how_many_and_how_old_and_nothing_else(window, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Rule.model_validate(
            {
                "rule_id": "r",
                "group_by": [],
                "features": {"a": {"function": "count", "window": window}},
                "when": "a > 1",
            }
        )


def test_the_last_events_lie_in_the_tail(as_worded):
    feature = {"function": "count", "window": {"last": 10, "within": "2h"}}
    rule = Rule.model_validate({"rule_id": "r", "group_by": ["card"], "features": {"a": feature}, "when": "a > 1"})
    engine = buckets.EngineSettings.model_validate({"precision": {"tail": "1h"}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule], CARDS, engine)
