"""Rows into events: every reason for a dead letter, and what may be null."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.events.arrivals import (
    RAW,
    MissingColumn,
    check_columns,
    events_json,
    field_column,
    parse,
    without_column,
)
from tests.core.examples import SCHEMA
from tests.core.pipeline import arrivals

NEEDED = frozenset({"payer", "amount"})
GOOD = {"id": "e", "at": 1000, "payer": "p", "kind": "a", "account": 7, "vip": "true", "amount": "1.50", "fee": 3}


def parsed(*rows, needed=NEEDED):
    return parse(arrivals(rows, SCHEMA), SCHEMA, needed)


def test_good_rows_are_events_in_their_order():
    rows = [GOOD | {"id": f"e{n}", "position": 10 - n, "source": f"s{n}", "source_order": n} for n in range(3)]
    events, dead_letters = parsed(*rows)
    assert dead_letters == []
    assert events.event_id.to_pylist() == ["e0", "e1", "e2"]
    assert events.position.tolist() == [10, 9, 8]
    assert events.source.to_pylist() == ["s0", "s1", "s2"]
    assert events.source_order.tolist() == [0, 1, 2]
    assert events.times_ms.tolist() == [1000] * 3
    attributes = {name: values.to_pylist()[0] for name, values in events.attributes.items()}
    assert attributes == {"payer": "p", "kind": "a", "account": 7, "vip": True}
    assert {name: values.tolist()[0] for name, values in events.measures.items()} == {"amount": 150, "fee": 3}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"broken": "broken JSON: not an object"}, "broken JSON: not an object"),
        ({"broken": "broken CSV", "id": None, "amount": "x"}, "broken CSV"),
        ({"id": None}, "id: is missing or null"),
        ({"id": ""}, "id: is empty"),
        ({"at": None}, "at: is missing or null"),
        ({"at": "noon"}, "at: 'noon' is not a decimal number"),
        ({"at": 10**16}, "at: '10000000000000000' is an absurd time: outside 1900-01-01 to 2200-01-01"),
        ({"payer": None}, "payer: is missing or null"),
        ({"amount": None}, "amount: is missing or null"),
        ({"amount": "1.005"}, "amount: 1.005 has more than 2 digits after the point"),
        ({"amount": "ten"}, "amount: 'ten' is not a decimal number"),
        (
            {"fee": 2**63},
            "fee: 9223372036854775808 is too large: at scale 0 a measure holds up to 9223372036854775807",
        ),
        ({"account": "x"}, "account: 'x' is not a decimal number"),
        ({"vip": "maybe"}, "vip: 'maybe' is neither true nor false"),
        ({"id": None, "at": None}, "id: is missing or null"),
        ({"payer": None, "at": "noon"}, "payer: is missing or null"),
    ],
)
def test_a_row_that_is_no_event_is_a_dead_letter_with_its_position_reason_and_text(change, reason):
    bad = GOOD | {"source": "f", "source_order": 5, "position": 9, "raw": "the line"} | change
    events, dead_letters = parsed(GOOD, bad, GOOD | {"id": "z"})
    assert [vars(each) for each in dead_letters] == [
        {"source": "f", "source_order": 5, "position": 9, "reason": reason, "raw": "the line"}
    ]
    assert events.event_id.to_pylist() == ["e", "z"]
    assert events.measures["amount"].tolist() == [150, 150]


def test_what_no_rule_needs_may_be_null():
    events, dead_letters = parsed(GOOD | {"kind": None, "account": None, "vip": None, "fee": None})
    assert dead_letters == []
    assert [events.attributes[name].to_pylist() for name in ("kind", "account", "vip")] == [[None]] * 3


@pytest.mark.parametrize("field", ["kind", "account", "vip", "fee"])
def test_what_a_rule_needs_may_not_be_null(field, as_worded):
    _, dead_letters = parsed(GOOD | {field: None}, needed=NEEDED | {field})
    (dead_letter,) = dead_letters
    assert as_worded(dead_letter.reason)


def test_what_no_rule_needs_must_still_fit_the_schema(as_worded):
    _, dead_letters = parsed(GOOD | {"fee": "x"})
    (dead_letter,) = dead_letters
    assert as_worded(dead_letter.reason)


def test_empty_text_is_a_value_of_an_attribute():
    events, dead_letters = parsed(GOOD | {"payer": ""})
    assert (events.attributes["payer"].to_pylist(), dead_letters) == ([""], [])


@given(st.lists(st.sampled_from([{}, {"id": None}, {"amount": "x"}, {"at": ""}, {"broken": "b"}]), max_size=12))
def test_every_row_is_an_event_or_a_dead_letter(changes):
    rows = [GOOD | {"id": f"e{n}"} | change for n, change in enumerate(changes)]
    events, dead_letters = parsed(*rows)
    assert events.position.tolist() == [n for n, change in enumerate(changes, 1) if not change]
    assert [each.position for each in dead_letters] == [n for n, change in enumerate(changes, 1) if change]
    assert len(events) + len(dead_letters) == len(rows)
    assert all(len(values) == len(events) for values in (*events.attributes.values(), *events.measures.values()))


def test_a_typed_row_without_text_is_shown_as_json(as_worded):
    rows = arrivals([GOOD, GOOD], SCHEMA)
    rows = rows.drop_columns([RAW])
    at = rows.schema.get_field_index(field_column(SCHEMA.field_names.index("amount")))
    rows = rows.set_column(at, rows.schema.names[at], pa.array([Decimal("1.005"), Decimal("2.000")]))
    _, (dead_letter,) = parse(rows, SCHEMA, NEEDED)
    shown = json.loads(dead_letter.raw)
    assert list(shown) == SCHEMA.field_names
    assert (shown["id"], shown["amount"]) == ("e", "1.005")
    assert as_worded(dead_letter.reason)


def test_an_event_as_json_has_numbers_as_they_are_declared():
    fields = {"payer": ["é"], "account": [7], "vip": [False], "kind": [None], "amount": [-5], "fee": [3]}
    assert events_json(SCHEMA, ["e1"], [-1], fields) == [
        '{"id": "e1", "at": -1, "payer": "é", "account": 7, "vip": false, "kind": null, "amount": "-0.05", "fee": "3"}'
    ]


def test_id_time_and_what_orders_rows_must_be_there_and_other_columns_that_are_not_are_told(as_worded):
    check_columns(["at", "seen", "id", "more"], SCHEMA, "f.csv", "seen")
    for missing in ("id", "at", "seen"):
        there = [name for name in ("id", "at", "seen") if name != missing]
        with pytest.raises(MissingColumn, check=as_worded):
            check_columns(there, SCHEMA, "f.csv", "seen")
    assert without_column(["id", "at", "amount"], SCHEMA, {"amount"}) == ""
    told = "no column 'amount', 'payer', which rules need: taken as missing"
    assert without_column(["id", "at"], SCHEMA, {"payer", "amount", "size"}) == told
