"""The decoder of Protobuf against the vendor's, on messages that are random, and on messages that are damaged."""

import base64
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.events.decoded import SchemaError, WriterSchema
from buckets.events.protobuf.proto_schema import messages_of, read_schema
from tests.core.protobuf_events import class_of, descriptors_of, is_same, texts_of, value_of, vendor_reads
from tests.fuzz.damage import damaged
from tests.fuzz.protobuf_fuzz import SCHEMA, TOPICS, WANTED, check, fill, fuzz_protobuf
from tests.laws import examples

MESSAGES = 100_000
SCHEMAS, TEXTS = 2000, 50


@pytest.mark.parametrize(("text", "name", "wanted"), TOPICS)
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
def test_a_damaged_message_is_read_as_the_vendors_decoder_reads_it_or_is_broken_and_no_neighbour_is_lost():
    fuzzed = fuzz_protobuf(7, MESSAGES)
    assert min(fuzzed.read, fuzzed.broken) > MESSAGES // 8


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30))
@settings(max_examples=examples(300))
def test_bytes_of_any_kind_are_read_as_the_vendors_decoder_reads_them_or_are_broken(messages):
    kind = class_of(SCHEMA, "Payment")
    for message, row in zip(messages, texts_of(SCHEMA, WANTED, messages, "Payment"), strict=True):
        check(kind, WANTED, message, row)


def test_a_damaged_schema_is_read_or_said_to_be_none():
    rng = random.Random(5)
    descriptors = [descriptors_of(WriterSchema("PROTOBUF", text))[-1].SerializeToString() for text, _, _ in TOPICS]
    refused = 0
    for at in range(SCHEMAS):
        is_text = at < TEXTS
        changed = damaged(rng, damaged(rng, SCHEMA.encode() if is_text else descriptors[at % len(descriptors)]))
        text = changed.decode("utf-8", "replace") if is_text else base64.b64encode(changed).decode()
        try:
            messages_of(read_schema(WriterSchema("PROTOBUF", text)))
        except SchemaError:
            refused += 1
    assert 0 < refused < SCHEMAS
