"""Keys of messages in JSON, Avro and Protobuf: one value, or an object with fields."""

import json
from decimal import Decimal

import pytest
import yaml
from google.protobuf import message_factory

from buckets.checkpoint.identity import CheckpointIdentity, Terms
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.events.decoded import AVRO, PROTOBUF, PinnedProtobuf, WriterSchema
from buckets.events.protobuf.proto_schema import message_named, read_schema
from buckets.events.protobuf.wanted import pinned_with
from tests.core.avro_events import encoded
from tests.core.pinned import Pinned
from tests.core.read_messages import TestMessage, read_messages

AT_MS = 1_700_000_000_123
WHOLE = {
    "event_id": "id",
    "event_time": "at",
    "attributes": {"card": "string", "country": "string"},
    "origins": {"card": "key"},
}
INSIDE = {
    "event_id": "id",
    "event_time": "at",
    "attributes": {"card": "string", "shard": "long", "country": "string"},
    "measures": {"limit": {"scale": 2}},
    "origins": {"card": "key.card", "shard": "key.place.shard", "limit": "key.limit"},
}
PLACE = {"type": "record", "name": "place", "fields": [{"name": "shard", "type": "int"}]}
LIMIT = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
KEY_FIELDS = [
    {"name": "card", "type": "string"},
    {"name": "place", "type": ["null", PLACE]},
    {"name": "limit", "type": LIMIT},
]
RECORD = {"type": "record", "name": "key", "namespace": "bank", "fields": KEY_FIELDS}
UUID = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
PROTO = """syntax = "proto3"; package bank;
message Key { string card = 1; Place place = 2; string limit = 3; }
message Place { int32 shard = 1; }
"""


def message(key, value=None):
    """A message in JSON with a key."""
    return TestMessage(value or json.dumps({"id": "e1", "at": AT_MS, "country": "DE"}).encode(), key)


def read(folder, messages, events, written_in, ask=None, **source):
    """Events, and reasons of dead letters by position."""
    pinned = Pinned(key_format=written_in, protobuf=source.pop("protobuf", None))
    return read_messages(folder, messages, events, source, pinned, ask)


def cards(found):
    return [event["card"] for event in found.events]


def registered(**schemas):
    """A registry that knows schemas by number."""
    return lambda number: schemas.get(f"s{number}")


def avro_key(schema, value, number=1):
    """A key as the vendor's encoder writes it, behind its prefix."""
    wrapped = {"type": "record", "name": "wrapper", "fields": [{"name": "key", "type": schema}]}
    return b"\0" + number.to_bytes(4, "big") + encoded(wrapped, {"key": value})


def in_avro(schema):
    return WriterSchema(AVRO, json.dumps(schema))


def proto_key(text=PROTO, number=1, **fields):
    kind = message_factory.GetMessageClass(message_named(read_schema(WriterSchema("PROTOBUF", text)), "bank.Key"))
    return b"\0" + number.to_bytes(4, "big") + b"\0" + kind(**fields).SerializeToString()


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\7"])
def test_a_key_in_json_that_is_one_value_is_text_to_the_digit(tmp_path, prefix):
    keys = [b'"c\\u00e9"', b" 9007199254740993.10 ", b"1e400", b"null", b"\xef\xbb\xbf-0"]
    found = read(
        tmp_path, [*(message(prefix + key) for key in keys), message(None)], WHOLE, "json_sr" if prefix else "json"
    )
    assert cards(found) == ["cé", "9007199254740993.10", "1e400", None, "0", None]
    assert found.dead == {}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b"", "key: broken JSON: Expecting value at character 1"),
        (b"c1", "key: broken JSON: Expecting value at character 1"),
        (b'"c1" 2', "key: broken JSON: there is more after the first value, at character 6"),
        (b'"c1","key":"c2"', "key: broken JSON: there is more after the first value, at character 5"),
        (b"NaN", "key: broken JSON: NaN is not a number in JSON"),
        (b"[1]", "key: is a list, and must be one value"),
        (b'{"key": 1}', "key: is an object, and must be one value"),
        (b"true", "key: is true, and must be text"),
        (b'"\\ud800"', "key: "),
        (b'"\xff"', "key: is not valid UTF-8"),
        (b"[" * 100_000, "key: broken JSON: nested deeper than 500 levels"),
    ],
)
def test_a_key_in_json_that_is_broken_is_one_dead_letter(tmp_path, key, reason):
    found = read(tmp_path, [message(b'"c0"'), message(key), message(b"7")], WHOLE, "json")
    assert cards(found) == ["c0", "7"]
    assert list(found.dead) == [1]
    assert found.dead[1].startswith(reason)


def test_fields_in_keys_in_json_are_read_by_their_paths(tmp_path):
    keys = [
        b'{"card": "c1", "place": {"shard": 3}, "limit": 12.5}',
        b'{"card": "c2", "place": null, "other": [1]}',
        b'{"card": "c3", "card": "c4"}',
        b'{"card": {"a": 1}}',
        b'{"place": 7}',
        b'"c1"',
        b"{",
        b'{"limit": 0.125}',
    ]
    found = read(tmp_path, list(map(message, keys)), INSIDE, "json")
    assert [(event["card"], event["shard"], event["limit"]) for event in found.events] == [
        ("c1", 3, 1250),
        ("c2", None, None),
    ]
    assert found.dead == {
        2: "key.card: is given twice",
        3: "key.card: is an object, and must be one value",
        4: "key.place: is one value, and must be an object",
        5: "key: is one value, and must be an object",
        6: "key: broken JSON: Expecting property name enclosed in double quotes at character 2",
        7: "limit: 0.125 has more than 2 digits after the point",
    }


# Avro


@pytest.mark.parametrize(
    ("schema", "value", "card"),
    [
        ("string", "cé", "cé"),
        ("long", 9007199254740993, "9007199254740993"),
        (LIMIT, Decimal("12.50"), "12.50"),
        (["null", "string"], None, None),
        ({"type": "enum", "name": "kind", "symbols": ["A", "B"]}, "B", "B"),
        ("bytes", b"c1", "c1"),
        ({"type": "string", "logicalType": "uuid"}, UUID, UUID),
    ],
)
def test_a_key_in_avro_may_be_one_value_of_any_type(tmp_path, schema, value, card):
    whole = avro_key(schema, value)
    cut = [message(key) for key in (whole + b"\0", whole[:4], b"")]
    found = read(tmp_path, [message(whole), *cut, message(None)], WHOLE, "avro", registered(s1=in_avro(schema)))
    assert cards(found) == [card, None]
    no_prefix = "key: does not begin with the prefix of a schema registry, five bytes of which the first is 0"
    assert found.dead == {
        1: f"key: broken Avro: has more bytes than its schema says at byte {len(whole) + 1}",
        2: no_prefix,
        3: no_prefix,
    }


def test_fields_in_keys_in_avro_are_read_to_the_digit_each_by_its_own_schema(tmp_path):
    renamed = RECORD | {"fields": [{"name": "number", "aliases": ["card"], "type": "long"}]}
    keys = [
        avro_key(RECORD, {"card": "c1", "place": {"shard": 3}, "limit": Decimal("12.50")}),
        avro_key(renamed, {"number": 7}, 2),
        avro_key(RECORD, {"card": "c2", "place": None, "limit": Decimal("0")})[:-1],
        avro_key("string", "c3", 3),
        avro_key("string", "c4", 4),
        avro_key(
            RECORD | {"fields": [{"name": "card", "type": RECORD | {"name": "inner"}}]},
            {"card": {"card": "", "limit": Decimal(0), "place": None}},
            5,
        ),
        None,
        avro_key(RECORD, {"card": "c5", "place": {"shard": 1}, "limit": Decimal("0.01")}),
    ]
    schemas = {"s1": RECORD, "s2": renamed, "s3": "string"}
    schemas["s5"] = RECORD | {"fields": [{"name": "card", "type": RECORD | {"name": "inner"}}]}
    ask = registered(**{number: in_avro(schema) for number, schema in schemas.items()})
    found = read(tmp_path, list(map(message, keys)), INSIDE, "avro", ask)
    assert [(event["card"], event["shard"], event["limit"]) for event in found.events] == [
        ("c1", 3, 1250),
        ("7", None, None),
        (None, None, None),
        ("c5", 1, 1),
    ]
    assert found.dead == {
        2: "key: broken Avro: ends in the middle of a value at byte 11",
        3: "key: schema 3 is not a record but of type string",
        4: "key: schema 4 is not in the registry",
        5: "key.card: is an object, and must be one value",
    }


def test_an_object_where_a_key_must_be_one_value_is_a_dead_letter(tmp_path):
    key = avro_key(RECORD, {"card": "c1", "place": None, "limit": Decimal(1)})
    found = read(tmp_path, [message(key)], WHOLE, "avro", registered(s1=in_avro(RECORD)))
    assert found.dead == {0: "key: is an object, and must be one value"}


def test_schemas_of_keys_are_those_that_the_batch_has_known_and_lie_in_the_checkpoint(tmp_path):
    rows = [message(avro_key("string", "c1"))]
    assert read(tmp_path, rows, WHOLE, "avro").dead == {0: "key: schema 1 is not in the registry"}
    assert cards(read(tmp_path, rows, WHOLE, "avro", registered(s1=in_avro("string")))) == ["c1"]
    assert cards(read(tmp_path, rows, WHOLE, "avro")) == ["c1"]


def test_keys_that_no_field_lies_in_are_not_read_and_no_registry_is_asked(tmp_path):
    def ask(number):
        raise AssertionError(number)

    events = {"event_id": "id", "event_time": "at", "attributes": {"country": "string"}}
    assert read(tmp_path, [message(b"\xff"), message(None)], events, "avro", ask).dead == {}


# Protobuf


def test_fields_in_keys_in_protobuf_are_read_by_name_and_by_the_numbers_that_they_had(tmp_path):
    renamed = PROTO.replace("string card", "string name").replace("int32 shard", "int64 no")
    keys = [
        proto_key(card="c1", place={"shard": 3}, limit="12.50"),
        proto_key(renamed, 2, name="c2", place={"no": 4}, limit="1"),
        proto_key(card="c3")[:-1],
        proto_key(card="c4")[:5] + b"\1",
    ]
    ask = registered(s1=WriterSchema(PROTOBUF, PROTO), s2=WriterSchema(PROTOBUF, renamed))
    pinned = pinned_with(
        PinnedProtobuf(), read_schema(WriterSchema("PROTOBUF", PROTO)), ["card", "place.shard", "limit"]
    )
    found = read(tmp_path, list(map(message, keys)), INSIDE, "protobuf", ask, protobuf=pinned)
    assert [(event["card"], event["shard"]) for event in found.events] == [("c1", 3), ("c2", 4)]
    assert found.dead[2] == "key: broken Protobuf: is not a message of type bank.Key"
    assert found.dead[3] == "key: has no indexes of a message behind its prefix"


# Envelopes


def test_changes_of_rows_have_keys_and_what_is_skipped_is_so_whatever_its_key(tmp_path):
    change = json.dumps({"op": "c", "after": {"id": "e1", "at": AT_MS, "country": "DE"}}).encode()
    deleted = json.dumps({"op": "d", "after": None}).encode()
    described = b'{"schema": {"type": "struct"}, "payload": {"card": "c2", "place": {"shard": 1}}}'
    rows = [
        message(b'{"card": "c1"}', change),
        message(described, change),
        message(described, deleted),
        message(b"{", deleted),
        message(b"{", change),
        TestMessage(None, b"{"),
        message(b'{"schema": 1, "card": "c3", "payload": null}', change),
    ]
    found = read(tmp_path, rows, INSIDE, "json", envelope="debezium")
    assert [(event["card"], event["shard"]) for event in found.events] == [("c1", None), ("c2", 1), ("c3", None)]
    assert list(found.dead) == [4]
    assert found.skipped == {"deleted": 2, "tombstone": 1}


def test_the_id_and_the_time_may_lie_in_keys(tmp_path):
    events = {"event_id": "id", "event_time": "at", "attributes": {"same": "long", "country": "string"}}
    events |= {"origins": {"id": "key.id", "at": "key.at", "same": "key.id"}}
    at = {"type": "long", "logicalType": "timestamp-micros"}
    schema = {"type": "record", "name": "key", "fields": [{"name": "id", "type": "int"}, {"name": "at", "type": at}]}
    key = avro_key(schema, {"id": 7, "at": AT_MS * 1000 + 999})
    found = read(tmp_path, [message(key), message(None)], events, "avro", registered(s1=in_avro(schema)))
    assert found.events == [{"id": "7", "at": AT_MS, "same": 7, "country": "DE"}]
    assert found.dead == {1: "id: is missing or null"}


# Configurations


def load(folder, source, events):
    counting = {"rule_id": "r", "group_by": ["card"], "aggregate": {"function": "count"}}
    counting |= {"window": {"length": "1h"}, "limit": {"operator": ">", "value": "1"}}
    registry = {"registry": {"url": "http://localhost:8081"}}
    conf = {
        "kafka": {"bootstrap_servers": "localhost:9092"} | ({} if source.pop("alone", False) else registry),
        "source": {"kind": "kafka", "topic": "t"} | source,
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "c",
        "output": {"path": "tables"},
    }
    for name, content in {"rules": {"rules": [counting]}, "schema": events, "conf": conf}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return load_job(folder / "conf.yaml")


@pytest.mark.parametrize(
    ("source", "events"),
    [
        ({}, INSIDE),
        ({"key_format": "protobuf"}, WHOLE),
        ({"key_format": "avro", "alone": True}, INSIDE),
        ({"key_format": "protobuf", "format": "protobuf", "alone": True}, INSIDE),
        ({"key_format": "xml"}, INSIDE),
        ({"key_format": "avro"}, INSIDE | {"origins": {"card": "key", "shard": "key.shard"}}),
        ({"key_format": "avro"}, INSIDE | {"origins": {"card": "key.items[].id"}}),
        ({"key_format": "avro"}, INSIDE | {"origins": {"card": "key."}}),
    ],
)
def test_a_configuration_says_what_is_wrong_with_keys(tmp_path, source, events, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        load(tmp_path, dict(source), events)


def test_how_keys_are_written_is_pinned_with_a_batch_and_may_be_said_later(tmp_path):
    written = CheckpointIdentity.of(load(tmp_path, {}, WHOLE | {"origins": {}})).to_json()
    job = load(tmp_path, {"key_format": "avro"}, INSIDE)
    assert Terms.of(job, None).key_format == "avro"
    assert Terms.model_validate_json(Terms.of(job, None).model_dump_json()).key_format == "avro"
    assert (
        CheckpointIdentity.of(load(tmp_path, {"key_format": "avro"}, WHOLE | {"origins": {}})).conflict(written) is None
    )
