"""Windows that hold the events of a session, against loops over lists."""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.rules.window import Window
from tests.laws import examples

SCHEMA = buckets.EventSchema.model_validate(
    {"event_id": "id", "event_time": "time", "attributes": {"k": "string", "flag": "boolean"},
     "measures": {"amount": {"scale": 2}}}
)  # fmt: skip
Row = dict[str, Any]
GAP_MS, WITHIN_MS = 1_000, 10_000
STEPS_MS = [0, 1, 400, 400, 999, 1_000, 1_001, 1_001, 3_000, 60_000, -1, -700, -2_500]


def rule(ends: dict[str, str]) -> buckets.Rule:
    window = {"session": "1s", "within": "10s"} | ends
    features = {
        "events": {"function": "count", "window": window},
        "flagged": {"function": "count", "window": window, "where": "flag"},
        "total": {"function": "sum", "of": "amount", "window": window},
        "most": {"function": "max", "of": "amount", "window": window},
        "different": {"function": "count_distinct", "of": "amount", "window": window},
        "similar": {"function": "count", "window": window, "where": "amount >= this.amount"},
        "minute": {"function": "sum", "of": "amount", "window": "60s"},
    }
    when = "events >= 0 OR minute IS NULL"
    return buckets.Rule.model_validate({"rule_id": "r", "group_by": ["k"], "features": features, "when": when})


def expected(arrived: list[Row], row: Row, ends: dict[str, str]) -> dict[str, Fraction | None]:
    """The features at a row, of the rows of its key that have arrived, which is the last one."""
    earlier = [x for x in arrived if x["time"] <= row["time"]]
    in_order = [*sorted((x for x in earlier if x is not row), key=lambda x: x["time"]), row]
    first = len(in_order) - 1
    while first > 0 and in_order[first]["time"] - in_order[first - 1]["time"] <= GAP_MS:
        first -= 1
    inside = [x for x in in_order[first:] if x["time"] >= row["time"] - WITHIN_MS and (not ends or x is not row)]
    amounts = [Fraction(x["amount"]) for x in inside if x["amount"] is not None]
    own = row["amount"]
    return {
        "events": Fraction(len(inside)),
        "flagged": Fraction(sum(x["flag"] for x in inside)),
        "total": sum(amounts) if amounts else None,
        "most": max(amounts, default=None),
        "different": Fraction(len(set(amounts))),
        "similar": Fraction(0 if own is None else sum(amount >= Fraction(own) for amount in amounts)),
    }


AMOUNTS = st.sampled_from([*map(Decimal, ("1.00", "2.00", "2.50", "-4.00")), None])


STEPS = st.tuples(st.sampled_from(STEPS_MS), st.sampled_from("aab"), AMOUNTS, st.booleans())


@settings(max_examples=examples(400))
@given(
    st.sampled_from([{}, {"exclude": "current"}]),
    st.lists(STEPS, min_size=5, max_size=40),
    st.lists(st.integers(1, 40), max_size=4),
    st.sampled_from(["all", "10s"]),
    st.sampled_from(["add", "evaluate"]),
)  # fmt: skip
def test_a_session_holds_events_that_follow_each_other_closely(ends, steps, cuts, tail, late):
    rows, clock_ms = [], 1_700_000_000_000
    for number, (step_ms, key, amount, flag) in enumerate(steps):
        rows.append({"id": f"e{number}", "time": clock_ms + step_ms, "k": key, "amount": amount, "flag": flag})
        clock_ms = max(clock_ms, clock_ms + step_ms)
    precision = {"tail": tail} | ({} if tail == "all" else {"resolution": "1s"})
    written = {"precision": precision, "allowed_lateness": "0ms" if tail != "all" else "3s", "late": late}
    evaluator, begin = buckets.Evaluator([rule(ends)], SCHEMA, buckets.EngineSettings.model_validate(written)), 0
    kinds = {"time": pa.int64(), "amount": pa.decimal128(10, 2), "flag": pa.bool_()}
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        batch = pa.table({name: pa.array([row[name] for row in rows[begin:end]], kinds.get(name)) for name in rows[0]})
        for found in evaluator.recorded(batch).evaluations.to_pylist():
            at = begin + found["position"]
            values = expected([x for x in rows[: at + 1] if x["k"] == rows[at]["k"]], rows[at], ends)
            for term in json.loads(found["terms"]):
                if term["name"] in values:
                    value = term["value"] if term["value"] is None else Fraction(term["value"])
                    assert value == values[term["name"]], (term, rows[at])
                    assert term["exact"]
        begin = end


@pytest.mark.parametrize(
    "window",
    [
        {"session": "30m"},
        {"session": "30m", "within": "24h", "left": "open"},
        {"session": "30m", "within": "24h", "last": 3},
        {"session": "0ms", "within": "24h"},
    ],
)
def test_a_session_that_makes_no_sense_is_refused(window, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Window.model_validate(window)


def test_a_session_is_written_as_it_was_and_said_in_words():
    written = {"session": "30m", "within": "24h", "exclude": "current"}
    window = Window.model_validate(written)
    assert window.model_dump(mode="json", by_alias=True) == written
    assert window.words == "the last 24h, as far as events are up to 30m apart before the event"
    assert Window.model_validate({"session": "30m", "within": "24h"}).text == "session 30m within 24h"


def test_a_session_beyond_the_tail_is_refused(as_worded):
    engine = buckets.EngineSettings.model_validate({"precision": {"tail": "9s"}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule({})], SCHEMA, engine)
