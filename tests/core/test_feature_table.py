"""Features as a table: a row for each event, equal to what was evaluated, however the stream is cut."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.results.feature_table import OUTCOMES
from buckets.rules.rule import Rule
from tests.core.test_features import SCHEMA, START_MS, rules, streams, table
from tests.laws import examples

AMOUNT = {"aggregate": {"function": "sum", "measure": "amount"}, "limit": {"operator": ">", "value": "5"}}
ENGINES = st.fixed_dictionaries(
    {
        "late": st.sampled_from(["add", "evaluate", "drop"]),
        "collision": st.sampled_from(["keep", "keep_first", "replace"]),
        "allowed_lateness": st.sampled_from(["0ms", "2s", "1h"]),
        "shards": st.integers(1, 3),
    }
)


def rule(rule_id: str, **written: Any) -> Rule:
    return Rule.model_validate({"rule_id": rule_id, "group_by": ["payer"]} | written)


@st.composite
def of_one_aggregate(draw: st.DrawFn) -> list[Rule]:
    found = []
    for number in range(draw(st.integers(0, 3))):
        function = draw(st.sampled_from(["sum", "count", "avg", "min", "max"]))
        aggregate = {"function": function} | ({} if function == "count" else {"measure": "amount"})
        written = {
            "group_by": draw(st.sampled_from([["payer"], ["bene", "payer"], []])),
            "where": draw(st.sampled_from([{}, {"kind": "a"}])),
            "state": draw(st.sampled_from(["ACTIVE", "SHADOW", "PAUSE"])),
            "reset_on_alert": draw(st.booleans()),
            "window": {"length": draw(st.sampled_from(["1s", "5s", "30s"]))},
        }
        found.append(rule(f"a{number}", **(AMOUNT | written | {"aggregate": aggregate})))
    return found


@st.composite
def broken(draw: st.DrawFn) -> pa.Table:
    """A stream in which some rows lack their payer."""
    events = table(draw(streams()))
    there = [draw(st.integers(0, 9)) > 0 for _ in range(len(events))]
    payers = [payer if kept else None for payer, kept in zip(events["payer"].to_pylist(), there, strict=True)]
    return events.set_column(events.column_names.index("payer"), "payer", pa.array(payers, pa.string()))


def evaluated(results: buckets.Results) -> dict[tuple[int, str], Any]:
    """By position and column, what the evaluations of a batch say."""
    found: dict[tuple[int, str], Any] = {}
    for row in results.evaluations.to_pylist():
        terms = [{"name": "value", "value": row["value"], "exact": row["exact"], "warm": row["warm"]}]
        for term in terms if row["terms"] is None else json.loads(row["terms"]):
            name = f"{row['rule_id']}.{term['name']}"
            is_number = isinstance(term["value"], str) and term.get("type") != "text"
            value = Decimal(term["value"]) if is_number else term["value"]
            for column, each in ((name, value), (f"{name}.exact", term["exact"]), (f"{name}.warm", term["warm"])):
                found[row["position"], column] = each
        found[row["position"], f"{row['rule_id']}.fired"] = row["fired"]
    return found


def outcomes(results: buckets.Results, events: int) -> list[str]:
    """What the outputs of a batch say of each event."""
    found = [{"filtered"} for _ in range(events)]
    for row in results.evaluations.to_pylist():
        found[row["position"]].add("evaluated")
    for row in results.collisions.to_pylist():
        found[row["position"]] |= set() if row["kept"] else {"collision"}
    for row in results.late_events.to_pylist():
        found[row["position"]].add("too_late" if row["too_late"] else "late")
    for name in ("duplicates", "dead_letters"):
        for row in getattr(results, name).to_pylist():
            found[row["position"]].add(name.removesuffix("s"))
    return [max(each, key=OUTCOMES.index) for each in found]


@settings(max_examples=examples(120))
@given(rules(), of_one_aggregate(), broken(), ENGINES, st.lists(st.integers(1, 24), max_size=2))
def test_features_are_what_was_evaluated_row_by_row_however_the_stream_is_cut(some, others, events, engine, cuts):
    chosen, engine = [*some, *others], buckets.EngineSettings.model_validate(engine)
    live, training = (buckets.Evaluator(chosen, SCHEMA, engine) for _ in range(2))
    results = live.recorded(events)
    values, expected = evaluated(results), outcomes(results, len(events))
    ends = sorted({min(cut, len(events)) for cut in cuts} | {len(events)})
    rows = []
    for begin, end in zip([0, *ends], ends, strict=False):
        piece = training.features(events.slice(begin, end - begin), flags=True)
        assert piece["position"].to_pylist() == list(range(end - begin))
        rows += piece.to_pylist()
    assert [row["event_id"] for row in rows] == events["id"].to_pylist()
    groups = [fields for rule in chosen if rule.is_evaluated for fields, _ in rule.groupings()]
    assert ("payer" in rows[0]) == any("payer" in fields for fields in groups)
    if "payer" in rows[0]:
        assert [row["payer"] for row in rows] == events["payer"].to_pylist()
    assert [row["event_time"].timestamp() * 1000 for row in rows] == events["time"].to_pylist()
    assert [row["outcome"] for row in rows] == expected
    told = {(at, name): value for at, row in enumerate(rows) for name, value in row.items() if "." in name}
    assert {at: value for at, value in told.items() if value is not None} == {
        at: value for at, value in values.items() if value is not None
    }


@settings(max_examples=examples(40))
@given(rules(), broken(), st.sets(st.integers(0, 24)))
def test_the_events_that_are_named_get_the_rows_that_they_have_among_all(chosen, events, named):
    ids = pa.array([f"e{number}" for number in sorted(named)], pa.string())
    everything = buckets.features(events, chosen, SCHEMA).to_pylist()
    wanted = [row for row in everything if row["event_id"] in ids.to_pylist() and row["outcome"] != "duplicate"]
    assert buckets.features(events, chosen, SCHEMA, ids=ids).to_pylist() == wanted


def payments(**columns: list[Any]) -> pa.Table:
    size = len(next(iter(columns.values())))
    fixed = {"id": [f"e{n}" for n in range(size)], "time": [START_MS + n for n in range(size)], "payer": ["p"] * size}
    return pa.table(fixed | columns)


def test_columns_have_the_types_of_their_features_whether_there_are_events_or_not():
    named = {
        "total": {"function": "sum", "of": "amount", "window": "1h"},
        "spread": {"function": "stddev", "of": "amount", "window": "1h"},
        "new": {"function": "is_first", "window": "1h"},
        "many": {"function": "count", "window": "1h"},
        "lately": {"function": "time_since_previous", "window": "1h"},
    }
    wide = rule("wide", features=named, when="total > 5 AND NOT new")
    window = {"window": {"length": "1h"}}
    average = rule("average", **(AMOUNT | window | {"aggregate": {"function": "avg", "measure": "amount"}}))
    events = payments(amount=["1.00", "2.00", "3.00"])
    found = buckets.features(events, [wide, average], SCHEMA)
    assert found.column_names == [
        "event_id", "event_time", "position", "payer", "outcome", "wide.total", "wide.spread", "wide.new", "wide.many",
        "wide.lately", "wide.fired", "average.value", "average.fired",
    ]  # fmt: skip
    assert found.schema == buckets.features(events.slice(3), [wide, average], SCHEMA).schema
    assert found["wide.total"].to_pylist() == [Decimal("1.00"), Decimal("3.00"), Decimal("6.00")]
    assert found["wide.spread"].to_pylist() == [None, Decimal("0.70710678"), Decimal("1.00000000")]
    assert found["wide.new"].to_pylist() == [True, False, False]
    assert found["wide.many"].type == pa.int64()
    assert found["wide.lately"].to_pylist() == [None, Decimal("0.001"), Decimal("0.001")]
    assert found["wide.fired"].to_pylist() == [False, False, True]
    assert found["average.value"].to_pylist() == [Decimal("1.00000000"), Decimal("1.50000000"), Decimal("2.00000000")]


def test_columns_of_one_name_are_told_apart():
    count = {"function": "count", "window": "1h"}
    one = rule("a", features={"fired": count, "b": count}, when="b > 1")
    other = rule("A", features={"B": count}, when="B > 1")
    names = buckets.features(payments(amount=["1.00"]), [one, other], SCHEMA).column_names
    assert names[5:] == ["a.fired", "a.b", "a.fired_2", "A.B_2", "A.fired_3"]


def test_policies_hold_no_features_back():
    held = rule("r", **AMOUNT, window={"length": "1h"}, cooldown="1h")
    found = buckets.features(payments(amount=["6.00", "1.00"]), [held], SCHEMA)
    assert found["r.value"].to_pylist() == [Decimal("6.00"), Decimal("7.00")]
    assert found["r.fired"].to_pylist() == [True, True]


@pytest.mark.parametrize(
    "written",
    [
        {"on": "alerts"},
        {"state": "PAUSE"},
    ],
)
def test_rules_without_features_of_events_are_refused(written, as_worded):
    count = {"aggregate": {"function": "count"}, "limit": AMOUNT["limit"], "window": {"length": "1h"}}
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.features(payments(amount=["1.00"]), [rule("r", **count, **written)], SCHEMA)


def test_a_value_for_which_a_column_has_no_room_is_refused(as_worded):
    spread = {"function": "variance", "of": "amount", "window": "1h"}
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.features(
            payments(amount=["-90000000000000000.00", "90000000000000000.00"]),
            [rule("r", features={"spread": spread}, when="spread > 1")],
            SCHEMA,
        )
