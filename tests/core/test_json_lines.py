"""Results as JSON lines."""

import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.config.engine import EngineSettings
from buckets.engine.batch.fan_out import fan_out
from buckets.engine.stages.in_memory import OutputDecoder, memory_store
from buckets.engine.stages.shard import COUNTS, Scorer
from buckets.outputs import columns
from buckets.outputs.messages import JsonLines
from buckets.rules.rule_set import RuleSet, first_rule_set
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import arrivals
from tests.laws import examples

ENGINE = EngineSettings(shards=1)
LOW = {"operator": ">", "value": "-1e9"}


def lines_of(rule_set: RuleSet, rows: list[dict]) -> dict[str, list[dict]]:
    """Rows through both stages, as lines of each output."""
    produced = payloads_of(rule_set, rows)
    writer, decoder = JsonLines(rule_set, SCHEMA), OutputDecoder(rule_set, SCHEMA, ENGINE)
    return {
        name: [json.loads(line) for line in writer.lines(name, decoder.table(name, payloads))]
        for name, payloads in produced.items()
    }


def payloads_of(rule_set: RuleSet, rows: list[dict]) -> dict[str, list[bytes]]:
    """What both stages produce of each output."""
    fanned = fan_out(arrivals(rows, SCHEMA), rule_set, SCHEMA, EngineSettings(shards=1))
    messages = [message.payload for message in fanned.messages()]
    found: dict[str, list[bytes]] = {}
    for produced in Scorer(SCHEMA, ENGINE, evaluations=True).score(messages, rule_set, memory_store()):
        if produced.output != COUNTS:
            found.setdefault(produced.output, []).append(produced.payload)
    return found


def row(event_id: str, at: int, **fields) -> dict:
    return {"id": event_id, "at": at, "payer": "é", "account": 7, "kind": "a", "amount": "1.50", "fee": 2} | fields


def test_an_evaluation_has_these_fields_with_times_in_ms_and_decimals_as_text():
    (line,) = lines_of(first_rule_set([rule("a", group_by=["account", "payer"])]), [row("e1", -5)])[columns.EVALUATIONS]
    assert line == {
        "event_id": "e1", "rule_id": "a", "rule_version": 1, "ruleset_version": 1, "key": {"account": 7, "payer": "é"},
        "event_time": -5, "value": "1.50", "lower": "1.50", "upper": "1.50", "exact": True, "warm": True, "count": 1,
        "count_lower": 1, "count_upper": 1, "fired": False, "terms": None,
    }  # fmt: skip


def test_values_have_the_scale_of_their_rule():
    aggregates = [
        ("sum", "amount"),
        ("sum", "fee"),
        ("avg", "amount"),
        ("avg", "fee"),
        ("min", "amount"),
        ("count", None),
    ]
    rules = [
        rule(f"{function}-{measure}", aggregate={"function": function, "measure": measure})
        for function, measure in aggregates
    ]
    rows = [row("a", 1, amount="-1.00", fee=1), row("b", 2, amount="0.00", fee=1), row("c", 3, amount="0.00", fee=0)]
    lines = lines_of(first_rule_set(rules), rows)[columns.EVALUATIONS]
    assert {line["rule_id"]: line["value"] for line in lines if line["event_id"] == "c"} == {
        "sum-amount": "-1.00", "sum-fee": "2", "avg-amount": "-0.33333333", "avg-fee": "0.666667",
        "min-amount": "-1.00", "count-None": "3",
    }  # fmt: skip


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xyz")), max_size=12))
def test_lines_are_in_arrival_order_and_rules_in_that_of_the_rule_file(events):
    rules = [rule("z", group_by=["kind"]), rule("m", limit=LOW), rule("a", group_by=["kind"], limit=LOW), rule("b")]
    rows = [row(f"e{n}", at, payer=payer) for n, (at, payer) in enumerate(events)]
    found = lines_of(first_rule_set(rules), rows)
    rank = {each.rule_id: index for index, each in enumerate(rules)}
    for output in (columns.EVALUATIONS, columns.ALERTS):
        order = [(int(line["event_id"][1:]), rank[line["rule_id"]]) for line in found.get(output, [])]
        assert order == sorted(order)
    late = [int(line["event_id"][1:]) for line in found.get(columns.LATE_EVENTS, [])]
    assert late == sorted(late)


def test_side_outputs_say_which_group_and_where():
    rows = [row("a", 10), row("b", 10), row("a", 10), row("c", 5), row("x", 1, amount="ten", raw="line")]
    found = lines_of(first_rule_set([rule("r")]), rows)
    of_key = {"group": "payer", "group_by": ["payer"], "key": {"payer": "é"}}
    (collision,), (duplicate,), (late,) = (
        found[name] for name in (columns.COLLISIONS, columns.DUPLICATES, columns.LATE_EVENTS)
    )
    assert collision == {
        "event_id": "b", "other_event_id": "a", **of_key, "event_time": 10, "kept": True, "warm": True, "position": 2,
    }  # fmt: skip
    assert duplicate.pop("event")["amount"] == "1.50"
    differing = {"compared": ["at", "amount"], "other_values": {}, "own_values": {}}
    assert duplicate == {"event_id": "a", **of_key, "event_time": 10, **differing, "warm": True, "position": 3}
    assert late == {
        "event_id": "c", **of_key, "event_time": 5, "clock": 10, "applied": True, "too_late": False,
        "other_event_id": None, "warm": True, "position": 4,
    }  # fmt: skip
    assert found[columns.DEAD_LETTERS] == [
        {"position": 5, "reason": "amount: 'ten' is not a decimal number", "raw": "line"}
    ]


def test_an_alert_carries_its_event():
    (alert,) = lines_of(first_rule_set([rule("r", limit=LOW)]), [row("a", 10)])[columns.ALERTS]
    assert (alert["value"], alert["limit"], alert["operator"]) == ("1.50", "-1000000000", ">")
    assert (alert["window_start"], alert["window_end"]) == (10 - 3_600_000, 10)
    assert alert["event"] == {"id": "a", "at": 10, "payer": "é", "kind": "a", "account": 7, "vip": None} | {
        "amount": "1.50", "fee": "2",
    }  # fmt: skip


def test_a_measure_that_was_null_is_null_in_the_event_of_an_alert():
    (alert,) = lines_of(first_rule_set([rule("r", limit=LOW)]), [row("a", 10, fee=None)])[columns.ALERTS]
    assert alert["event"]["fee"] is None


def test_a_value_that_is_of_no_rule_has_the_digits_of_the_event_schema():
    writer, digits = JsonLines(first_rule_set([rule()]), SCHEMA), SCHEMA.largest_scale
    stored = Decimal(12).scaleb(-digits).quantize(Decimal(1).scaleb(-digits - 6))
    rows = pa.Table.from_pylist([{"amount": stored, "source": "a", "source_order": 0, "position": 1}])
    (line,) = writer.lines("side", rows)
    assert json.loads(line)["amount"] == str(Decimal(12).scaleb(-digits))


def test_names_and_values_that_look_like_formats_come_out_as_they_are():
    rows = pa.Table.from_pylist([{"50%s {} \\": '100% {x} %(y)s\n"', "source": "a", "source_order": 0, "position": 1}])
    (line,) = JsonLines(first_rule_set([rule()]), SCHEMA).lines("side", rows)
    assert json.loads(line) == {"50%s {} \\": '100% {x} %(y)s\n"', "position": 1}


def test_no_rows_are_no_lines():
    rows = pa.table({"source": [], "source_order": [], "position": []})
    assert [*JsonLines(first_rule_set([rule()]), SCHEMA).lines("side", rows)] == []
