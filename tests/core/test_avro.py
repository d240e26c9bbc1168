"""MessageBytes in Avro as events: what each type becomes, what changes of a schema do, and what is no event."""

import json

import pyarrow as pa
import pytest

from buckets.checkpoint.writer_schemas import RegisteredSchemas
from buckets.config.source import SourceSettings
from buckets.errors import BucketsError
from buckets.events.arrivals import BROKEN, RAW, parse
from buckets.events.avro.avro_events import read_registered
from buckets.events.avro.avro_type import read_schema
from buckets.events.conversion import A_LIST
from buckets.events.decoded import NO_PREFIX, SchemaError, WriterSchema, text_behind_prefix
from buckets.events.schema import EventSchema
from tests.core.avro_events import encoded, rows_of
from tests.core.pinned import Pinned, topic_messages

EVENTS = {
    "event_id": "id",
    "event_time": "at",
    "attributes": {"country": "string", "vip": "boolean", "visits": "long"},
    "measures": {"amount": {"scale": 2}},
}
SCHEMA = EventSchema.model_validate(EVENTS)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
AT_MS = 1_700_000_000_123


def avro(**types):
    """The schema of a payment; `None` takes a field out."""
    fields = {"id": "string", "at": MILLIS, "country": "string", "amount": DECIMAL} | types
    named = [
        kind | {"name": name} if isinstance(kind, dict) and "aliases" in kind else {"name": name, "type": kind}
        for name, kind in fields.items()
        if kind is not None
    ]
    return {"type": "record", "name": "payment", "namespace": "bank", "fields": named}


def message(schema, number=1, **values):
    """A payment behind the prefix of a registry."""
    plain = {"id": "e1", "at": AT_MS, "country": "DE", "amount": "12.50"} | values
    names = {field["name"] for field in schema["fields"]}
    record = {name: value for name, value in plain.items() if name in names}
    kind = next((field["type"] for field in schema["fields"] if field["name"] == "amount"), None)
    if isinstance(kind, dict):
        # Decimals are written as they lie in a message, so that no encoder rounds them.
        record["amount"] = int(record["amount"].replace(".", "")).to_bytes(8, signed=True)
    return b"\0" + number.to_bytes(4) + encoded(without_logical(schema), record)


def without_logical(schema):
    if isinstance(schema, dict):
        return {name: without_logical(part) for name, part in schema.items() if name != "logicalType"}
    return [without_logical(part) for part in schema] if isinstance(schema, list) else schema


def read(*messages, needed=(), schema=SCHEMA, **schemas):
    """Events as mappings of fields, and the reasons of dead letters by position."""

    def schema_of(number):
        if f"s{number}" not in schemas:
            reason = "is not in the registry"
            raise SchemaError(reason)
        return WriterSchema("AVRO", json.dumps(schemas[f"s{number}"]))

    events, dead = parse(read_registered(rows_of(messages), schema, schema_of), schema, frozenset(needed))
    columns = {"id": events.event_id, "at": pa.array(events.times_ms)} | events.attributes | events.measures
    found = [
        dict(zip(columns, row, strict=True)) for row in zip(*(c.to_pylist() for c in columns.values()), strict=True)
    ]
    return found, {letter.position: letter.reason for letter in dead}


PLAIN = avro()
PAID = {"id": "e1", "at": AT_MS, "country": "DE", "vip": None, "visits": None, "amount": 1250}


def test_a_payment_is_read_to_the_digit_and_to_the_character():
    assert read(message(PLAIN, country="Åland 🏦"), s1=PLAIN) == ([PAID | {"country": "Åland 🏦"}], {})


# What changes of a schema do


def test_a_field_that_is_added_is_there_from_then_on_and_missing_before():
    wider = avro(vip=["null", "boolean"], colour="string")
    rows = read(message(PLAIN), message(wider, 2, id="e2", vip=True, colour="red"), s1=PLAIN, s2=wider)
    assert rows == ([PAID, PAID | {"id": "e2", "vip": True}], {})


def test_a_field_that_is_removed_is_missing_and_a_dead_letter_where_rules_need_it():
    narrow = avro(country=None)
    assert read(message(narrow), s1=narrow) == ([PAID | {"country": None}], {})
    found, dead = read(message(PLAIN), message(narrow, 2), needed=["country"], s1=PLAIN, s2=narrow)
    assert (found, dead) == ([PAID], {1: "country: is missing or null"})


def test_a_field_that_is_renamed_is_read_by_the_name_that_it_had():
    renamed = avro(country=None, land={"type": "string", "aliases": ["country"]})
    assert read(message(renamed, land="FR"), s1=renamed) == ([PAID | {"country": "FR"}], {})


def test_a_record_on_the_way_to_a_field_that_is_renamed_is_read_by_the_name_that_it_had():
    schema = EventSchema.model_validate(EVENTS | {"attributes": {"customer.country": "string"}})
    person = {
        "type": "record",
        "name": "person",
        "fields": [{"name": "land", "type": "string", "aliases": ["country"]}],
    }
    renamed = avro(client={"type": ["null", person], "aliases": ["customer"]})
    taken = avro(client={"type": person, "aliases": ["customer"]}, customer="string")
    assert read(message(renamed, client={"land": "FR"}), s1=renamed, schema=schema)[0][0]["customer.country"] == "FR"
    found, dead = read(message(taken, client={"land": "FR"}, customer="x"), s1=taken, schema=schema)
    assert (found, dead) == ([], {0: "customer.country: is in something that is not an object, and must be in one"})


@pytest.mark.parametrize("kind", ["string", {"type": "array", "items": "string"}, {"type": "map", "values": "string"}])
def test_a_path_that_leads_into_something_else_than_a_record_is_a_dead_letter(kind):
    paths = {"customer.land.code": "string", "customer.age": "long"}
    schema = EventSchema.model_validate(EVENTS | {"attributes": paths})
    value = {"string": "x", "array": ["x"], "map": {"age": "1"}}[kind if isinstance(kind, str) else kind["type"]]
    person = {"type": "record", "name": "person", "fields": [{"name": "land", "type": ["null", kind]}]}
    outer, inner = avro(customer=["null", kind]), avro(customer=person)
    rows = [message(outer, customer=None), message(outer, customer=value)]
    rows += [message(inner, 2, customer={"land": None}), message(inner, 2, customer={"land": value})]
    found, dead = read(*rows, s1=outer, s2=inner, schema=schema)
    assert len(found) == 2
    reason = "customer.land.code: is in something that is not an object, and must be in one"
    assert dead == {1: reason, 3: reason}


@pytest.mark.parametrize(
    ("kinds", "values"), [(("int", "long"), (7, 2**40)), (("int", "string"), (7, "8")), (("long", "double"), (7, 8.0))]
)
def test_a_type_that_is_promoted_is_read_as_it_was_written_also_in_one_batch(kinds, values):
    before, after = (avro(visits=kind) for kind in kinds)
    found, dead = read(message(before, visits=values[0]), message(after, 2, visits=values[1]), s1=before, s2=after)
    assert ([row["visits"] for row in found], dead) == ([values[0], int(values[1])], {})


def test_digits_that_a_measure_has_no_room_for_are_a_dead_letter_after_the_scale_has_changed():
    finer = avro(amount=DECIMAL | {"scale": 3})
    rows = [message(PLAIN), message(finer, 2, amount="12.500"), message(finer, 2, amount="12.501")]
    found, dead = read(*rows, s1=PLAIN, s2=finer)
    assert found == [PAID, PAID]
    assert dead == {2: "amount: 12.501 has more than 2 digits after the point"}


def test_what_a_dead_letter_holds_of_a_value_that_is_none_is_null():
    _, dead = parse(
        read_registered(
            rows_of([message(PLAIN, at=2**62)]), SCHEMA, lambda number: WriterSchema("AVRO", json.dumps(PLAIN))
        ),
        SCHEMA,
        frozenset(),
    )
    assert dead[0].reason == f"at: {2**62} lies outside the years 1 to 9999"
    assert json.loads(dead[0].raw) == {
        "id": "e1",
        "at": None,
        "country": "DE",
        "vip": None,
        "visits": None,
        "amount": "12.50",
    }


def test_null_in_a_union_is_a_missing_field():
    optional = avro(country=["null", "string"], amount=["null", "double"])
    assert read(message(optional, country=None, amount=None), s1=optional)[0] == [
        PAID | {"country": None, "amount": None}
    ]


def test_a_field_of_several_types_is_read_by_the_type_of_each_message():
    mixed = avro(amount=["null", "int", "string", "double"], country=["string", "long"])
    values = [(1, "DE"), ("2.50", 49), (0.1, "FR"), (None, "x")]
    found, _ = read(*(message(mixed, amount=amount, country=country) for amount, country in values), s1=mixed)
    assert [(row["amount"], row["country"]) for row in found] == [(100, "DE"), (250, "49"), (10, "FR"), (None, "x")]


def test_an_enum_is_its_symbol():
    enum = avro(country={"type": "enum", "name": "land", "symbols": ["DE", "FR"]})
    assert read(message(enum, country="FR"), s1=enum)[0] == [PAID | {"country": "FR"}]


def test_records_arrays_and_maps_that_nobody_wants_are_passed_over():
    lines = {"type": "record", "name": "line", "fields": [{"name": "sku", "type": "string"}]}
    nested = avro(lines={"type": "array", "items": lines}, first="line", notes={"type": "map", "values": "long"})
    found, dead = read(
        message(nested, lines=[{"sku": "a"}] * 3, first={"sku": "b"}, notes={"x": 1, "y": -1}), s1=nested
    )
    assert (found, dead) == ([PAID], {})


def test_a_field_that_becomes_a_record_or_a_list_is_a_dead_letter():
    record = avro(country={"type": "record", "name": "land", "fields": [{"name": "code", "type": "string"}]})
    listed = avro(country={"type": "array", "items": "string"})
    rows = [message(PLAIN), message(record, 2, country={"code": "DE"}), message(listed, 3, country=["DE"])]
    found, dead = read(*rows, s1=PLAIN, s2=record, s3=listed)
    assert found == [PAID]
    assert dead == {
        1: "country: is an object, and must be one value",
        2: f"country: {A_LIST}",
    }


def test_a_path_leads_into_records_also_where_these_may_be_null():
    land = {"type": "record", "name": "land", "fields": [{"name": "code", "type": ["null", "string"]}]}
    customer = {
        "type": "record",
        "name": "person",
        "fields": [{"name": "age", "type": "int"}, {"name": "land", "type": ["null", land]}],
    }
    schema = avro(customer=customer, seller=["null", "person"])
    declared = {
        "event_id": "id",
        "event_time": "at",
        "attributes": {
            "customer.land.code": "string",
            "seller.age": "long",
            "seller.land.code": "string",
            "customer.no.code": "string",
        },
    }
    people = [
        ({"age": 7, "land": {"code": "DE"}}, None),
        ({"age": 8, "land": None}, {"age": 9, "land": {"code": "FR"}}),
    ]
    rows = [message(schema, customer=customer, seller=seller) for customer, seller in people]
    found, dead = read(*rows, s1=schema, schema=EventSchema.model_validate(declared))
    assert dead == {}
    assert [list(row.values())[2:] for row in found] == [["DE", None, None, None], [None, 9, "FR", None]]


def test_what_is_said_of_an_absurd_time_does_not_depend_on_the_schemas_of_other_messages():
    other = avro(at="string")
    rows = [message(PLAIN, at=10**13), message(other, 2, at="1" * 16)]
    absurd = "is an absurd time: outside 1900-01-01 to 2200-01-01"
    for read_together in (rows, rows[:1]):
        assert read(*read_together, s1=PLAIN, s2=other)[1][0] == f"at: '{10**13}' {absurd}"


def test_a_boolean_is_no_text():
    schema = avro(country="boolean")
    assert read(message(schema, country=True), s1=schema) == ([], {0: "country: is true, and must be text"})


def test_a_union_of_records_is_read_by_the_record_of_each_message():
    other = avro(country="long") | {"name": "refund"}
    union = [PLAIN, other]
    rows = [b"\0\0\0\0\1" + branch + message(kind, country=country)[5:] for branch, kind, country in
            [(b"\0", PLAIN, "DE"), (b"\2", other, 49)]]  # fmt: skip
    found, dead = read(*rows, s1=union)
    assert ([row["country"] for row in found], dead) == (["DE", "49"], {})


# Times


@pytest.mark.parametrize("unit", ["ms", "s", "iso8601"])
@pytest.mark.parametrize(
    ("kind", "number", "expected_ms"),
    [
        ("timestamp-millis", AT_MS, AT_MS),
        ("timestamp-micros", AT_MS * 1000 + 999, AT_MS),
        ("timestamp-nanos", AT_MS * 1_000_000 + 999_999, AT_MS),
        ("timestamp-micros", -1, -1),
        ("local-timestamp-millis", AT_MS, AT_MS),
        ("date", 19_675, 19_675 * 86_400_000),
    ],
)
def test_a_time_of_a_logical_type_is_that_time_whatever_the_unit(unit, kind, number, expected_ms):
    schema = avro(at={"type": "int" if kind == "date" else "long", "logicalType": kind})
    declared = EventSchema.model_validate(EVENTS | {"event_time": {"field": "at", "unit": unit}})
    found, dead = read(message(schema, at=number), s1=schema, schema=declared)
    assert ([row["at"] for row in found], dead) == ([expected_ms], {})


@pytest.mark.parametrize(("unit", "number"), [("ms", AT_MS), ("s", AT_MS // 1000)])
def test_a_time_that_is_a_number_has_the_declared_unit(unit, number):
    schema = avro(at="long")
    declared = EventSchema.model_validate(EVENTS | {"event_time": {"field": "at", "unit": unit}})
    found, _ = read(message(schema, at=number), s1=schema, schema=declared)
    assert found[0]["at"] // 1000 == AT_MS // 1000


def test_a_time_may_change_from_a_number_to_a_logical_type_in_one_batch():
    number = avro(at="long")
    found, dead = read(message(number), message(PLAIN, 2, id="e2"), s1=number, s2=PLAIN)
    assert ([row["at"] for row in found], dead) == ([AT_MS, AT_MS], {})


def test_a_moment_in_a_text_field_is_text_in_utc():
    schema = avro(country={"type": "long", "logicalType": "timestamp-micros"})
    found, _ = read(message(schema, country=1_700_000_000_000_001), s1=schema)
    assert found[0]["country"] == "2023-11-14 22:13:20.000001Z"


# Numbers


@pytest.mark.parametrize("precision", [18, 19, 20, 38, 39, 60])
def test_a_decimal_has_every_digit_of_its_type_and_no_more(precision):
    of_text = EventSchema.model_validate({"event_id": "id", "event_time": "at", "attributes": {"amount": "string"}})
    schema = avro(amount={"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2})
    most = 10**precision - 1
    written = [b"\0\0\0\0\1" + encoded(without_logical(schema), {"id": "e", "at": AT_MS, "country": "DE",
               "amount": number.to_bytes(26, signed=True)}) for number in (most, -most, most + 1, 0)]  # fmt: skip
    found, dead = read(*written, s1=schema, schema=of_text)
    digits = f"{most // 100}.99"
    assert [row["amount"] for row in found] == [digits, f"-{digits}", "0.00"]
    assert dead == {2: f"amount: a decimal has more than the {precision} digits of its type"}


@pytest.mark.parametrize(
    ("precision", "scale", "bits", "size"),
    [(10_000, 0, 15_000, 2000), (10_000, 0, 4000, 501), (2000, 1001, 0, 1), (90_000, 90_000, 0, 1)],
)
def test_a_decimal_that_is_too_long_to_be_written_out_is_a_dead_letter(precision, scale, bits, size):
    schema = avro(amount={"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
    amount = (2**bits).to_bytes(size, signed=True)
    record = {"id": "e", "at": AT_MS, "country": "DE", "amount": amount}
    rows = [b"\0\0\0\0\1" + encoded(without_logical(schema), record), message(PLAIN, 2)]
    found, dead = read(*rows, s1=schema, s2=PLAIN)
    assert (found, dead) == ([PAID], {0: f"amount: a decimal has {size:,} bytes and a scale of {scale:,}"})


def test_binary_floating_point_is_read_by_its_shortest_text():
    schema = avro(amount="float")
    assert read(message(schema, amount=0.1), s1=schema)[0] == [PAID | {"amount": 10}]


# What is no event


WHOLE = message(PLAIN)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"", NO_PREFIX),
        (b"\0\0\0\1", NO_PREFIX),
        (b"\1" + WHOLE[1:], NO_PREFIX),
        (b'{"id": "e1"}', NO_PREFIX),
        (message(PLAIN, 9), "schema 9 is not in the registry"),
        (WHOLE[:-1], "broken Avro: ends in the middle of a value at byte 26"),
        (WHOLE + b"\0", "broken Avro: has more bytes than its schema says at byte 27"),
        (WHOLE[:5] + b"\1" + WHOLE[6:], "broken Avro: ends in the middle of a value at byte 27"),
        (WHOLE[:6] + b"\xff" + WHOLE[7:], "broken Avro: a text is not valid UTF-8 at byte 9"),
        (WHOLE[:8] + b"\xff" * 10 + WHOLE[8:], "broken Avro: a number has more than 64 bits at byte 9"),
    ],
)
def test_a_broken_message_is_one_dead_letter_that_says_why_and_keeps_its_bytes(broken, reason):
    events = read_registered(rows_of([WHOLE, broken, WHOLE]), SCHEMA, lambda number: _known(number, PLAIN))
    found, dead = parse(events, SCHEMA, frozenset())
    assert (len(found), [letter.position for letter in dead]) == (2, [1])
    assert dead[0].reason == reason
    assert dead[0].raw == f"0x{broken.hex()}"


def _known(number, schema):
    if number != 1:
        reason = "is not in the registry"
        raise SchemaError(reason)
    return WriterSchema("AVRO", json.dumps(schema))


def test_a_dead_letter_of_a_message_that_can_be_read_shows_its_fields():
    rows = read_registered(rows_of([message(PLAIN, id="")]), SCHEMA, lambda number: _known(number, PLAIN))
    (letter,) = parse(rows, SCHEMA, frozenset())[1]
    assert letter.reason == "id: is empty"
    assert json.loads(letter.raw) == {
        "id": "", "at": AT_MS, "country": "DE", "vip": None, "visits": None, "amount": "12.50",
    }  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "nothing", "size": 0},
        {"type": "record", "name": "empty", "fields": [{"name": "none", "type": "null"}]},
    ],
)
def test_few_bytes_that_promise_many_items_are_broken_at_once(items):
    schema = avro(nothing={"type": "array", "items": items})
    many = message(schema, nothing=[])[:-1] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"
    found, dead = read(many, message(schema, nothing=[]), s1=schema)
    assert len(found) == 1
    assert dead[0].startswith("broken Avro: an array has items that take no bytes")


def test_texts_that_look_like_numbers_of_more_than_64_bits_are_read_to_the_character():
    schema = avro(tags={"type": "array", "items": "string"}, either=["long", "string"])
    text = "中国银行股份有限公司"
    tag = encoded({"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}, {"a": text})
    once = message(schema, country=text, tags=[text] * 2, either=text)
    in_blocks = once.replace(b"\4" + tag * 2, b"\2" + tag + b"\1" + bytes([2 * len(tag)]) + tag)
    wide = once.replace(b"\4" + tag * 2, b"\4" + tag + b"\xff" * 10 + b"\1" + tag[1:])
    assert len({once, in_blocks, wide}) == 3
    found, dead = read(once, in_blocks, wide, s1=schema)
    assert [row["country"] for row in found] == [text, text]
    assert list(dead) == [2]


def test_a_schema_that_contains_itself_is_read_to_a_depth():
    node = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
    schema = avro(tree=node)
    begin = message(schema, tree={"next": None})[:-1]
    found, dead = read(begin + b"\2" * 90 + b"\0", begin + b"\2" * 100_000 + b"\0", s1=schema)
    assert len(found) == 1
    assert dead[1].startswith("broken Avro: is nested deeper than 100 levels")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '"string"',
        '{"type": "record", "name": "r"}',
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "unknown"}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "enum", "name": "e"}',
        json.dumps(avro(id={"type": "fixed", "name": "f", "size": 2**63})),
        "1" * 5000,
        "[" * 100_000,
    ],
)
def test_a_schema_that_cannot_be_read_makes_dead_letters_that_say_so(text):
    rows = read_registered(rows_of([WHOLE]), SCHEMA, lambda number: WriterSchema("AVRO", text))
    (letter,) = parse(rows, SCHEMA, frozenset())[1]
    assert letter.reason.startswith("schema 1 ")


def test_names_are_resolved_in_their_namespaces_and_across_references():
    land = '{"type": "enum", "name": "land", "namespace": "bank", "symbols": ["DE"]}'
    payment = '{"type": "record", "name": "bank.payment", "fields": [{"name": "country", "type": "land"}]}'
    assert read_schema(payment, [land]).fields[0].kind.symbols == ("DE",)
    with pytest.raises(SchemaError):
        read_schema(payment)
    union = read_schema(json.dumps([PLAIN, avro(more="long") | {"name": "other"}]))
    names = [field.name for record in union.records for field in record.fields]
    assert names[4:] == ["id", "at", "country", "amount", "more"]


# JSON behind the prefix of a registry


def test_json_is_read_behind_the_prefix():
    rows = text_behind_prefix(rows_of([b'\0\0\0\0\7{"a": 1}', b"{}", b"\0\0\0\0\7\xff", b""]))
    assert rows.column(RAW).to_pylist() == ['{"a": 1}', "{}", "\\xff", ""]
    assert rows.column(BROKEN).to_pylist() == [None, NO_PREFIX, "is not valid UTF-8", NO_PREFIX]


# Schemas that a checkpoint knows


TOPIC = SourceSettings.model_validate({"kind": "kafka", "topic": "payments", "format": "avro"})


class Asked:
    """A registry that counts what it is asked."""

    def __init__(self, **schemas):
        self.schemas, self.numbers = schemas, []

    def __call__(self, number):
        self.numbers.append(number)
        schema = self.schemas.get(f"s{number}")
        return None if schema is None else WriterSchema("AVRO", json.dumps(schema))


def reasons(values, *messages):
    return values.read(rows_of(messages), SCHEMA, Pinned()).column(BROKEN).to_pylist()


def test_a_schema_is_asked_for_once_and_then_known_without_a_registry(tmp_path):
    registry = Asked(s1=PLAIN)
    assert reasons(topic_messages(TOPIC, RegisteredSchemas(tmp_path, registry)), WHOLE, WHOLE) == [None, None]
    assert reasons(topic_messages(TOPIC, RegisteredSchemas(tmp_path, registry)), WHOLE) == [None]
    assert registry.numbers == [1]
    assert reasons(topic_messages(TOPIC, RegisteredSchemas(tmp_path)), WHOLE) == [None]


def test_a_schema_of_another_format_makes_dead_letters(tmp_path):
    values = topic_messages(TOPIC, RegisteredSchemas(tmp_path, lambda number: WriterSchema("PROTOBUF", "syntax")))
    assert reasons(values, WHOLE) == ["schema 1 is of type PROTOBUF, not AVRO"]


def test_a_record_of_a_schema_that_is_damaged_is_said(tmp_path, as_worded):
    reasons(topic_messages(TOPIC, RegisteredSchemas(tmp_path, Asked(s1=PLAIN))), WHOLE)
    (file,) = (tmp_path / "buckets" / "schemas").iterdir()
    file.write_text(file.read_text().replace("country", "kountry"))
    elsewhere = tmp_path.with_name("copy")
    tmp_path.rename(elsewhere)
    with pytest.raises(BucketsError, check=as_worded):
        reasons(topic_messages(TOPIC, RegisteredSchemas(elsewhere)), WHOLE)


def test_values_of_a_schema_file_have_no_prefix(tmp_path):
    rows = topic_messages(TOPIC, RegisteredSchemas(tmp_path)).read(
        rows_of([WHOLE[5:], WHOLE]), SCHEMA, Pinned(json.dumps(PLAIN))
    )
    found, dead = parse(rows, SCHEMA, frozenset())
    assert found.event_id.to_pylist() == ["e1"]
    assert [letter.position for letter in dead] == [1]
