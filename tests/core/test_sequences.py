"""Sequences of steps, against loops over lists."""

import json
from itertools import combinations
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.lint.lint import look
from buckets.lint.subject import Subject
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.change import changes_between
from buckets.rules.feature import Feature
from buckets.rules.flink_message import check_against_schema
from buckets.rules.renaming import renamed_rule
from buckets.rules.revision import revise
from buckets.rules.rule_set import RuleSet
from tests.laws import examples

SCHEMA = buckets.EventSchema.model_validate(
    {"event_id": "id", "event_time": "time", "attributes": {"k": "string", "kind": "string", "flag": "boolean"},
     "measures": {"amount": {"scale": 0}}}
)  # fmt: skip
Row = dict[str, Any]
STEPS_MS = [0, 0, 1, 400, 999, 1_000, 1_001, 3_000, 60_000, -1, -700, -2_500]
SEQUENCES: dict[str, dict[str, Any]] = {
    "two": {"step_field": "kind", "steps": ["a", "b"]},
    "three": {"step_field": "kind", "steps": ["a", "b", {"c": "amount > 1"}]},
    "without": {"step_field": "kind", "steps": ["a", "b", "c"], "without": "d"},
    "repeated": {"step_field": "kind", "steps": ["a", "a", "a", "b"], "without": "b"},
    "filters": {
        "steps": ["flag", {"large": "amount >= 2"}, "kind IN ('a', 'b')"],
        "without": "kind = 'c' AND NOT flag",
    },
    "itself": {"steps": ["amount > 0", "flag", "amount > 0"], "without": "flag AND kind = 'd'"},
}
WINDOWS: list[Any] = [
    {"length": "3s"},
    {"length": "3s", "left": "open"},
    {"last": 4, "within": "10s"},
    {"session": "1s", "within": "10s"},
]


def rule(window: dict[str, Any], **more: Any) -> buckets.Rule:
    features = {name: {"function": "sequence", "window": window, **steps} for name, steps in SEQUENCES.items()}
    features["minute"] = {"function": "count", "window": "60s"}
    written = {"rule_id": "r", "group_by": ["k"], "features": features, "when": "minute >= 0 OR two"}
    return buckets.Rule.model_validate(written | more)


def large(row: Row, least: int) -> bool:
    return row["amount"] is not None and row["amount"] >= least


TESTS: dict[str, tuple[list[Any], Any]] = {
    "two": ([lambda row: row["kind"] == "a", lambda row: row["kind"] == "b"], lambda row: False),
    "three": (
        [
            lambda row: row["kind"] == "a",
            lambda row: row["kind"] == "b",
            lambda row: row["kind"] == "c" and large(row, 2),
        ],
        lambda row: False,
    ),
    "without": (
        [lambda row, kind=kind: row["kind"] == kind for kind in "abc"],
        lambda row: row["kind"] == "d",
    ),
    "repeated": (
        [lambda row, kind=kind: row["kind"] == kind for kind in "aaab"],
        lambda row: row["kind"] == "b",
    ),
    "filters": (
        [lambda row: row["flag"], lambda row: large(row, 2), lambda row: row["kind"] in ("a", "b")],
        lambda row: row["kind"] == "c" and not row["flag"],
    ),
    "itself": (
        [lambda row: large(row, 1), lambda row: row["flag"], lambda row: large(row, 1)],
        lambda row: row["flag"] and row["kind"] == "d",
    ),
}


def inside(arrived: list[Row], row: Row, window: dict[str, Any]) -> list[Row]:
    """The events of a row's window by time and arrival; the row, which is the last."""
    earlier = sorted((x for x in arrived if x is not row and x["time"] <= row["time"]), key=lambda x: x["time"])
    rows = [*earlier, row]
    if "session" in window:
        first = len(rows) - 1
        while first > 0 and rows[first]["time"] - rows[first - 1]["time"] <= 1_000:
            first -= 1
        rows = rows[first:]
    reach_ms = 3_000 if "length" in window else 10_000
    rows = [x for x in rows if x["time"] >= row["time"] - reach_ms + (window.get("left") == "open")]
    return rows[-4:] if "last" in window else rows


def is_last_step(rows: list[Row], name: str) -> bool:
    """Whether any choice of events is the sequence, all of which are tried."""
    steps, without = TESTS[name]
    if not steps[-1](rows[-1]):
        return False
    for chosen in combinations(range(len(rows) - 1), len(steps) - 1):
        is_chain = all(step(rows[at]) for step, at in zip(steps[:-1], chosen, strict=True))
        if is_chain and not any(map(without, rows[chosen[0] + 1 : -1])):
            return True
    return False


STEPS = st.tuples(
    st.sampled_from(STEPS_MS), st.sampled_from("xxy"), st.sampled_from(["a", "a", "b", "b", "c", "d", None]),
    st.sampled_from([0, 1, 2, 3, None]), st.booleans(),
)  # fmt: skip


@settings(max_examples=examples(400))
@given(
    st.sampled_from(WINDOWS),
    st.lists(STEPS, min_size=5, max_size=30),
    st.lists(st.integers(1, 30), max_size=4),
    st.sampled_from(["all", "10s"]),
    st.sampled_from(["add", "evaluate"]),
    st.sampled_from([{}, {"where": "kind = 'b' OR amount > 1"}]),
)
def test_an_event_is_the_last_step_if_some_choice_of_events_is_the_sequence(window, steps, cuts, tail, late, where):
    rows, clock_ms = [], 1_700_000_000_000
    for number, (step_ms, key, kind, amount, flag) in enumerate(steps):
        time_ms = clock_ms + step_ms
        rows.append({"id": f"e{number}", "time": time_ms, "k": key, "kind": kind, "amount": amount, "flag": flag})
        clock_ms = max(clock_ms, time_ms)
    precision = {"tail": tail} | ({} if tail == "all" else {"resolution": "1s"})
    written = {"precision": precision, "allowed_lateness": "0ms" if tail != "all" else "3s", "late": late}
    engine = buckets.EngineSettings.model_validate(written)
    evaluator, begin, seen = buckets.Evaluator([rule(window, **where)], SCHEMA, engine), 0, 0
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        for found in evaluator.recorded(events(rows[begin:end])).evaluations.to_pylist():
            at = begin + found["position"]
            of_window = inside([x for x in rows[: at + 1] if x["k"] == rows[at]["k"]], rows[at], window)
            for term in json.loads(found["terms"]):
                if term["name"] in TESTS:
                    assert term["value"] == is_last_step(of_window, term["name"]), (term, rows[at])
                    assert term["exact"]
                    seen += 1
        begin = end
    assert seen or where or late == "add"


def stream(seed: int, size: int, lateness_ms: int) -> list[Row]:
    random, rows, clock_ms = np.random.default_rng(seed), [], 1_000_000
    for number in range(size):
        clock_ms += int(random.integers(0, 300))
        is_late = random.random() < 0.1
        rows.append(
            {
                "id": f"e{number}",
                "time": clock_ms - (int(random.integers(0, lateness_ms)) if is_late else 0),
                "k": "x" if random.random() < 0.9 else "y",
                "kind": str(random.choice(list("abcdefgh"))),
                "amount": int(random.integers(0, 4)),
                "flag": bool(random.random() < 0.05),
            }
        )
    return rows


def events(rows: list[Row]) -> pa.Table:
    kinds = {"time": pa.int64(), "amount": pa.decimal128(10, 0), "flag": pa.bool_(), "kind": pa.string()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]})


def duck_says(rows: list[Row], reach_ms: int) -> list[bool]:
    """Whether DuckDB finds a, b and c in this order without a flagged event between, at each event."""
    numbered = events(rows).append_column("at", pa.array(range(len(rows))))
    query = f"""
        with came as (select k, "time" as t, "at", kind, flag from numbered)
        select exists(
            from came a join came b on a.k = b.k and (a.t, a."at") < (b.t, b."at")
            where a.kind = 'a' and b.kind = 'b' and own.kind = 'c' and a.k = own.k
            and (b.t, b."at") < (own.t, own."at") and a."at" < own."at" and b."at" < own."at"
            and a.t >= own.t - {reach_ms}
            and not exists(
                from came d where d.k = own.k and d.flag and d."at" < own."at"
                and (d.t, d."at") > (a.t, a."at") and (d.t, d."at") < (own.t, own."at")
            )
        ) from came own order by own."at"
    """
    with duckdb.connect() as connection:
        connection.register("numbered", numbered)
        return [bool(found) for (found,) in connection.sql(query).fetchall()]


def long_rule(seconds: int, rule_id: str = "r") -> buckets.Rule:
    steps = {"steps": ["kind = 'a'", "kind = 'b'", "kind = 'c'"], "without": "flag"}
    features = {"found": {"function": "sequence", **steps, "window": f"{seconds}s"}}
    features["all"] = {"function": "count", "window": "10m"}
    written = {"rule_id": rule_id, "group_by": ["k"], "features": features, "when": "found OR all > 0"}
    return buckets.Rule.model_validate(written)


def found_terms(evaluations: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["event_id"]: json.loads(row["terms"])[0] for row in evaluations.to_pylist()}


@settings(max_examples=examples(8))
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 1_100), max_size=6, unique=True).map(sorted),
    st.sampled_from([3, 20, 59, 300]),
)
def test_duckdb_finds_the_same_sequences_where_windows_take_several_pages(seed, cuts, seconds):
    """Events come late, and what is older than the tail is folded."""
    rows, found = stream(seed, 1_200, 2_000), {}
    precision = {"tail": f"{seconds + 4}s", "resolution": "7s"}
    engine = buckets.EngineSettings.model_validate(
        {"late": "evaluate", "allowed_lateness": "2s", "precision": precision}
    )
    evaluator = buckets.Evaluator([long_rule(seconds)], SCHEMA, engine)
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        found |= found_terms(evaluator.recorded(events(rows[begin:end])).evaluations)
    said = duck_says(rows, seconds * 1_000)
    assert [found[row["id"]]["value"] for row in rows] == said
    assert all(term["exact"] for term in found.values())
    assert 5 < sum(said) < 600


def test_behind_a_tail_that_was_made_longer_a_sequence_is_known_or_may_be_there():
    rows, found, arrived, job = stream(2, 600, 1), {}, (), None
    rule_set: RuleSet = RuleSet(0, (), (), {})
    for tail, seconds, part in (("5s", 5, rows[:400]), ("70s", 59, rows[400:])):
        precision = {"tail": tail, "resolution": "3s"}
        engine = buckets.EngineSettings.model_validate({"precision": precision, "shards": 1})
        scorer = Scorer(SCHEMA, engine, evaluations=True)
        job = job or InMemoryJob(scorer)
        job.scorer = scorer
        changes = changes_between(rule_set.rules, [long_rule(seconds)])
        rule_set = revise(rule_set, changes, SCHEMA, arrived, 0).rule_set
        results = job.score_batch(table_arrivals(events(part), SCHEMA), rule_set)
        arrived, decoder = results.account.arrived, OutputDecoder(rule_set, SCHEMA, engine)
        found = found_terms(decoder.table(EVALUATIONS, results.payloads[EVALUATIONS]))
    exact = [found[row["id"]]["exact"] for row in rows[400:]]
    for row, right in zip(rows[400:], duck_says(rows, 59_000)[400:], strict=True):
        term = found[row["id"]]
        assert term["value"] == right if term["exact"] else (term["lower"], term["upper"]) == (False, True)
    assert 0 < exact.count(False) < 50
    assert all(is_exact or row["kind"] == "c" for row, is_exact in zip(rows[400:], exact, strict=True))


def test_a_sequence_of_alerts_is_one_of_rules():
    written = [
        {"rule_id": "small", "group_by": ["k"], "features": {"n": {"function": "count", "window": "1s"}},
         "where": "amount = 1", "when": "n > 0"},
        {"rule_id": "large", "group_by": ["k"], "features": {"n": {"function": "count", "window": "1s"}},
         "where": "amount = 3", "when": "n > 0"},
        {"rule_id": "both", "on": "alerts", "group_by": ["k"], "when": "s", "features": {
            "s": {"function": "sequence", "step_field": "alert_rule", "steps": ["small", "large"], "window": "10s"}}},
    ]  # fmt: skip
    rows = [
        {"id": f"e{at}", "time": 1_000_000 + at, "k": key, "kind": None, "amount": amount, "flag": False}
        for at, (key, amount) in enumerate([("x", 3), ("x", 1), ("y", 3), ("x", 2), ("x", 3)])
    ]
    evaluator = buckets.Evaluator(list(map(buckets.Rule.model_validate, written)), SCHEMA)
    alerts = evaluator.recorded(events(rows)).alerts.to_pylist()
    (both,) = [alert for alert in alerts if alert["rule_id"] == "both"]
    assert both["event_id"] == "e4"
    assert json.loads(both["terms"])[0] | {"count": 1} == {
        "name": "s", "function": "sequence", "steps": "alert_rule small, then large", "window": "10s", "value": True,
        "exact": True, "count": 1, "warm": True,
    }  # fmt: skip


def sequence(**written: Any) -> dict[str, Any]:
    return {"function": "sequence", "steps": ["a", "b"], "step_field": "kind", "window": "1h"} | written


@pytest.mark.parametrize(
    "written",
    [
        {"function": "sequence", "window": "1h"},
        {"function": "count", "window": "1h", "steps": ["flag", "flag"]},
        {"function": "count", "window": "1h", "without": "flag"},
        sequence(where="flag"),
        sequence(of="kind"),
        sequence(window={"length": "1h", "exclude": "current"}),
        sequence(window={"length": "1h", "offset": "1h"}),
        sequence(steps=["a"]),
        sequence(steps=["a"] * 11),
        sequence(steps=["a", {"b": "amount > 1", "c": "flag"}]),
        sequence(steps=["a", 3]),
        sequence(steps=["a", " "]),
        sequence(steps=["a", "b"], without="kind = 'c'"),
        sequence(steps=["a", {"b": "amount >"}]),
        sequence(steps=["a", {"b": "1 = 1) OR (1 = 1"}]),
        sequence(steps=["a", {"b": "amount > this.amount"}]),
        sequence(step_field=None, steps=["flag", "change address"]),
    ],
)
def test_a_sequence_that_makes_no_sense_is_refused(written, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Feature.model_validate(written)


@pytest.mark.parametrize(
    ("written", "location"),
    [
        (sequence(step_field="flag"), ("features", "s", "step_field")),
        (sequence(steps=["a", {"b": "amont > 1"}]), ("features", "s", "steps", 1)),
        (sequence(without={"c": "nothing"}), ("features", "s", "without")),
        (sequence(step_field=None), ("features", "s", "steps", 0)),
    ],
)
def test_steps_that_do_not_fit_the_event_schema_are_refused(written, location):
    rule = buckets.Rule.model_validate({"rule_id": "r", "group_by": ["k"], "features": {"s": written}, "when": "s"})
    fault = check_against_schema(rule, SCHEMA)
    assert fault is not None
    assert fault[0] == location


def test_a_sequence_is_written_as_it_was_and_said_in_words():
    written = sequence(steps=["a", {"b": "amount > 500"}], without="c")
    described = {"rule_id": "r", "group_by": ["k"], "where": "flag", "features": {"s": written}, "when": "s"}
    rule = buckets.Rule.model_validate(described)
    assert rule.features["s"].model_dump(mode="json", by_alias=True)["steps"] == written["steps"]
    assert buckets.Rule.model_validate_json(rule.model_dump_json(by_alias=True)) == rule
    assert rule.sentence() == (
        "For events of the same k where flag = TRUE: s is true; s is whether the event completes the sequence "
        "kind a, then b (amount > 500), without c between over the last 1h"
    )


def test_a_sequence_beyond_the_tail_is_refused(as_worded):
    engine = buckets.EngineSettings.model_validate({"precision": {"tail": "2s", "resolution": "1s"}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule({"length": "3s"})], SCHEMA, engine)


def test_a_step_field_is_a_text():
    written = {"rule_id": "r", "group_by": ["k"], "features": {"s": sequence(step_field="kin")}, "when": "s"}
    assert check_against_schema(buckets.Rule.model_validate(written), SCHEMA) == (
        ("features", "s", "step_field"),
        "'kin' is not an attribute of event schema 'event' that is a text",
    )


def test_steps_follow_the_names_of_fields():
    def named(kind: str, amount: str) -> buckets.Rule:
        by_value = sequence(step_field=kind, steps=["a", {"b": f"{amount} > 5"}], without={"c": f"{amount} < 3"})
        by_filter = {"function": "sequence", "steps": [f"{amount} > 1", {"amount": f"{kind} = 'kind'"}], "window": "1h"}
        features = {"one": by_value, "two": by_filter}
        written = {"rule_id": "r", "group_by": ["k"], "features": features, "when": "one OR two"}
        return buckets.Rule.model_validate(written)

    assert renamed_rule(named("kind", "amount"), {"kind": "action", "amount": "total"}) == named("action", "total")


def test_a_sequence_whose_rule_lets_its_last_step_never_through_never_fires():
    def codes(where: str) -> set[str]:
        written = {"rule_id": "r", "group_by": ["k"], "where": where, "features": {"s": sequence()}, "when": "s"}
        subject = Subject((buckets.Rule.model_validate(written),), 0, SCHEMA)
        return {finding.code.code for finding in look(subject).findings}

    assert codes("kind = 'a'") - codes("kind = 'b'") == {"B101"}
