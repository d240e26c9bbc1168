"""What a Python program imports from `buckets`: the names, their documentation, and evaluation without Spark."""

import doctest
import importlib
import json
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.outputs.columns import TOPICS
from tests.core.examples import SCHEMA as PAYMENTS
from tests.core.examples import rule
from tests.laws import examples
from tests.oracle import Oracle
from tests.strategies import MEASURES, SCHEMA, rules, streams

GROUPS = (
    {"group_by": ["k"], "where": {}},
    {"group_by": ["k"], "where": {"amount": {">=": "0"}}},
    {"group_by": [], "where": {"k": "k0"}},
)
"""Keys; keys with a filter on a measure; all events that pass a filter."""
PASSES = (lambda event: True, lambda event: event.values[0] >= 0, lambda event: event.key == "k0")


def test_the_example_in_the_documentation_says_what_comes_out():
    assert doctest.testmod(buckets) == (0, 8)


def test_every_name_is_there_and_importing_buckets_imports_no_dependency():
    for name in buckets.__all__:
        value = getattr(buckets, name)
        assert value is getattr(importlib.import_module(value.__module__), name)
        assert value.__doc__
        assert name in dir(buckets)
    script = "import sys, buckets; sys.exit(' '.join({'numpy', 'pyarrow', 'pydantic', 'yaml'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(AttributeError, match="module 'buckets' has no attribute 'nothing'"):
        buckets.nothing  # noqa: B018 - asking is the point


def in_group(each: buckets.Rule, group: int) -> buckets.Rule:
    written = each.model_dump(by_alias=True, mode="json")
    return buckets.Rule.model_validate(written | GROUPS[group] | {"rule_id": f"{each.rule_id} of {group}"})


def table_of(rows: list[dict]) -> pa.Table:
    fields = [("id", pa.string()), ("t", pa.int64()), ("k", pa.string()), ("amount", pa.string()), ("fee", pa.int64())]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


@st.composite
def mixed(draw):
    """Rows of a stream with broken ones among them: `None` stands for a row that is no event."""
    events: list = draw(streams(keys=3, max_size=40, nulls=False))
    for index in draw(st.lists(st.integers(0, 40), max_size=4)):
        events.insert(index, None)
    return events


def expected(chosen: list[list[buckets.Rule]], events: list) -> tuple[list, set[int], dict[str, int]]:
    """What the oracle says: results, rows that are dead letters, and how often each outcome came."""
    results, dead_letters, counts = [], {row for row, event in enumerate(events) if event is None}, {}
    oracles = [Oracle(each, MEASURES, lateness_ms=3_600_000) for each in chosen]
    order = {each.rule_id: index for index, each in enumerate(one for several in chosen for one in several)}
    for row, event in enumerate(events):
        for oracle, passes, group in zip(oracles, PASSES, GROUPS, strict=True):
            if event is None or not passes(event):
                continue
            outcome = oracle.arrive(event if group["group_by"] else event._replace(key=""))
            counts[outcome.outcome] = counts.get(outcome.outcome, 0) + 1
            if outcome.outcome == "overflow" or outcome.beyond:
                dead_letters.add(row)
            results += [(row, order[rule_id], rule_id, *result) for rule_id, result in outcome.results.items()]
    return [(row, *rest) for row, _, *rest in sorted(results)], dead_letters, counts


def rows_of(table: pa.Table, first: int, *names: str) -> list[tuple]:
    return [(row["position"] + first, *(row[name] for name in names)) for row in table.to_pylist()]


@settings(max_examples=examples(100))
@given(
    st.lists(rules(max_size=3), min_size=len(GROUPS), max_size=len(GROUPS)),
    mixed(),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_tables_of_events_give_what_a_loop_over_a_list_finds_however_they_are_cut(drawn, events, cuts):
    chosen = [[in_group(each, group) for each in several] for group, several in enumerate(drawn)]
    blank = {"id": "x", "t": 5, "k": "k0", "amount": "broken", "fee": 1}
    fields = [
        blank if event is None else dict(zip(blank, (event.event_id, event.time_ms, event.key, str(event.values[0]),
                                                     int(event.values[1])), strict=True))
        for event in events
    ]  # fmt: skip
    all_rules = [one for several in chosen for one in several]
    evaluator = buckets.Evaluator(all_rules, SCHEMA)
    results, alerts, dead_letters, counts = [], [], set(), {}
    ends = sorted({0, len(events), *(min(cut, len(events)) for cut in cuts)})
    for first, end in zip(ends, ends[1:] or ends, strict=False):
        found = evaluator.evaluate(table_of(fields[first:end]))
        results += rows_of(found.evaluations, first, "rule_id", "value", "count", "fired")
        alerts += rows_of(found.alerts, first, "rule_id") + rows_of(found.shadow_alerts, first, "rule_id")
        dead_letters |= {row for (row,) in rows_of(found.dead_letters, first)}
        assert found.dead_letters.num_rows == len(set(found.dead_letters["position"].to_pylist()))
        for account in found.account.groups:
            for name in ("evaluated", "late", "too_late", "duplicates", "collisions_not_kept"):
                counts[name] = counts.get(name, 0) + getattr(account, name)
        assert found.late_events.num_rows == sum(each.late + each.too_late for each in found.account.groups)
        assert found.duplicates.num_rows == sum(each.duplicates for each in found.account.groups)
    wanted, wanted_dead_letters, outcomes = expected(chosen, events)
    assert results == wanted
    assert sorted(alerts) == sorted(row[:2] for row in wanted if row[-1])
    assert dead_letters == wanted_dead_letters
    names = {"duplicates": "duplicate", "collisions_not_kept": "collision_not_kept"}
    assert {name: count for name, count in counts.items() if count} == {
        name: outcomes[names.get(name, name)] for name in counts if outcomes.get(names.get(name, name))
    }


def payments(**columns) -> pa.Table:
    size = max(map(len, columns.values()))
    fixed = {
        "id": [f"e{row}" for row in range(size)],
        "at": list(range(size)),
        "payer": ["p"] * size,
        "amount": ["1.00"] * size,
    }
    return pa.table(fixed | columns)


def test_columns_may_have_any_type_that_holds_their_values_and_others_are_passed_over():
    plain = payments(amount=["1.50", "2.25", "101.00"])
    typed = pa.table(
        {
            "note": [1.5, 2.5, 3.5],
            "amount": pa.array([Decimal("1.5"), Decimal("2.25"), Decimal("101")], pa.decimal128(20, 3)),
            "payer": pa.array(["p"] * 3).dictionary_encode(),
            "at": pa.array([0, 1, 2], pa.timestamp("ms", "UTC")),
            "id": pa.array(["e0", "e1", "e2"], pa.large_string()),
        }
    )
    one = [rule()]
    found = [buckets.evaluate(table, one, PAYMENTS) for table in (plain, typed)]
    assert found[0] == found[1]
    assert found[0].evaluations["value"].to_pylist() == [Decimal("1.5"), Decimal("3.75"), Decimal("104.75")]
    assert found[0].alerts["position"].to_pylist() == [2]


def test_outputs_without_rows_have_the_columns_of_those_with_rows():
    schema, one = PAYMENTS, [rule(), rule("on trial", state="SHADOW"), rule("quiet", cooldown="1h")]
    times, names = [0, 5, 2, 5, 5, 6], ["a", "b", "c", "d", "d", "e"]
    full = buckets.evaluate(payments(at=times, id=names, amount=["999.00"] * 5 + ["x"]), one, schema)
    empty = buckets.evaluate(payments(id=[]), one, schema)
    for output in TOPICS:
        assert getattr(full, output).num_rows > 0
        assert getattr(empty, output).num_rows == 0
        assert getattr(empty, output).schema == getattr(full, output).schema


def test_what_is_wrong_with_rules_or_columns_is_said(as_worded):
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule(), rule()], PAYMENTS)
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule(measure="tip")], PAYMENTS)
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule("!r")], PAYMENTS)
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.evaluate(payments(id=["e"]).drop_columns("at"), [rule()], PAYMENTS)
    twice = payments(id=["e"]).append_column("amount", pa.array(["1.00"]))
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.evaluate(twice, [rule()], PAYMENTS)


def test_rules_and_schema_are_read_from_files(tmp_path):
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: at\nattributes: {payer: string}\n")
    (tmp_path / "rules.yaml").write_text(
        "rules:\n  - {rule_id: many, group_by: [payer], aggregate: {function: count}, window: {length: 1h}, "
        "limit: {operator: '>', value: 1}}\n"
    )
    (tmp_path / "job.yaml").write_text("engine: {allowed_lateness: 1ms}\n")
    schema = buckets.load_event_schema(tmp_path / "schema.yaml")
    engine = buckets.load_engine_settings(tmp_path / "job.yaml")
    found = buckets.evaluate(
        payments(id=["a", "b"]), buckets.load_rules(tmp_path / "rules.yaml", schema), schema, engine
    )
    assert found.evaluations.select(["count", "fired"]).to_pylist() == [
        {"count": 1, "fired": False},
        {"count": 2, "fired": True},
    ]


def test_a_schema_that_accepts_no_time_is_refused(tmp_path, as_worded):
    (tmp_path / "schema.yaml").write_text(
        "event_id: id\nevent_time: {field: at, earliest: 2027-01-01, latest: 2026-01-01}\n"
    )
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.load_event_schema(tmp_path / "schema.yaml")


@pytest.mark.parametrize(
    "arguments",
    [
        (rule(), PAYMENTS),
        ("rules.yaml", PAYMENTS),
        ([{"rule_id": "a"}], PAYMENTS),
        (PAYMENTS, [rule()]),
        ([rule()], {}),
        ([rule()], PAYMENTS, {}),
    ],
)
def test_an_argument_of_another_kind_is_refused_in_one_line(arguments, as_worded):
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator(*arguments)


@pytest.mark.parametrize("events", [[{"id": "a"}], {"id": ["a"]}, pa.record_batch({"id": ["a"]})])
def test_events_that_are_not_a_table_are_refused_in_one_line(events, as_worded):
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule()], PAYMENTS).evaluate(events)


def test_a_precision_for_a_group_that_no_rule_has_is_refused(as_worded):
    groups = [{"group_by": ["cardId"], "tail": "1h"}]
    engine = buckets.EngineSettings.model_validate({"precision": {"tail": "1d", "groups": groups}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule()], PAYMENTS, engine)


def test_results_have_structs_and_amounts_with_their_own_digits():
    events = payments(id=["e1", "e2"], at=[0, 1], payer=["p", "p"], amount=["60.50", "50.00"])
    found = buckets.evaluate(events, [rule(), rule("all", group_by=[])], PAYMENTS)
    assert found.alerts.schema.field("value").type == pa.decimal128(38, 2)
    first, second = found.alerts.to_pylist()
    assert (first["key"], second["key"]) == ({"payer": "p"}, {"payer": None})
    assert (str(first["value"]), str(first["event"]["amount"])) == ("110.50", "50.00")
    assert [(term["name"], term["value"], term["count"]) for term in first["terms"]] == [("value", "110.50", 2)]
    recorded = buckets.Evaluator([rule()], PAYMENTS).recorded(events)
    assert json.loads(recorded.alerts["key"][0].as_py()) == {"payer": "p"}
