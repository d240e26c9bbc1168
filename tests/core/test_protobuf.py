"""Messages in Protobuf as events: what each type becomes, what changes of a schema do, and what is no event."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from buckets.checkpoint.writer_schemas import RegisteredSchemas
from buckets.config.source import SourceSettings
from buckets.errors import BucketsError
from buckets.events.arrivals import parse
from buckets.events.conversion import A_LIST
from buckets.events.decoded import NO_PREFIX, PinnedProtobuf, SchemaError, WriterSchema
from buckets.events.protobuf.proto_schema import message_named, read_schema
from buckets.events.protobuf.protobuf_events import read_registered
from buckets.events.protobuf.wanted import pinned_with
from buckets.events.schema import EventSchema
from tests.core.avro_events import rows_of
from tests.core.pinned import Pinned, topic_messages
from tests.core.protobuf_events import descriptors_of, encoded

EVENTS: dict[str, Any] = {
    "event_id": "id",
    "event_time": "at",
    "attributes": {"country": "string", "vip": "boolean", "visits": "long"},
    "measures": {"amount": {"scale": 2}},
}
SCHEMA = EventSchema.model_validate(EVENTS)
AT_MS = 1_700_000_000_123
FIELDS = {"id": "string id = 1", "at": "int64 at = 2", "country": "optional string country = 3", "vip": "bool vip = 4",
          "visits": "optional int64 visits = 5", "amount": "string amount = 6"}  # fmt: skip


def proto(*others: str, **fields: str | None) -> str:
    """The schema of a payment; `None` takes a field out, and `others` stand behind the message."""
    chosen = [field for field in (FIELDS | fields).values() if field is not None]
    imports = "".join(f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "wrappers", "duration"))
    body = " ".join(field if field.endswith("}") else f"{field};" for field in chosen)
    return f'syntax = "proto3"; package bank; {imports} message Payment {{ {body} }} {" ".join(others)}'


def message(text: str, number: int = 1, **values: Any) -> bytes:
    """A payment behind the prefix of a registry, from its JSON."""
    known = message_named(read_schema(WriterSchema("PROTOBUF", text)), "Payment").fields_by_name
    plain = {"id": "e1", "at": AT_MS, "country": "DE", "amount": "12.50"}
    values = {name: value for name, value in plain.items() if name in known} | values
    return b"\0" + number.to_bytes(4) + b"\0" + encoded(text, values, "Payment")


def read(*messages: bytes, needed=(), schema=SCHEMA, pinned=(), **schemas: str):
    """Events as mappings of fields, and the reasons of dead letters by position."""

    def schema_of(number: int) -> WriterSchema:
        if f"s{number}" not in schemas:
            reason = "is not in the registry"
            raise SchemaError(reason)
        return WriterSchema("PROTOBUF", schemas[f"s{number}"])

    events, dead = parse(read_registered(rows_of(messages), schema, schema_of, pinned), schema, frozenset(needed))
    columns = {"id": events.event_id, "at": pa.array(events.times_ms)} | events.attributes | events.measures
    found = [
        dict(zip(columns, row, strict=True)) for row in zip(*(c.to_pylist() for c in columns.values()), strict=True)
    ]
    return found, {letter.position: letter.reason for letter in dead}


PLAIN = proto()
PAID: Mapping[str, Any] = {"id": "e1", "at": AT_MS, "country": "DE", "vip": False, "visits": None, "amount": 1250}


def test_a_payment_is_read_to_the_digit_and_to_the_character():
    assert read(message(PLAIN, country="Åland 🏦", visits=7, vip=True), s1=PLAIN) == (
        [PAID | {"country": "Åland 🏦", "visits": 7, "vip": True}],
        {},
    )


# What is not there


def test_a_field_without_presence_has_its_default_and_an_optional_one_is_missing():
    schema = proto(visits="int64 visits = 5", vip="optional bool vip = 4", country="string country = 3")
    found, dead = read(message(schema, country=""), s1=schema)
    assert (found, dead) == ([PAID | {"country": "", "vip": None, "visits": 0}], {})


def test_a_field_of_proto2_has_the_default_that_its_schema_names_and_is_missing_without_one():
    schema = 'syntax = "proto2"; message Payment { required string id = 1; required int64 at = 2; \
        optional string country = 3 [default = "FR"]; optional bool vip = 4 [default = true]; \
        optional int64 visits = 5; optional double amount = 6 [default = 2.5]; }'
    found, dead = read(message(schema, country="DE", amount=0.1), message(schema)[:6] + b"\n\1x\x10\1", s1=schema)
    assert dead == {}
    assert found[0] == PAID | {"vip": True, "amount": 10}
    assert found[1] == {"id": "x", "at": 1, "country": "FR", "vip": True, "visits": None, "amount": 250}


def test_a_default_of_proto2_changes_nothing_about_the_values_of_other_messages():
    schema = 'syntax = "proto2"; message Payment { required string id = 1; required int64 at = 2; \
        optional bytes country = 3 [default = "FR"]; optional uint64 visits = 5 [default = 18446744073709551615]; \
        optional bool vip = 4 [default = true]; }'
    declared = EventSchema.model_validate(EVENTS | {"attributes": {"country": "string", "vip": "string"}})
    absent, whole = b"\0\0\0\0\1\0\n\1x\x10\1", b"\0\0\0\0\1\0\n\1y\x10\1\x28\x07\x20\1"
    found, dead = read(absent + b"\x20\0", whole + b"\x1a\1\xff", absent, s1=schema, schema=declared)
    assert found == []
    texts = {0: "vip: is false, and must be text", 2: "vip: is true, and must be text"}
    assert dead == texts | {1: "vip: is true, and must be text"}
    declared = EventSchema.model_validate(EVENTS | {"attributes": {"country": "string", "visits": "string"}})
    found, dead = read(absent, whole + b"\x1a\1\xff", whole, s1=schema, schema=declared)
    assert [(row["country"], row["visits"]) for row in found] == [("FR", str(2**64 - 1)), ("FR", "7")]
    assert dead == {1: "country: b'\\xff' is not text"}


def test_a_wrapper_is_its_value_or_missing():
    schema = proto(visits="google.protobuf.Int64Value visits = 5", country="google.protobuf.StringValue country = 3")
    found, _ = read(message(schema, visits="0", country=""), message(schema, country=None), s1=schema)
    assert [(row["visits"], row["country"]) for row in found] == [(0, ""), (None, None)]


def test_of_a_oneof_the_last_field_counts():
    schema = proto(country="oneof of { string country = 3; int64 visits = 5; }", visits=None)
    both = message(schema)
    later = both + b"\x28\x07"
    found, dead = read(both, later, later + b"\x1a\2FR", s1=schema)
    assert ([(row["country"], row["visits"]) for row in found], dead) == ([("DE", None), (None, 7), ("FR", None)], {})


def test_a_path_leads_into_messages_and_a_field_of_one_that_is_not_there_is_missing():
    schema = proto(
        "message Person { int64 age = 1; Land land = 2; } message Land { string code = 1; }",
        customer="Person customer = 10",
        seller="Person seller = 11",
    )
    paths = {"customer.land.code": "string", "customer.age": "long", "seller.age": "long", "no.such": "string"}
    declared = EventSchema.model_validate({"event_id": "id", "event_time": "at", "attributes": paths})
    people = [{"customer": {"age": "7", "land": {"code": "DE"}}}, {"customer": {"land": {}}, "seller": {}}, {}]
    found, dead = read(*(message(schema, **each) for each in people), s1=schema, schema=declared)
    assert dead == {}
    assert [list(row.values())[2:] for row in found] == [["DE", 7, None, None], ["", 0, 0, None], [None] * 4]


def test_a_message_that_comes_again_is_joined_and_a_value_that_does_is_the_last():
    schema = proto("message Person { optional int64 age = 1; string name = 2; }", customer="Person customer = 10")
    paths = {"customer.age": "long", "customer.name": "string"}
    declared = EventSchema.model_validate({"event_id": "id", "event_time": "at", "attributes": paths})
    twice = message(schema, customer={"age": "7", "name": "a"}) + b"\x52\3\x12\1b" + b"\x0a\2e2"
    found, _ = read(twice, s1=schema, schema=declared)
    assert found == [{"id": "e2", "at": AT_MS, "customer.age": 7, "customer.name": "b"}]


def test_a_path_that_leads_into_something_else_than_a_message_is_a_dead_letter():
    declared = EventSchema.model_validate(EVENTS | {"attributes": {"customer.land.code": "string"}})
    person = proto("message Person { string land = 1; }", customer="Person customer = 10")
    plain = proto(customer="string customer = 10")
    labels = proto(customer="map<string, string> customer = 10")
    without = proto("message Person { string name = 1; }", customer="Person customer = 10")
    rows = [message(person), message(plain, 2, customer="x"), message(without, 3)]
    rows.append(message(labels, 4, customer={"land": "DE"}))
    found, dead = read(*rows, s1=person, s2=plain, s3=without, s4=labels, schema=declared)
    assert [row["customer.land.code"] for row in found] == [None]
    reason = "customer.land.code: is in something that is not an object, and must be in one"
    assert dead == {0: reason, 1: reason, 3: reason}


def test_an_unknown_field_is_passed_over_also_a_group():
    unknown = b"\xa0\x06\1" + b"\xab\x06" + b"\x08\1\x13\x14" + b"\xac\x06" + b"\xb2\x06\2hi"
    assert read(message(PLAIN) + unknown, s1=PLAIN) == ([PAID], {})


# Types


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
                                  "sfixed32", "sfixed64", "double", "float"])  # fmt: skip
def test_a_number_is_read_to_the_digit(kind):
    schema = proto(visits=f"{kind} visits = 5", amount=f"{kind} amount = 6")
    least = 5 if kind[0] in "uf" and kind != "float" else -5
    found, dead = read(message(schema, visits=least, amount=7), s1=schema)
    assert ([(row["visits"], row["amount"]) for row in found], dead) == ([(least, 700)], {})


def test_a_number_beyond_64_bits_with_a_sign_is_a_dead_letter_where_a_long_is_declared_and_text_elsewhere():
    schema = proto(visits="uint64 visits = 5", country="fixed64 country = 3")
    most = str(2**64 - 1)
    rows = [message(schema, visits=most, country="1"), message(schema, visits="1", country=most)]
    found, dead = read(*rows, s1=schema)
    assert [row["country"] for row in found] == [most]
    assert dead == {0: f"visits: '{most}' is not a 64-bit integer"}


def test_floating_point_is_read_by_its_shortest_text():
    schema = proto(amount="float amount = 6")
    assert read(message(schema, amount=0.1), s1=schema)[0] == [PAID | {"amount": 10}]
    assert read(message(schema, amount="NaN"), s1=schema)[0] == []


def test_an_enum_is_the_name_of_its_value_and_a_number_that_it_does_not_name_is_that_number():
    schema = proto("enum Land { DE = 0; FR = 1; }", country="Land country = 3")
    unknown = message(schema, country="FR") + b"\x18\x07"
    found, _ = read(message(schema, country="FR"), message(schema), unknown, s1=schema)
    assert [row["country"] for row in found] == ["FR", "DE", "7"]


def test_a_number_that_a_closed_enum_does_not_name_is_a_dead_letter():
    schema = 'syntax = "proto2"; message Payment { required string id = 1; required int64 at = 2; \
        optional Land country = 3; enum Land { DE = 1; FR = 2; } }'
    _, dead = read(message(schema) + b"\x18\x07", s1=schema)
    assert dead == {0: "country: 7 is not a value of Land"}


def test_bytes_are_text_where_they_are_valid():
    schema = proto(country="bytes country = 3")
    rows = [message(schema, country=base64.b64encode(each).decode()) for each in (b"DE", b"\xff")]
    found, dead = read(*rows, s1=schema)
    assert [row["country"] for row in found] == ["DE"]
    assert dead == {1: "country: b'\\xff' is not text"}


@pytest.mark.parametrize("unit", ["ms", "s", "iso8601"])
def test_a_timestamp_is_that_time_whatever_the_unit_and_cut_to_the_millisecond(unit):
    schema = proto(at="google.protobuf.Timestamp at = 2")
    declared = EventSchema.model_validate(EVENTS | {"event_time": {"field": "at", "unit": unit}})
    times = ["2023-11-14T22:13:20.123999999Z", "1969-12-31T23:59:59.999Z"]
    found, dead = read(*(message(schema, at=time) for time in times), s1=schema, schema=declared)
    assert ([row["at"] for row in found], dead) == ([AT_MS, -1], {})


def test_a_timestamp_in_a_text_field_has_all_of_its_digits():
    schema = proto(country="google.protobuf.Timestamp country = 3")
    times = ["2023-11-14T22:13:20.000000001Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.100Z"]
    found, _ = read(*(message(schema, country=time) for time in times), message(schema, country=None), s1=schema)
    assert [row["country"] for row in found] == [*times, None]


def test_a_timestamp_outside_its_years_is_a_dead_letter():
    schema = proto(country="google.protobuf.Timestamp country = 3")
    times = [
        Timestamp(seconds=253_402_300_800),
        Timestamp(nanos=-1),
        Timestamp(nanos=10**9),
        Timestamp(seconds=-(2**62)),
    ]
    written = [time.SerializeToString() for time in times]
    found, dead = read(*(message(schema, country=None) + b"\x1a" + bytes([len(w)]) + w for w in written), s1=schema)
    assert found == []
    assert dead == {
        row: f"country: {time.seconds} s and {time.nanos} ns is not a time in the years 1 to 9999"
        for row, time in enumerate(times)
    }


def test_a_decimal_of_confluent_is_read_to_the_digit():
    schema = proto(amount="confluent.type.Decimal amount = 6").replace(
        "import", 'import "confluent/type/decimal.proto"; import', 1
    )
    values = [(b"\x04\xe2", 2), (b"\xff", 1), (b"\1", -2), (b"", 0)]
    amounts = [{"value": base64.b64encode(value).decode(), "scale": scale} for value, scale in values]
    found, dead = read(*(message(schema, amount=amount) for amount in amounts), s1=schema)
    assert ([row["amount"] for row in found], dead) == ([1250, -10, 10_000, 0], {})
    _, dead = read(message(schema, amount={"scale": 10**6}), s1=schema)
    assert dead == {0: "amount: a decimal has 0 bytes and a scale of 1,000,000"}


def test_money_and_a_decimal_of_google_are_read_to_the_digit():
    schema = proto(amount="google.type.Money amount = 6", visits="google.type.Decimal visits = 5").replace(
        "import", 'import "google/type/money.proto"; import "google/type/decimal.proto"; import', 1
    )
    declared = EventSchema.model_validate(
        EVENTS | {"attributes": {"amount.currency_code": "string", "visits": "long"}, "measures": EVENTS["measures"]}
    )
    amounts = [(12, 500_000_000), (-1, -10_000_000), (0, -990_000_000), (2**53, 0)]
    rows = [
        message(schema, amount={"currency_code": "EUR", "units": str(units), "nanos": nanos}, visits={"value": "7"})
        for units, nanos in [*amounts, (1, -1), (0, 1)]
    ]
    found, dead = read(*rows, message(schema, amount=None), s1=schema, schema=declared)
    assert [row["amount"] for row in found] == [1250, -101, -99, 2**53 * 100, None]
    assert [row["amount.currency_code"] for row in found] == ["EUR"] * 4 + [None]
    assert [row["visits"] for row in found] == [7] * 4 + [None]
    assert dead == {
        4: "amount: 1 units and -1 nanos is not an amount",
        5: "amount: 0.000000001 has more than 2 digits after the point",
    }


def test_a_field_that_is_written_in_another_type_than_a_schema_file_says_is_a_dead_letter_and_never_absent(tmp_path):
    other = proto(amount="int64 amount = 6")
    rows = rows_of([message(other, amount="5")[6:], message(PLAIN)[6:]])
    read_rows = topic_messages(TOPIC, RegisteredSchemas(tmp_path)).read(
        rows, SCHEMA, Pinned(None, PinnedProtobuf(text=PLAIN))
    )
    found, (letter,) = parse(read_rows, SCHEMA, frozenset())
    assert found.event_id.to_pylist() == ["e1"]
    assert letter.reason == "broken Protobuf: amount is written in another type than its schema says"


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("repeated string country = 3", ["DE"], A_LIST),
        ("map<string, string> country = 3", {"a": "b"}, "is an object, and must be one value"),
        ("google.protobuf.Duration country = 3", "3s", "is an object, and must be one value"),
    ],
)
def test_a_list_a_map_and_a_message_are_no_value(field, value, what):
    schema = proto(country=field)
    assert read(message(schema, country=value), s1=schema)[1] == {0: f"country: {what}"}


def test_lists_maps_and_messages_that_nobody_wants_are_passed_over():
    schema = proto(
        "message Line { string sku = 1; Line child = 2; }",
        lines="repeated Line lines = 10",
        notes="map<string, Line> notes = 11",
        scores="repeated sint32 scores = 12",
    )
    lines = [{"sku": "a", "child": {"sku": "b"}}]
    assert read(message(schema, lines=lines, notes={"x": lines[0]}, scores=[1, -1]), s1=schema) == ([PAID], {})


# What changes of a schema do


def test_a_field_that_is_added_is_there_from_then_on_and_has_its_default_only_in_the_schema_that_has_it():
    narrow = proto(vip=None)
    wider = proto(colour="string colour = 9")
    rows = read(message(narrow), message(wider, 2, id="e2", vip=True, colour="red"), s1=narrow, s2=wider)
    assert rows == ([PAID | {"vip": None}, PAID | {"id": "e2", "vip": True}], {})


def test_a_field_that_is_removed_is_missing_and_a_dead_letter_where_rules_need_it():
    narrow = proto(country=None)
    assert read(message(narrow), s1=narrow) == ([PAID | {"country": None}], {})
    found, dead = read(message(PLAIN), message(narrow, 2), needed=["country"], s1=PLAIN, s2=narrow)
    assert (found, dead) == ([PAID], {1: "country: is missing or null"})


def pinned(text: str, names=tuple(SCHEMA.field_names)):
    return pinned_with(PinnedProtobuf(), read_schema(WriterSchema("PROTOBUF", text)), names).pinned_numbers


def test_a_field_that_is_renamed_is_known_by_its_number():
    renamed = proto(country="optional string land = 3")
    row = message(renamed, land="FR")
    assert read(row, s1=renamed, pinned=pinned(PLAIN))[0] == [PAID | {"country": "FR"}]
    assert read(row, s1=renamed)[0] == [PAID | {"country": None}]
    again = PinnedProtobuf(numbers={"bank.Payment": {"country": (3,)}})
    newer = pinned_with(again, read_schema(WriterSchema("PROTOBUF", renamed)), SCHEMA.field_names)
    assert newer.numbers["bank.Payment"]["country"] == (3,)


def test_a_message_on_the_way_that_is_renamed_is_known_by_its_number():
    declared = EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "attributes": {"customer.land": "string"}}
    )
    before, after = (
        proto(f"message Person {{ string {name} = 1; }}", customer=f"Person {of} = 10")
        for name, of in (("land", "customer"), ("country", "client"))
    )
    numbers = pinned(before, ("customer.land",))
    rows = [message(before, customer={"land": "DE"}), message(after, 2, client={"country": "FR"})]
    found, _ = read(*rows, s1=before, s2=after, schema=declared, pinned=numbers)
    assert [row["customer.land"] for row in found] == ["DE", "FR"]


@pytest.mark.parametrize(("before", "after"), [("int32", "int64"), ("int64", "string"), ("float", "double"),
                                               ("uint32", "sint64")])  # fmt: skip
def test_a_type_that_is_changed_is_read_as_it_was_written_also_in_one_batch(before, after):
    first, second = (proto(amount=f"{kind} amount = 6") for kind in (before, after))
    values = ["8" if kind == "string" else 8 for kind in (before, after)]
    found, dead = read(message(first, amount=values[0]), message(second, 2, amount=values[1]), s1=first, s2=second)
    assert ([row["amount"] for row in found], dead) == ([800, 800], {})


def test_a_field_that_becomes_a_list_or_a_message_is_a_dead_letter():
    listed = proto(country="repeated string country = 3")
    object_ = proto("message Land { string code = 1; }", country="Land country = 3")
    rows = [message(PLAIN), message(listed, 2, country=["DE"]), message(object_, 3, country={"code": "DE"})]
    found, dead = read(*rows, s1=PLAIN, s2=listed, s3=object_)
    assert found == [PAID]
    assert dead == {
        1: f"country: {A_LIST}",
        2: "country: is an object, and must be one value",
    }


def test_a_field_that_moves_into_a_oneof_or_becomes_optional_is_read_as_before():
    moved = proto(country="oneof place { string country = 3; string city = 9; }")
    found, _ = read(message(PLAIN), message(moved, 2), message(moved, 2, country=None, city="x"), s1=PLAIN, s2=moved)
    assert [row["country"] for row in found] == ["DE", "DE", None]


# Which message


def test_the_indexes_behind_the_prefix_say_which_message_it_is():
    schema = (
        'syntax = "proto3"; message Other { string id = 1; } message Payment { string id = 1; int64 at = 2; '
        "message Refund { string id = 3; int64 at = 4; } }"
    )
    names = ("Payment", "Payment.Refund", "Other")
    first, second, third = (encoded(schema, {"id": name} | ({} if name == "Other" else {"at": AT_MS}), name)
                            for name in names)  # fmt: skip
    begin = b"\0\0\0\0\1"
    found, dead = read(
        begin + b"\2\2" + first, begin + b"\4\2\0" + second, begin + b"\2\0" + third, begin + b"\0" + third,
        begin + b"\2\6" + first, begin, begin + b"\1", begin + b"\x06\2", begin + b"\4\2\x01" + second,
        s1=schema, schema=EventSchema.model_validate({"event_id": "id", "event_time": "at"}),
    )  # fmt: skip
    assert found == [{"id": "Payment", "at": AT_MS}, {"id": "Payment.Refund", "at": AT_MS}]
    assert dead == {
        2: "at: is missing or null",
        3: "at: is missing or null",
        4: "schema 1 has no message at 3",
        5: "has no indexes of a message behind its prefix",
        6: "has no indexes of a message behind its prefix",
        7: "has no indexes of a message behind its prefix",
        8: "schema 1 has no message at 1.-1",
    }


# What is no event


WHOLE = message(PLAIN)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"", NO_PREFIX),
        (b"\1" + WHOLE[1:], NO_PREFIX),
        (message(PLAIN, 9), "schema 9 is not in the registry"),
        (WHOLE[:-1], "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\0", "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\x0e", "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\x0a\1\xff", "broken Protobuf: a text is not valid UTF-8"),
        (WHOLE + b"\x10" + b"\xff" * 10, "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\x10", "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\x12\1x", "broken Protobuf: at is written in another type than its schema says"),
        (WHOLE + b"\x0b", "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\xa4\x06", "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\xa3\x06", "broken Protobuf: is not a message of type bank.Payment"),
        (WHOLE + b"\xa3\x06" * 200, "broken Protobuf: is not a message of type bank.Payment"),
    ],
)
def test_a_broken_message_is_one_dead_letter_that_says_why_and_keeps_its_bytes(broken, reason):
    def known(number: int) -> WriterSchema:
        if number != 1:
            message = "is not in the registry"
            raise SchemaError(message)
        return WriterSchema("PROTOBUF", PLAIN)

    found, dead = parse(read_registered(rows_of([WHOLE, broken, WHOLE]), SCHEMA, known), SCHEMA, frozenset())
    assert (len(found), [letter.position for letter in dead]) == (2, [1])
    assert dead[0].reason == reason
    assert dead[0].raw == f"0x{broken.hex()}"


def test_a_dead_letter_of_a_message_that_can_be_read_shows_its_fields():
    rows = read_registered(rows_of([message(PLAIN, id="")]), SCHEMA, lambda number: WriterSchema("PROTOBUF", PLAIN))
    (letter,) = parse(rows, SCHEMA, frozenset())[1]
    assert letter.reason == "id: is empty"
    assert json.loads(letter.raw) == {
        "id": "", "at": AT_MS, "country": "DE", "vip": False, "visits": None, "amount": "12.50",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", 'cannot be compiled (line 1: Expected top-level statement (e.g. "message").)'),
        ("message Payment {", "cannot be compiled (line 1: Reached end of input in message definition (missing '}').)"),
        ('syntax = "proto3";\nmessage Payment { string id 1; }', "cannot be compiled (line 2: Missing field number.)"),
        ('syntax = "proto3"; message A { B id = 1; }', 'cannot be compiled (line 1: "B" is not defined.)'),
        ('import "b.proto";', 'cannot be compiled (line 1: Import "b.proto" was not found or had errors.)'),
        (
            "message Payment { Unknown id = 1; }",
            'cannot be compiled (line 1: Expected "required", "optional", or "repeated".)',
        ),
        (
            'syntax = "proto4";',
            'cannot be compiled (line 1: Unrecognized syntax identifier "proto4".  This parser only recognizes '
            '"proto2" and "proto3".)',
        ),
        (
            'syntax = "proto3"; message Payment { string id = §; }',
            "cannot be compiled (line 1: Interpreting non ascii codepoint 194.)",
        ),
        ("AAAA", "is neither a .proto file nor a descriptor in base64"),
        ('syntax = "proto3";', "has no message at 0"),
        ("message a {" * 3000, "cannot be compiled (line 1: Reached maximum recursion limit for nested messages.)"),
    ],
)
def test_a_schema_that_cannot_be_read_makes_dead_letters_that_say_so(text, reason):
    assert read(WHOLE, s1=text) == ([], {0: f"schema 1 {reason}"})


# Schemas


def test_a_descriptor_in_base64_and_a_set_of_them_are_read_as_the_file_is():
    texts = WriterSchema(
        "PROTOBUF",
        'syntax = "proto3"; package bank; import "land.proto"; message Payment { Land land = 1; }',
        ('syntax = "proto3"; package bank; message Land { string code = 1; }',),
        ("land.proto",),
    )
    land, payment = descriptors_of(texts)
    of_set = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[land, payment]).SerializeToString()).decode()
    single = base64.b64encode(payment.SerializeToString()).decode()
    referred = base64.b64encode(land.SerializeToString()).decode()
    mixed = (
        WriterSchema("PROTOBUF", single, texts.references, texts.names),
        WriterSchema("PROTOBUF", texts.text, (referred,), texts.names),
    )
    for written in (
        WriterSchema("PROTOBUF", of_set),
        WriterSchema("PROTOBUF", single, (referred,), texts.names),
        texts,
        *mixed,
    ):
        found = message_named(read_schema(written), None)
        assert found.fields_by_name["land"].message_type.full_name == "bank.Land"
    with pytest.raises(SchemaError):
        read_schema(WriterSchema("PROTOBUF", single))


def test_an_edition_is_read_with_its_features():
    schema = """
        edition = "2023";
        package bank;
        option features.field_presence = IMPLICIT;
        message Payment {
          string id = 1;
          int64 at = 2;
          string country = 3 [features.field_presence = EXPLICIT];
          Person customer = 7 [features.message_encoding = DELIMITED];
        }
        message Person { int64 age = 1; }
    """
    declared = EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "attributes": {"country": "string", "customer.age": "long"}}
    )
    rows = [message(schema, country=None), message(schema, customer={"age": "7"})]
    found, dead = read(*rows, s1=schema, schema=declared)
    assert dead == {}
    assert [(row["country"], row["customer.age"]) for row in found] == [(None, None), ("DE", 7)]


def test_features_in_braces_are_those_of_their_field():
    before = 'edition = "2024"; export message Payment {'
    fields = "string id = 1; int64 at = 2; int64 visits = 5 [features = {field_presence: IMPLICIT}];"
    found, dead = read(WHOLE, s1=f"{before} {fields} local enum Kind {{ NONE = 0; }} }}")
    assert ([row["visits"] for row in found], dead) == ([0], {})


def test_options_that_registries_know_are_passed_over():
    text = """\ufeffsyntax = "proto3";
        import "confluent/meta.proto";
        option (confluent.file_meta).doc = "payments";
        message A { string id = 1 [(confluent.field_meta) = {doc: "}" tags: "PII"}, deprecated = true]; }
    """
    assert [each.name for each in message_named(read_schema(WriterSchema("PROTOBUF", text)), "A").fields] == ["id"]


@pytest.mark.parametrize("name", ["../a.proto", "/a.proto", "-h", "a\0", "", "a" * 300, "google/type"])
def test_an_import_is_no_file_elsewhere(name):
    with pytest.raises(SchemaError, match="which is not a file"):
        read_schema(WriterSchema("PROTOBUF", 'syntax = "proto3";', ("message A {}",), (name,)))


def test_what_no_text_is_to_blame_for_makes_no_dead_letter(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))  # in which no Python starts
    with pytest.raises(BucketsError, match="see that the machine has memory"):
        read(WHOLE, s1=f"{PLAIN} // not known yet")


# Schemas that a checkpoint knows


TOPIC = SourceSettings.model_validate({"kind": "kafka", "topic": "payments", "format": "protobuf"})


def test_a_schema_is_asked_for_once_with_its_imports_and_then_known_without_a_registry(tmp_path):
    land = 'syntax = "proto3"; package bank; message Land { string code = 1; }'
    text = proto(land="bank.Land land = 7").replace("import", 'import "land.proto"; import', 1)
    asked = []

    def ask(number: int) -> WriterSchema:
        asked.append(number)
        return WriterSchema("PROTOBUF", text, (land,), ("land.proto",))

    whole = WHOLE + b"\x3a\x04\x0a\2DE"
    for values in (
        topic_messages(TOPIC, RegisteredSchemas(tmp_path, ask)),
        topic_messages(TOPIC, RegisteredSchemas(tmp_path, ask)),
        topic_messages(TOPIC, RegisteredSchemas(tmp_path)),
    ):
        rows = values.read(rows_of([whole, WHOLE]), SCHEMA, Pinned())
        assert parse(rows, SCHEMA, frozenset())[1] == []
    assert asked == [1]


def test_a_schema_of_another_format_makes_dead_letters(tmp_path):
    values = topic_messages(TOPIC, RegisteredSchemas(tmp_path, lambda number: WriterSchema("AVRO", '"string"')))
    (letter,) = parse(values.read(rows_of([WHOLE]), SCHEMA, Pinned()), SCHEMA, frozenset())[1]
    assert letter.reason == "schema 1 is of type AVRO, not PROTOBUF"


def test_values_of_a_schema_file_have_no_prefix(tmp_path):
    pinned_file = Pinned(None, PinnedProtobuf(text=PLAIN))
    rows = topic_messages(TOPIC, RegisteredSchemas(tmp_path)).read(rows_of([WHOLE[6:], WHOLE]), SCHEMA, pinned_file)
    found, dead = parse(rows, SCHEMA, frozenset())
    assert found.event_id.to_pylist() == ["e1"]
    assert [letter.position for letter in dead] == [1]
