"""What a file of events shows of rules."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.config.engine import EngineSettings
from buckets.events.bad_rows import BadRows
from buckets.events.event_file import file_arrivals, open_event_file
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import load_event_schema
from buckets.lint.event_counts import summarise
from buckets.lint.subject import EventSummary
from buckets.resources import resource
from buckets.rules.rule import Rule
from tests.core.lint_rules import SCHEMA, event_tables, filtered, found, limited, payment, when
from tests.laws import examples

CARD_PAYMENT = load_event_schema(resource("schemas/card-payment.yaml"))


TRIED = [
    filtered("kind = 'a'", rule_id="as"),
    limited("count", ">=", 2, rule_id="pairs", state="DRAFT", cooldown="1h", effective={"until": "2000-01-01"}),
    when("total > 0.01 AND flag", rule_id="flagged", group_by=["kind"], state="PAUSE"),
]


@settings(max_examples=examples(50))
@given(event_tables(), st.integers(1, 5))
def test_a_summary_counts_what_a_loop_counts_and_rules_fire_as_without_a_policy(events, batch_rows):
    rules = [Rule.model_validate(each) for each in TRIED]
    pieces = [events.slice(at, batch_rows) for at in range(0, len(events), batch_rows)]
    arrivals = (rows for piece in pieces for rows in table_arrivals(piece, SCHEMA))
    summary = summarise(arrivals, rules, SCHEMA, EngineSettings())
    rows = events.to_pylist()
    assert (summary.events, summary.bad.bad) == (len(rows), 0)
    assert summary.passed[rules[0].where] == sum(row["kind"] == "a" for row in rows)
    assert summary.nulls["kind"] == sum(row["kind"] is None for row in rows)
    by_k = Counter(row["k"] for row in rows)
    assert (summary.keys["k",].keys, summary.keys["k",].largest) == (len(by_k), max(by_k.values()))
    plain = [rule.model_copy(update={"state": "ACTIVE", "cooldown": None, "effective": None}) for rule in rules]
    alerts = Counter(buckets.evaluate(events, plain, SCHEMA).alerts["rule_id"].to_pylist())
    assert summary.fired == {rule.rule_id: alerts[rule.rule_id] for rule in rules}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_file_of_any_kind_says_the_same(tmp_path, kind):
    rows = [payment(at) for at in range(50)]
    table = pa.Table.from_pylist(rows)
    path = tmp_path / f"events.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no event\n")
    elif kind == "csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    rules = [
        Rule.model_validate(limited("count", ">=", 2, rule_id="r", group_by=["cardId"], where={"paymentType": "CRD"}))
    ]
    file = open_event_file(path, CARD_PAYMENT)
    told: list[int] = []
    summary = summarise(file_arrivals(file, CARD_PAYMENT, 20), rules, CARD_PAYMENT, EngineSettings(), told.append)
    assert (summary.events, summary.bad.bad, summary.fired) == (50, kind == "jsonl", {"r": 15})
    assert summary.passed == {rules[0].where: 25}
    assert told[-1] == 50 + (kind == "jsonl")


def test_rules_that_cannot_be_tried_are_left_out():
    rules = [Rule.model_validate({"rule_id": "alerts", "on": "alerts", **limited("count", ">", 5)})]
    summary = summarise([], rules, SCHEMA, EngineSettings())
    assert summary == EventSummary(0, BadRows(), {}, {}, {}, {})


def test_what_a_certain_finding_says_is_not_said_again_of_the_events():
    impossible, empty = filtered("n > 3 AND n < 4"), filtered("n > 3 OR n <= 3")
    rules = [Rule.model_validate({"rule_id": f"r{at}", **each}) for at, each in enumerate([impossible, empty])]
    passed = {rules[0].where: 0, rules[1].where: 500}
    events = EventSummary(500, 0, passed, {}, {}, {"r0": 0, "r1": 400})
    assert found(impossible, empty, events=events) == ["B104", "B105", "B504"]
