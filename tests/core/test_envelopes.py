"""Messages in the envelope of Debezium, whose published examples are the golden cases; and CloudEvents without one.

Source: the example events of the PostgreSQL connector,
https://github.com/debezium/debezium/blob/6c5b02b0/documentation/modules/ROOT/pages/connectors/postgresql.adoc, whose
`schema` is cut short.
"""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.events.arrivals import SKIPPED
from buckets.events.conversion import A_LIST
from buckets.events.decoded import PinnedProtobuf
from tests.core.avro_events import encoded
from tests.core.pinned import Pinned
from tests.core.protobuf_events import encoded as encoded_protobuf
from tests.core.read_messages import TestMessage, read_messages

DEBEZIUM = {"envelope": "debezium"}

# --- Debezium -------------------------------------------------------------------------------------------------

SOURCE = {
    "version": "2.4.0.Final",
    "connector": "postgresql",
    "name": "PostgreSQL_server",
    "ts_ms": 1559033904863,
    "snapshot": True,
    "db": "postgres",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "customers",
    "txId": 555,
    "lsn": 24023128,
    "xmin": None,
}
ANNE = {"id": 1, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
CREATE = {"before": None, "after": ANNE, "source": SOURCE, "op": "c", "ts_ms": 1559033904863}
UPDATE = {
    "before": {"id": 1},
    "after": ANNE | {"first_name": "Anne Marie"},
    "source": SOURCE | {"snapshot": False, "txId": 556},
    "op": "u",
    "ts_ms": 1465584025523,
}
DELETE = {
    "before": {"id": 1},
    "after": None,
    "source": SOURCE | {"snapshot": False, "txId": 556, "lsn": 46523128},
    "op": "d",
    "ts_ms": 1465581902461,
}
TRUNCATE = {"source": SOURCE | {"txId": 556, "lsn": 46523128}, "op": "t", "ts_ms": 1559033904961}
LOGGED = {
    "source": SOURCE | {"schema": "", "table": "", "txId": 556, "lsn": 46523128},
    "op": "m",
    "ts_ms": 1559033904961,
    "message": {"prefix": "foo", "content": "Ymfy"},
}
ENVELOPE_SCHEMA = {
    "type": "struct",
    "fields": [
        {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}], "field": "before"},
        {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}], "field": "after"},
        {"type": "string", "optional": False, "field": "op"},
    ],
    "name": "PostgreSQL_server.inventory.customers.Envelope",
}
CUSTOMERS = {
    "event_id": "id",
    "event_time": "changed",
    "attributes": {"first_name": "string", "email": "string", "op": "string", "table": "string", "snapshot": "boolean"},
    "origins": {
        "changed": "envelope.source.ts_ms",
        "op": "envelope.op",
        "table": "envelope.source.table",
        "snapshot": "envelope.source.snapshot",
    },
}
CREATED = {
    "id": "1",
    "changed": 1559033904863,
    "first_name": "Anne",
    "email": "annek@noanswer.org",
    "op": "c",
    "table": "customers",
    "snapshot": True,
}
UPDATED = CREATED | {"first_name": "Anne Marie", "op": "u", "snapshot": False}


def changes(*values):
    return [TestMessage(None if value is None else json.dumps(value).encode()) for value in values]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_published_changes_are_events_or_skipped_with_and_without_a_schema(tmp_path, is_wrapped):
    published = [CREATE, UPDATE, DELETE, TRUNCATE, LOGGED]
    values = [{"schema": ENVELOPE_SCHEMA, "payload": change} if is_wrapped else change for change in published]
    nothing = {"schema": None, "payload": None} if is_wrapped else None
    read = read_messages(tmp_path, changes(*values, nothing), CUSTOMERS, DEBEZIUM)
    assert read.events == [CREATED, UPDATED]
    assert read.dead == {}
    assert read.skipped == {"deleted": 1, "truncated": 1, "logged": 1, "tombstone": 1}


def test_the_published_changes_are_read_from_avro_too(tmp_path):
    value = {"type": "record", "name": "Value", "fields": [_field("id", "int"), _field("first_name"), _field("email")]}
    source = [_field("ts_ms", "long"), _field("table"), _field("snapshot", ["null", "boolean"])]
    fields = [
        _field("before", ["null", value]),
        _field("after", ["null", "Value"]),
        _field("source", {"type": "record", "name": "Source", "fields": source}),
        _field("op"),
    ]
    avro = {"type": "record", "name": "Envelope", "fields": fields}

    def message(change):
        before = None if change["before"] is None else ANNE | change["before"]
        return TestMessage(encoded(avro, change | {"before": before}))

    messages = [message(CREATE), message(UPDATE), message(DELETE), TestMessage(None), TestMessage(b"\x07")]
    messages.append(message(CREATE | {"op": "x"}))
    source = DEBEZIUM | {"format": "avro", "schema_file": "envelope.avsc"}
    read = read_messages(tmp_path, messages, CUSTOMERS, source, Pinned(json.dumps(avro)))
    assert read.events == [CREATED, UPDATED]
    assert read.dead == {
        4: "broken Avro: a union has no such branch at byte 2",
        5: "op: 'x' is not an operation of Debezium",
    }
    assert read.skipped == {"deleted": 1, "tombstone": 1}


PROTO = """
syntax = "proto3";
message Envelope { Value before = 1; Value after = 2; Source source = 3; string op = 4; int64 ts_ms = 5; }
message Value { int32 id = 1; string first_name = 2; string last_name = 3; optional string email = 4; }
message Source { int64 ts_ms = 1; string table = 2; optional bool snapshot = 3; }
"""


def test_the_published_changes_are_read_from_protobuf_too(tmp_path):
    def message(change):
        known = {name: change["source"][name] for name in ("ts_ms", "table", "snapshot")}
        given = {name: value for name, value in change.items() if value is not None} | {"source": known}
        return TestMessage(encoded_protobuf(PROTO, given, "Envelope"))

    messages = [message(CREATE), message(UPDATE), message(DELETE), TestMessage(None), TestMessage(b"\x07")]
    messages += [message(CREATE | {"op": "x"}), TestMessage(b""), message(CREATE | {"after": None})]
    source = DEBEZIUM | {"format": "protobuf", "schema_file": "envelope.proto", "message": "Envelope"}
    pinned = Pinned(None, PinnedProtobuf(text=PROTO, message="Envelope"))
    read = read_messages(tmp_path, messages, CUSTOMERS, source, pinned)
    assert read.events == [CREATED, UPDATED]
    assert read.dead == {
        4: "broken Protobuf: is not a message of type Envelope",
        5: "op: 'x' is not an operation of Debezium",
        6: "op: '' is not an operation of Debezium",
        7: "id: is missing or null",
    }
    assert read.skipped == {"deleted": 1, "tombstone": 1}
    whole_source = {"attributes": {"source": "string"}, "origins": {"source": "envelope.source"}}
    read = read_messages(tmp_path, messages[:3], CUSTOMERS | whole_source, source, pinned)
    assert read.dead == dict.fromkeys((0, 1), "source: is an object, and must be one value")
    assert read.skipped == {"deleted": 1}


def _field(name, kind="string"):
    return {"name": name, "type": kind}


def test_a_change_that_is_broken_is_one_dead_letter_and_its_neighbours_are_read(tmp_path):
    whole = json.dumps(CREATE).encode()
    values = [
        whole,
        b"",
        whole[:-1],
        b"[]",
        json.dumps(ANNE | {"payload": None}).encode(),
        whole.replace(b'"op": "c"', b'"op": "x"'),
        whole.replace(b'"op": "c"', b'"op": "c", "op": "u"'),
        whole.replace(b'"after": {', b'"after": {"id": 2, '),
        json.dumps(CREATE | {"after": None}).encode(),
        json.dumps(CREATE | {"after": [1]}).encode(),
        json.dumps(CREATE | {"source": 5}).encode(),
        b"\xff" + whole,
        whole.replace(b'"first_name": "Anne"', b'"first_name": ["Anne"]'),
        whole,
    ]
    read = read_messages(tmp_path, [TestMessage(value) for value in values], CUSTOMERS, DEBEZIUM)
    assert read.events == [CREATED, CREATED]
    assert read.dead == {
        1: "broken JSON: Expecting value at character 1",
        2: "broken JSON: Expecting ',' delimiter at character 433",
        3: "is a list, and must be an object",
        4: "op: is missing or null, and Debezium says there what has changed",
        5: "op: 'x' is not an operation of Debezium",
        6: "op: is given twice",
        7: "id: is given twice",
        8: "after: is missing or null",
        9: "after: is a list, and must be an object",
        10: "source: is one value, and must be an object",
        11: "is not valid UTF-8",
        12: f"first_name: {A_LIST}",
    }


def test_numbers_and_texts_of_a_change_are_read_to_the_digit_however_it_is_written(tmp_path):
    events = {"event_id": "id", "event_time": "t", "attributes": {"kind": "string"}, "measures": {"v": {"scale": 4}}}
    row = rb'{"id":"\u00e9", "t":1, "v":12345678901234.5670, "kind":"op", "after":{"op":1}}'
    written = [b'{"op":"c","after":' + row + b"}", b'{"\\u006fp":"c","after":' + row + b',"other":"\\ud800"}']
    read = read_messages(tmp_path, [TestMessage(value) for value in written], events, DEBEZIUM)
    one = {"id": "é", "t": 1, "kind": "op", "v": 123456789012345670}
    assert (read.events, read.dead) == ([one, one], {})


def test_reasons_are_short_however_long_a_value_is(tmp_path):
    read = read_messages(tmp_path, changes(CREATE | {"op": "x" * 5000}), CUSTOMERS, DEBEZIUM)
    assert len(read.dead[0]) < 350


# --- CloudEvents ----------------------------------------------------------------------------------------------


def test_cloud_events_are_read_by_the_paths_and_headers_of_their_attributes(tmp_path):
    event = {"specversion": "1.0", "id": "C234", "time": "2018-04-05T17:31:00Z", "data": {"payer": "p1"}}
    structured = {"event_id": "id", "event_time": {"field": "time", "unit": "iso8601"}}
    structured |= {"attributes": {"data.payer": "string"}}
    binary = {"event_id": "id", "event_time": {"field": "time", "unit": "iso8601"}, "attributes": {"payer": "string"}}
    binary |= {"origins": {name: f"headers.ce_{name}" for name in ("id", "time")}}
    headers = [(f"ce_{name}", event[name].encode()) for name in ("specversion", "id", "time")]
    read = {"id": "C234", "time": 1522949460000}
    whole, data = (
        TestMessage(json.dumps(event).encode()),
        TestMessage(json.dumps(event["data"]).encode(), headers=headers),
    )
    assert read_messages(tmp_path, [whole], structured).events == [read | {"data.payer": "p1"}]
    assert read_messages(tmp_path, [data], binary).events == [read | {"payer": "p1"}]


def test_no_reason_of_a_field_is_that_of_a_message_that_is_skipped():
    assert all(reason.startswith("skipped: ") and not reason.endswith("null") for reason in SKIPPED)


# --- Laws -----------------------------------------------------------------------------------------------------

PAYMENT = {
    "event_id": "id",
    "event_time": "t",
    "attributes": {"op": "string", "after": "long", "customer.country": "string", "vip": "boolean"},
    "measures": {"data": {"scale": 2}},
}
NAMES = ["id", "t", "op", "after", "customer", "country", "vip", "data", "payload", "specversion", "schema", "other"]
ESCAPED = {'"op"': r'"\u006fp"', '"after"': r'"\u0061fter"', '"data"': r'"d\u0061ta"', '"payload"': r'"p\u0061yload"'}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.decimals(-1000, 1000, places=2).map(float),
    st.sampled_from(["c", "d", "1", "12.50", "true", "1.0", "op", 'a "quoted" op', "\ud800", "zoë"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
)
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=9)


def text_of(pairs, are_escaped):
    """An object in JSON, whose names may be there twice or be written with escapes."""
    written = ",".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=True)}" for name, value in pairs)
    for plain, escaped in ESCAPED.items():
        written = written.replace(plain, escaped) if are_escaped else written
    return f"{{{written}}}"


@given(PAIRS, PAIRS, st.sampled_from("cru"), st.booleans(), st.booleans())
def test_an_event_in_an_envelope_is_the_event_or_the_dead_letter_that_it_is_alone(
    tmp_path_factory, pairs, others, operation, are_escaped, is_wrapped
):
    folder, text, before = tmp_path_factory.getbasetemp(), text_of(pairs, are_escaped), text_of(others, are_escaped)
    alone = read_messages(folder, [TestMessage(text.encode())], PAYMENT)
    change = f'{{"before": {before}, "after": {text}, "op": "{operation}", "source": {{"op": "d"}}}}'
    change = f'{{"schema": {{"field": "after"}}, "payload": {change}}}' if is_wrapped else change
    changed = TestMessage(change.encode())
    assert read_messages(folder, [changed, changed], PAYMENT, DEBEZIUM) == _twice(alone)


def _twice(read):
    dead = dict.fromkeys((0, 1), read.dead[0]) if read.dead else {}
    return read.events * 2, dead, {}


@given(st.binary(max_size=12), st.integers(0, 200), st.integers(0, 7))
def test_damaged_envelopes_are_a_dead_letter_each_or_an_event_and_lose_no_neighbour(
    tmp_path_factory, noise, place, kind
):
    folder = tmp_path_factory.getbasetemp()
    good = json.dumps(CREATE).encode()
    at = place % len(good)
    damaged = [good[:at], good[:at] + noise, good[:at] + noise + good[at:], good[:at] + noise + good[at + 1 :]]
    messages = [TestMessage(good), TestMessage(damaged[kind % 4]), TestMessage(good)]
    read = read_messages(folder, messages, CUSTOMERS, DEBEZIUM)
    assert len(read.events) + len(read.dead) + sum(read.skipped.values()) == 3
    assert read.events[0] == read.events[-1] == CREATED


# --- Debezium: decimals and times by the schema of Kafka Connect -----------------------------------------------

PAID = {"event_id": "id", "event_time": "paid", "measures": {"amount": {"scale": 2}, "card.fee": {"scale": 4}}}
CONNECT = {"DECIMAL": "org.apache.kafka.connect.data.Decimal", "VARIABLE": "io.debezium.data.VariableScaleDecimal"}
VARIABLE_PARTS = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
TIMES = "io.debezium.time."


def decimal_type(scale, **more):
    return {"type": "bytes", "name": CONNECT["DECIMAL"], "parameters": {"scale": str(scale)}} | more


def base64_of(number: int) -> str:
    """A whole number as Connect writes it: the fewest bytes in two's complement."""
    return b64encode(number.to_bytes(number.bit_length() // 8 + 1, signed=True)).decode()


def wrapped(amount, fee, paid, kinds):
    row = [
        {"type": "string", "field": "id"},
        kinds["paid"] | {"field": "paid"},
        *([kinds["amount"] | {"field": "amount"}] if "amount" in kinds else []),
        {"type": "struct", "fields": [kinds["fee"] | {"field": "fee"}], "field": "card"},
    ]
    fields = [{"type": "struct", "fields": row, "field": side} for side in ("before", "after")]
    after = {"id": "a", "paid": paid, "amount": amount, "card": {"fee": fee}}
    return {
        "schema": {"type": "struct", "fields": [*fields, {"type": "string", "field": "op"}]},
        "payload": {"before": None, "after": after, "source": SOURCE, "op": "c", "ts_ms": 1},
    }


MS = {"type": "int64", "name": f"{TIMES}Timestamp"}
KINDS = {"paid": MS, "amount": decimal_type(2), "fee": decimal_type(4)}


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(10**6), 10**6),
    st.integers(0, 12),
)
def test_decimals_in_base64_are_read_by_the_schema_beside_them(tmp_path_factory, scaled, fee, scale):
    kinds = KINDS | {"fee": decimal_type(scale)}
    value = wrapped(base64_of(scaled), base64_of(fee * 10**scale), 5, kinds)
    variable = {"type": "struct", "name": CONNECT["VARIABLE"], "fields": VARIABLE_PARTS}
    same = wrapped(
        {"scale": 2, "value": base64_of(scaled)},
        {"scale": scale, "value": base64_of(fee * 10**scale)},
        5,
        KINDS | {"amount": variable, "fee": variable},
    )
    read = read_messages(tmp_path_factory.getbasetemp(), changes(value, same), PAID, DEBEZIUM)
    assert read.dead == {}
    assert read.events == [{"id": "a", "paid": 5, "amount": scaled, "card.fee": fee * 10**4}] * 2


def test_base64_of_digits_alone_is_the_number_that_the_schema_says(tmp_path):
    """`1234` is three bytes: -2658824 with two digits behind the point."""
    read = read_messages(tmp_path, changes(wrapped("1234", "AA==", 5, KINDS)), PAID, DEBEZIUM)
    assert read.events == [{"id": "a", "paid": 5, "amount": -2658824, "card.fee": 0}]


NUMBERED = {
    "event_id": "id",
    "event_time": "paid",
    "attributes": {"card": "long", "account": "string", "photo": "string"},
    "origins": {"paid": "envelope.ts_ms"},
}


def test_decimals_are_the_numbers_that_the_schema_says_in_ids_and_attributes_too(tmp_path):
    """A database without integers, as Oracle, has its ids in decimals."""
    variable = {"type": "struct", "name": CONNECT["VARIABLE"], "fields": VARIABLE_PARTS}
    row = [
        decimal_type(0, field="id"),
        decimal_type(0, field="card"),
        variable | {"field": "account"},
        {"type": "bytes", "field": "photo"},
    ]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": row, "field": "after"}]}
    after = {"id": base64_of(77), "card": "1234", "account": {"scale": 0, "value": "1234"}, "photo": "1234"}
    value = {"schema": schema, "payload": {"after": after, "op": "c", "ts_ms": 5}}
    bare = value["payload"] | {"after": after | {"account": "1234"}}
    read = read_messages(tmp_path, changes(value, bare), NUMBERED, DEBEZIUM)
    assert read.events == [{"id": "77", "paid": 5, "card": -2658824, "account": "-2658824", "photo": "1234"}]
    assert list(read.dead) == [1]
    assert read.dead[1].startswith("card: '1234' may be digits")


def test_decimals_in_keys_are_read_by_the_schema_beside_them(tmp_path):
    events = NUMBERED | {"origins": NUMBERED["origins"] | {"id": "key.id", "card": "key.card"}}
    key = {"id": base64_of(77), "card": "1234"}
    fields = [decimal_type(0, field="id"), decimal_type(0, field="card")]
    keys = [{"schema": {"type": "struct", "fields": fields}, "payload": key}, key, key | {"card": 7}]
    value = json.dumps({"after": {"account": "a"}, "op": "c", "ts_ms": 5}).encode()
    messages = [TestMessage(value, json.dumps(each).encode()) for each in keys] + [
        TestMessage(value, b'{"card": "1234",')
    ]
    read = read_messages(tmp_path, messages, events, DEBEZIUM, Pinned(key_format="json"))
    assert [(event["id"], event["card"]) for event in read.events] == [("77", -2658824), (base64_of(77), 7)]
    assert list(read.dead) == [1, 3]
    assert read.dead[1].startswith("key.card: '1234' may be digits")
    assert read.dead[3].startswith("key: broken JSON")


@pytest.mark.parametrize("decimals", [{}, {"decimals": "string"}])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_text_that_may_be_digits_or_base64_is_refused_unless_something_says_what_it_is(tmp_path, decimals, is_wrapped):
    amounts = ["12.34", "-1234", "123", 1234, 12.34, "1234", "12345678", "1e10", "F3A=", "AZcT"]
    kinds = {"paid": MS, "fee": decimal_type(4)}
    values = [wrapped(amount, "AA==" if is_wrapped else "0.0001", 5, kinds) for amount in amounts]
    values = values if is_wrapped else [value["payload"] for value in values]
    read = read_messages(tmp_path, changes(*values), PAID, DEBEZIUM | decimals)
    plain = [1234, -123400, 12300, 123400, 1234]
    digits = [123400, 1234567800, 10**12] if decimals else []
    assert [event["amount"] for event in read.events] == plain + digits
    if decimals:
        assert read.dead == {8: "amount: 'F3A=' is not a decimal number", 9: "amount: 'AZcT' is not a decimal number"}
    else:
        assert list(read.dead) == [5, 6, 7, 8, 9]
        assert read.dead[5] == (
            "amount: '1234' may be digits, or a decimal in base64, whose scale no schema says; give the connector "
            "decimal.handling.mode=string and say `decimals: string` under source, or let its converter write schemas"
        )


def test_digits_that_the_schema_calls_a_string_are_digits(tmp_path):
    kinds = KINDS | {"amount": {"type": "string"}, "fee": {"type": "double"}}
    read = read_messages(tmp_path, changes(wrapped("1234", 0.5, 5, kinds)), PAID, DEBEZIUM)
    assert read.events == [{"id": "a", "paid": 5, "amount": 123400, "card.fee": 5000}]


NEW_YEAR_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("kind", "written", "time_ms"),
    [
        (f"{TIMES}Timestamp", NEW_YEAR_MS + 7, NEW_YEAR_MS + 7),
        (f"{TIMES}MicroTimestamp", (NEW_YEAR_MS + 7) * 1000 + 999, NEW_YEAR_MS + 7),
        (f"{TIMES}MicroTimestamp", -1, -1),
        (f"{TIMES}NanoTimestamp", (NEW_YEAR_MS + 7) * 10**6 + 1, NEW_YEAR_MS + 7),
        (f"{TIMES}Date", NEW_YEAR_MS // 86_400_000, NEW_YEAR_MS),
        (f"{TIMES}ZonedTimestamp", "2026-01-01T01:00:00.007+01:00", NEW_YEAR_MS + 7),
        ("org.apache.kafka.connect.data.Timestamp", NEW_YEAR_MS + 7, NEW_YEAR_MS + 7),
        ("org.apache.kafka.connect.data.Date", NEW_YEAR_MS // 86_400_000, NEW_YEAR_MS),
    ],
)
@pytest.mark.parametrize("unit", ["ms", "s", "iso8601"])
def test_the_time_of_an_event_is_read_by_the_schema_whatever_its_unit(tmp_path, kind, written, time_ms, unit):
    kinds = KINDS | {"paid": {"type": "int64", "name": kind}}
    events = PAID | {"event_time": {"field": "paid", "unit": unit}}
    read = read_messages(tmp_path, changes(wrapped("AA==", "AA==", written, kinds)), events, DEBEZIUM)
    assert (read.dead, [event["paid"] for event in read.events]) == ({}, [time_ms])


def test_a_value_that_is_none_of_its_type_is_a_dead_letter(tmp_path):
    unscaled = {"type": "bytes", "name": CONNECT["DECIMAL"]}
    values = [
        wrapped("12.34", "AA==", 5, KINDS),
        wrapped(5, "AA==", 5, KINDS),
        wrapped("", "AA==", 5, KINDS),
        wrapped("AA==", "AA==", 5, KINDS | {"amount": {"type": "bytes"}}),
        wrapped("AA==", "AA==", 5, KINDS | {"amount": unscaled}),
        wrapped("AA==", "AA==", "x", KINDS),
        wrapped("AA==", "AA==", 10**30, KINDS),
        wrapped(base64_of(2**63), "AA==", 5, KINDS),
        wrapped("AA==", base64_of(1), 5, KINDS | {"fee": decimal_type(5)}),
        wrapped(None, None, 5, KINDS),
    ]
    read = read_messages(tmp_path, changes(*values), PAID, DEBEZIUM)
    assert read.events == [{"id": "a", "paid": 5, "amount": None, "card.fee": None}]
    assert read.dead == {
        0: "amount: '12.34' is not a decimal in base64, as the schema beside it says",
        1: "amount: '5' is not a decimal in base64, as the schema beside it says",
        2: "amount: '' is not a decimal in base64, as the schema beside it says",
        3: "amount: is bytes, and the schema beside it does not say that they are a decimal",
        4: "amount: is a decimal, and the schema beside it does not say its scale",
        5: "paid: 'x' is not a number, as a time of type io.debezium.time.Timestamp is",
        6: "paid: '1000000000000000000000000000000' is an absurd time: outside 1900-01-01 to 2200-01-01",
        7: "amount: 92233720368547758.08 is too large: at scale 2 a measure holds up to 92233720368547758.07",
        8: "card.fee: 0.00001 has more than 4 digits after the point",
    }


def test_what_a_row_was_before_is_read_by_the_schema_too(tmp_path):
    value = wrapped("AA==", "AA==", 5, KINDS)
    value["payload"]["before"] = value["payload"]["after"] | {"amount": "1234"}
    events = PAID | {"measures": PAID["measures"] | {"was": {"scale": 2}}, "origins": {"was": "envelope.before.amount"}}
    read = read_messages(tmp_path, changes(value, value["payload"]), events, DEBEZIUM)
    assert [event["was"] for event in read.events] == [-2658824]
    assert read.dead.keys() == {1}


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "AA==", "1234", "ß"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["fields", "field", "name", "type", "after", "scale", "value"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.sampled_from(["schema", "after", "field", "scale", "value"]), ANY_JSON), max_size=3))
def test_whatever_a_schema_says_its_message_is_an_event_or_a_dead_letter_and_its_neighbour_is_read(
    tmp_path_factory, changes_made
):
    value, whole = (wrapped("AA==", "AA==", 5, KINDS) for _ in range(2))
    after = value["schema"]["fields"][1]
    for place, anything in changes_made:
        if place == "schema":
            value["schema"] = anything
        elif place == "after":
            after["fields"] = anything
        elif place == "field" and isinstance(after["fields"], list):
            after["fields"].insert(0, anything)
        elif place == "scale":
            unknown = decimal_type(0) | {"parameters": {"scale": anything}}
            value["schema"] = wrapped(0, 0, 0, KINDS | {"amount": unknown})["schema"]
        elif place == "value":
            value["payload"]["after"]["amount"] = anything
    read = read_messages(tmp_path_factory.getbasetemp(), changes(value, whole), PAID, DEBEZIUM)
    assert read.events[-1] == {"id": "a", "paid": 5, "amount": 0, "card.fee": 0}
    assert len(read.events) + len(read.dead) == 2
