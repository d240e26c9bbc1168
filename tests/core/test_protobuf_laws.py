"""The decoder of Protobuf against the vendor's, on messages that are random, and on messages that are damaged."""

import itertools
import random

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.damage import damaged
from tests.core.protobuf_events import FAULTY, UNREADABLE, class_of, is_same, texts_of, value_of, vendor_reads
from tests.laws import NIGHTLY, examples

MESSAGES = 1_000_000 if NIGHTLY else 50_000
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
BOUNDS = {"int64": 63, "sint64": 63, "sfixed64": 63, "int32": 31, "sint32": 31, "sfixed32": 31}
NATURALS = {"uint64": 64, "fixed64": 64, "uint32": 32, "fixed32": 32}
TEXTS = ["", "DE", "Österreich", "中国 🏦", "x" * 200]


def random_value(rng, field, depth):
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


def fill(rng, message: Message, depth=0):
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


def check(kind, wanted, messages, rows, whole=None):
    """Compare with the vendor; returns how many are read and how many are broken."""
    read = broken = 0
    for at, (message, row) in enumerate(zip(messages, rows, strict=True)):
        if row is None:
            assert whole is None or message != whole[at], message.hex()
            broken += 1
            continue
        expected = vendor_reads(kind, message)
        assert expected is not UNREADABLE, message.hex()
        for name in wanted:
            is_faulty = row[name] is FAULTY
            assert is_faulty or is_same(row[name], value_of(expected, name)), (message.hex(), name, row[name])
        read += 1
    return read, broken


@pytest.mark.parametrize(("text", "name", "wanted"), [(SCHEMA, "Payment", WANTED), (OLD, None, OLD_WANTED)])
def test_what_the_vendors_encoder_writes_is_read_as_its_decoder_reads_it(text, name, wanted):
    rng, kind = random.Random(3), class_of(text, name)
    messages = []
    for _ in range(examples(3000)):
        message = kind()
        fill(rng, message)
        messages.append(message.SerializePartialToString())
    # Written one after the other they are one message: fields come again, and messages inside are joined.
    messages += [first + second for first, second in itertools.pairwise(messages)]
    rows = texts_of(text, wanted, messages, name)
    for message, row in zip(messages, rows, strict=True):
        assert row is not None
        expected = vendor_reads(kind, message)
        for field in wanted:
            assert is_same(row[field], value_of(expected, field)), (message.hex(), field, row[field])


@pytest.mark.slow
@pytest.mark.parametrize(("text", "name", "wanted"), [(SCHEMA, "Payment", WANTED), (OLD, None, OLD_WANTED)])
def test_a_damaged_message_is_read_as_the_vendors_decoder_reads_it_or_is_broken_and_no_neighbour_is_lost(
    text, name, wanted
):
    rng, kind = random.Random(7), class_of(text, name)
    read = broken = 0
    for _ in range(0, MESSAGES, 1000):
        whole = []
        for _ in range(1000):
            message = kind()
            fill(rng, message, 2)
            whole.append(message.SerializePartialToString())
        messages = [damaged(rng, message) for message in whole]
        rows = texts_of(text, wanted, messages, name)
        counted = check(kind, wanted, messages, rows, whole)
        read, broken = read + counted[0], broken + counted[1]
    assert min(read, broken) > MESSAGES // 8


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30))
@settings(max_examples=examples(300))
def test_bytes_of_any_kind_are_read_as_the_vendors_decoder_reads_them_or_are_broken(messages):
    check(class_of(SCHEMA, "Payment"), WANTED, messages, texts_of(SCHEMA, WANTED, messages, "Payment"))
