"""Sequences of steps, against loops over lists."""

import json
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.rules.feature import Feature
from buckets.rules.flink_message import check_against_schema
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
    kinds = {"time": pa.int64(), "amount": pa.decimal128(10, 0), "flag": pa.bool_(), "kind": pa.string()}
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        batch = pa.table({name: pa.array([row[name] for row in rows[begin:end]], kinds.get(name)) for name in rows[0]})
        for found in evaluator.recorded(batch).evaluations.to_pylist():
            at = begin + found["position"]
            of_window = inside([x for x in rows[: at + 1] if x["k"] == rows[at]["k"]], rows[at], window)
            for term in json.loads(found["terms"]):
                if term["name"] in TESTS:
                    assert term["value"] == is_last_step(of_window, term["name"]), (term, rows[at])
                    assert term["exact"]
                    seen += 1
        begin = end
    assert seen or where or late == "add"


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
        (sequence(steps=["a", {"b": "amont > 1"}]), ("features", "s", "steps", "1")),
        (sequence(without={"c": "nothing"}), ("features", "s", "without")),
        (sequence(step_field=None), ("features", "s", "steps", "0")),
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
