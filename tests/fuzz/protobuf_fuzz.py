"""Damaged messages in Protobuf, held against the vendor's decoder."""

import random
from collections.abc import Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

from tests.core.protobuf_events import FAULTY, UNREADABLE, class_of, is_same, texts_of, value_of, vendor_reads
from tests.fuzz.damage import PIECE, Fuzzed, damaged

SCHEMA = """
syntax = "proto3";
package bank;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

message Payment {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  int64 cents = 3;
  optional string country = 4;
  Kind kind = 5;
  bool vip = 6;
  Customer customer = 7;
  oneof means { string card = 8; int64 account = 9; Customer payer = 10; }
  uint64 big = 11;
  sint64 signed = 12;
  sint32 small = 13;
  fixed32 fixed = 14;
  sfixed32 sfixed = 15;
  fixed64 wide = 16;
  sfixed64 swide = 17;
  float ratio = 18;
  double risk = 19;
  uint32 count = 20;
  int32 offset = 21;
  bytes raw = 22;
  google.protobuf.StringValue note = 23;
  google.protobuf.UInt64Value limit = 24;
  optional double level = 25;
  repeated string tags = 30;
  repeated int32 scores = 31;
  repeated fixed64 stamps = 32;
  map<string, Customer> people = 33;
  repeated Customer others = 34;
  enum Kind { CARD = 0; CASH = 1; WIRE = -2; }
}
message Customer {
  string name = 1;
  optional int32 age = 2;
  Address address = 3;
  Customer parent = 4;
}
message Address { string country = 100; sint64 zip = 200; }
"""
OLD = """
syntax = "proto2";
message Payment {
  required string id = 1;
  optional string at = 2 [default = "never"];
  optional int64 cents = 3 [default = -7];
  optional Kind kind = 4 [default = WIRE];
  optional double risk = 5 [default = 1.5];
  optional bool vip = 6 [default = true];
  optional group Part = 7 { optional string sku = 1; repeated group Inner = 2 { optional int32 x = 1; } }
  repeated int32 packed = 8 [packed = true];
  optional float ratio = 9;
  enum Kind { CARD = 1; WIRE = 5; }
}
"""
WANTED = [
    "id", "at", "cents", "country", "kind", "vip", "customer", "customer.name", "customer.age",
    "customer.address.country", "customer.address.zip", "customer.parent.name", "card", "account", "payer.name",
    "payer.age", "big", "signed", "small", "fixed", "sfixed", "wide", "swide", "ratio", "risk", "count", "offset",
    "raw", "note", "limit", "level",
]  # fmt: skip
OLD_WANTED = ["id", "at", "cents", "kind", "risk", "vip", "ratio", "part.sku"]
TOPICS = ((SCHEMA, "Payment", WANTED), (OLD, None, OLD_WANTED))
"""A schema, its message and the wanted fields."""
BOUNDS = {"int64": 63, "sint64": 63, "sfixed64": 63, "int32": 31, "sint32": 31, "sfixed32": 31}
NATURALS = {"uint64": 64, "fixed64": 64, "uint32": 32, "fixed32": 32}
TEXTS = ["", "DE", "Österreich", "中国 🏦", "x" * 200]


def random_value(rng: random.Random, field: FieldDescriptor, depth: int) -> Any:
    """A value of a field."""
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if kind in BOUNDS:
        most = 2 ** BOUNDS[kind]
        return rng.choice([0, 1, -1, most - 1, -most, rng.randrange(-most, most)])
    if kind in NATURALS:
        return rng.choice([0, 1, 2 ** NATURALS[kind] - 1, rng.randrange(2 ** NATURALS[kind])])
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(TEXTS)
        case "bytes":
            return rng.choice([b"", b"abc", b"\xff\x00", rng.randbytes(9)])
        case "double" | "float":
            return rng.choice([0.0, -0.0, 0.5, -1e30, float("inf"), rng.random()])
        case "enum":
            return rng.choice([value.number for value in field.enum_type.values])
    made = message_factory.GetMessageClass(field.message_type)()
    fill(rng, made, depth + 1)
    return made


def fill(rng: random.Random, message: Message, depth: int = 0) -> None:
    """Fill a message at random; each field is there or not."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp" and rng.random() < 0.8:
        message.seconds, message.nanos = rng.randrange(-(10**9), 10**10), rng.choice([0, 5_000_000, 123_456_789, 1000])
        return
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.4 or (depth > 3 and field.message_type is not None):
            continue
        target = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(rng.randrange(3)):
                fill(rng, target[rng.choice(TEXTS)], depth + 1)
        elif field.is_repeated:
            target.extend(random_value(rng, field, depth) for _ in range(rng.randrange(4)))
        elif field.message_type is not None:
            target.SetInParent()
            fill(rng, target, depth + 1)
        else:
            setattr(message, field.name, random_value(rng, field, depth))


def check(kind: type[Message], wanted: Sequence[str], message: bytes, row: dict[str, Any] | None) -> None:
    """Compare a message that is not broken with what the vendor reads of it."""
    if row is None:
        return
    expected = vendor_reads(kind, message)
    assert expected is not UNREADABLE, message.hex()
    for name in wanted:
        assert row[name] is FAULTY or is_same(row[name], value_of(expected, name)), (message.hex(), name, row[name])


def fuzz_protobuf(seed: int, count: int) -> Fuzzed:
    """Damage so many messages, and see that each is read as the vendor reads it, or is broken."""
    rng, fuzzed = random.Random(seed), Fuzzed()
    for piece in range(0, count, PIECE):
        text, name, wanted = TOPICS[piece // PIECE % len(TOPICS)]
        kind, whole = class_of(text, name), list[bytes]()
        for _ in range(PIECE):
            message = kind()
            fill(rng, message, 2)
            whole.append(message.SerializePartialToString())
        messages = [damaged(rng, message) for message in whole]
        for message, before, row in zip(messages, whole, texts_of(text, wanted, messages, name), strict=True):
            assert row is not None or message != before, message.hex()
            fuzzed.count(row is not None)
            check(kind, wanted, message, row)
    return fuzzed
