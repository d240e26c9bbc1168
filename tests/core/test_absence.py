"""What did not follow in time, against a loop that keeps a clock."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.rules.feature import Feature
from tests.laws import examples

SCHEMA = buckets.EventSchema.model_validate(
    {"event_id": "id", "event_time": "time", "attributes": {"k": "string", "kind": "string"},
     "measures": {"amount": {"scale": 0}}}
)  # fmt: skip
Row = dict[str, Any]
WITHIN_MS, WINDOW_MS = 1_000, 5_000


def absence(**written: Any) -> dict[str, Any]:
    steps = {"step_field": "kind", "steps": ["order"], "without": "receipt", "within": "1s"}
    return {"function": "absence", **steps, "window": "5s"} | written


def rule(**features: dict[str, Any]) -> buckets.Rule:
    features = features or {"alone": absence(), "minute": {"function": "count", "window": "60s"}}
    written = {"rule_id": "r", "group_by": ["k"], "features": features, "when": "alone > 0 OR alone IS NULL"}
    return buckets.Rule.model_validate(written)


def follows(arrived: list[tuple[int, Row]], of: tuple[int, Row]) -> bool:
    """Whether a receipt came after an order by time and arrival, and in time."""
    after = (of[1]["time"], of[0])
    return any(
        row["kind"] == "receipt" and (row["time"], at) > after and row["time"] <= of[1]["time"] + WITHIN_MS
        for at, row in arrived
    )


def expected(rows: list[Row]) -> list[tuple[int | None, list[str]]]:
    """At each event how many ms before it the earliest order was that it tells of, and the ids of all those."""
    clocks: dict[str, int] = {}
    arrived: dict[str, list[tuple[int, Row]]] = {}
    found: list[tuple[int | None, list[str]]] = []
    for at, row in enumerate(rows):
        before_ms, of_key = clocks.get(row["k"]), arrived.setdefault(row["k"], [])
        told = [
            (order, each)
            for order, each in of_key
            if before_ms is not None
            and each["kind"] == "order"
            and before_ms <= each["time"] + WITHIN_MS < row["time"]
            and each["time"] >= row["time"] - WINDOW_MS
            and not follows(of_key, (order, each))
        ]
        earliest_ms = min((each["time"] for _, each in told), default=None)
        found.append((None if earliest_ms is None else row["time"] - earliest_ms, [each["id"] for _, each in told]))
        clocks[row["k"]] = max(before_ms or row["time"], row["time"])
        of_key.append((at, row))
    return found


def events(rows: list[Row]) -> pa.Table:
    kinds = {"time": pa.int64(), "amount": pa.decimal128(10, 0), "kind": pa.string()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]})


STEPS = st.tuples(
    st.sampled_from([0, 0, 1, 300, 700, 999, 1_000, 1_001, 4_000, 60_000, -1, -700, -1_500]),
    st.sampled_from("xxy"),
    st.sampled_from(["order", "order", "receipt", "other", None]),
)


@settings(max_examples=examples(400))
@given(
    st.lists(STEPS, min_size=5, max_size=40),
    st.lists(st.integers(1, 40), max_size=4),
    st.sampled_from(["all", "10s"]),
    st.sampled_from(["add", "evaluate"]),
)
def test_an_order_is_told_of_at_the_event_that_moves_the_clock_past_its_time(steps, cuts, tail, late):
    rows, clock_ms = [], 1_700_000_000_000
    for number, (step_ms, key, kind) in enumerate(steps):
        rows.append({"id": f"e{number}", "time": clock_ms + step_ms, "k": key, "kind": kind, "amount": number})
        clock_ms = max(clock_ms, clock_ms + step_ms)
    precision = {"tail": tail} | ({} if tail == "all" else {"resolution": "1s"})
    written = {"precision": precision, "allowed_lateness": "3s", "late": late}
    evaluator, begin = buckets.Evaluator([rule()], SCHEMA, buckets.EngineSettings.model_validate(written)), 0
    right, seen = expected(rows), 0
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        for found in evaluator.recorded(events(rows[begin:end])).evaluations.to_pylist():
            at = begin + found["position"]
            term = json.loads(found["terms"])[0]
            since_ms, _ = right[at]
            value = None if term["value"] is None else int(Decimal(term["value"]) * 1_000)
            assert value == since_ms, (term, rows[at])
            assert term["exact"]
            seen += 1
        begin = end
    assert seen == len(rows) or late == "add"
    told = [each for _, ids in right for each in ids]
    assert len(told) == len(set(told))


@pytest.mark.parametrize(
    "written",
    [
        absence(within=None),
        absence(without=None),
        absence(steps=["order", "other"]),
        absence(steps=[]),
        absence(within="5s"),
        absence(within="0s"),
        absence(window={"last": 3, "within": "1h"}),
        absence(window={"length": "1h", "exclude": "current"}),
        absence(where="kind = 'order'"),
        {"function": "sequence", "steps": ["kind = 'a'", "kind = 'b'"], "window": "1h", "within": "1s"},
        {"function": "count", "window": "1h", "within": "1s"},
    ],
)
def test_an_absence_that_makes_no_sense_is_refused(written, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        Feature.model_validate(written)


def test_an_absence_is_written_as_it_was_and_said_in_words():
    written = absence(without={"receipt": "amount > 5"})
    assert Feature.model_validate(written).model_dump(mode="json", by_alias=True) == {
        **written,
        "window": {"length": "5s", "left": "closed"},
    }
    assert rule(alone=written).sentence() == (
        "For events of the same k: alone is above 0 or alone is missing; alone is the seconds since kind order, without "
        "receipt (amount > 5) within 1s over the last 5s"
    )
