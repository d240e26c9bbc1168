"""What did not follow in time, against a loop that keeps a clock."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.change import changes_between
from buckets.rules.feature import Feature
from buckets.rules.revision import revise
from buckets.rules.rule_set import RuleSet
from tests.laws import examples

SCHEMA = buckets.EventSchema.model_validate(
    {"event_id": "id", "event_time": "time", "attributes": {"k": "string", "kind": "string"},
     "measures": {"amount": {"scale": 0}}}
)  # fmt: skip
Row = dict[str, Any]
WITHIN_MS = 1_000


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


def expected(rows: list[Row], window_ms: int = 5_000) -> list[tuple[int | None, list[str]]]:
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
            and each["time"] >= row["time"] - window_ms
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


def test_an_event_that_takes_the_place_of_another_tells_of_what_that_one_told():
    kinds, times = ["order", None, None], [0, 2_000, 2_000]
    rows = [
        {"id": f"e{at}", "time": time, "k": "x", "kind": kind, "amount": 1}
        for at, (time, kind) in enumerate(zip(times, kinds, strict=True))
    ]
    for collision, told in (("keep", [None, "2.000", None]), ("replace", [None, "2.000", "2.000"])):
        engine = buckets.EngineSettings.model_validate({"collision": collision})
        found = buckets.Evaluator([rule()], SCHEMA, engine).recorded(events(rows)).evaluations.to_pylist()
        assert [json.loads(each["terms"])[0]["value"] for each in found] == told


def long_stream(seed: int, size: int, lateness_ms: int) -> list[Row]:
    random, rows, clock_ms = np.random.default_rng(seed), [], 1_000_000
    for number in range(size):
        clock_ms += int(random.integers(0, 300)) * (20 if random.random() < 0.02 else 1)
        is_late = random.random() < 0.1
        kind = str(random.choice(["order", "receipt", "other"], p=[0.1, 0.05, 0.85]))
        time_ms = clock_ms - (int(random.integers(0, lateness_ms)) if is_late else 0)
        rows.append({"id": f"e{number}", "time": time_ms, "k": "xy"[random.random() < 0.1], "kind": kind, "amount": 1})
    return rows


@settings(max_examples=examples(8))
@given(st.integers(0, 2**32), st.lists(st.integers(1, 1_100), max_size=6, unique=True).map(sorted))
def test_orders_are_told_of_where_windows_take_several_pages(seed, cuts):
    rows, values = long_stream(seed, 1_200, 900), []
    engine = {"late": "evaluate", "allowed_lateness": "1s", "precision": {"tail": "70s", "resolution": "7s"}}
    one = rule(alone=absence(window="60s"), minute={"function": "count", "window": "10m"})
    evaluator = buckets.Evaluator([one], SCHEMA, buckets.EngineSettings.model_validate(engine))
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        found = sorted(
            evaluator.recorded(events(rows[begin:end])).evaluations.to_pylist(), key=lambda row: row["position"]
        )
        values += [json.loads(row["terms"])[0] for row in found]
    right = [since_ms for since_ms, _ in expected(rows, 60_000)]
    assert [value["value"] and int(Decimal(value["value"]) * 1_000) for value in values] == right
    assert all(value["exact"] for value in values)
    assert sum(each is not None for each in right) > 10


def test_behind_a_tail_that_was_made_longer_what_is_told_lies_within_its_bounds():
    rows, found, arrived, job = long_stream(3, 700, 1), {}, (), None
    rule_set: RuleSet = RuleSet(0, (), (), {})
    short = absence(within="50ms", window="100ms")
    for tail, written, part in (("200ms", short, rows[:400]), ("70s", absence(window="60s"), rows[400:])):
        engine = buckets.EngineSettings.model_validate(
            {"precision": {"tail": tail, "resolution": "500ms"}, "shards": 1}
        )
        scorer = Scorer(SCHEMA, engine, evaluations=True)
        job = job or InMemoryJob(scorer)
        job.scorer = scorer
        one = rule(alone=written, minute={"function": "count", "window": "10m"})
        rule_set = revise(rule_set, changes_between(rule_set.rules, [one]), SCHEMA, arrived, 0).rule_set
        results = job.score_batch(table_arrivals(events(part), SCHEMA), rule_set)
        arrived, decoder = results.account.arrived, OutputDecoder(rule_set, SCHEMA, engine)
        evaluations = decoder.table(EVALUATIONS, results.payloads[EVALUATIONS]).to_pylist()
        found = {row["event_id"]: json.loads(row["terms"])[0] for row in evaluations}
    told = [found[row["id"]] for row in rows[400:]]
    for term, (since_ms, _) in zip(told, expected(rows, 60_000)[400:], strict=True):
        if term["exact"]:
            assert (term["value"] and int(Decimal(term["value"]) * 1_000)) == since_ms
        elif since_ms is None:
            assert term["may_be_null"]
        else:
            assert Decimal(term["lower"]) * 1_000 <= since_ms <= Decimal(term["upper"]) * 1_000
    assert 0 < sum(not term["exact"] for term in told) < 50


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
        absence(window={"session": "5m", "within": "1h"}),
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
        "For events of the same k: alone is above 0 or alone is missing; alone is the seconds since kind order, "
        "without receipt (amount > 5) within 1s over the last 5s"
    )
