"""The decoder of Avro against the vendor's, on random schemas and records, and on messages that are damaged."""

import itertools
from datetime import UTC, datetime, time
from decimal import Decimal

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.avro_events import encoded, is_same, texts_of, vendor_reads
from tests.fuzz.avro_fuzz import fuzz_avro
from tests.laws import examples

MESSAGES = 100_000
LONGS = st.integers(-(2**63), 2**63 - 1)


def decimals(precision, scale):
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(lambda number: Decimal(f"{number}E-{scale}"))


def logical(kind, name):
    return {"type": kind, "logicalType": name}


def moments(least, zone):
    drawn = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - the zone is given below
    return drawn.map(lambda at: at.replace(microsecond=at.microsecond // least * least, tzinfo=zone))


PLAIN = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", LONGS),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=20)),
    (logical("int", "date"), st.dates()),
    (logical("int", "time-millis"), st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
    (logical("long", "time-micros"), st.times()),
    (logical("long", "timestamp-millis"), moments(1000, UTC)),
    (logical("long", "timestamp-micros"), moments(1, UTC)),
    (logical("long", "local-timestamp-micros"), moments(1, None)),
    (logical("string", "uuid"), st.uuids()),
]


@st.composite
def types(draw, depth=2):
    """A type, and values of it."""
    choice = draw(st.integers(0, len(PLAIN) + (7 if depth else 3)))
    if choice < len(PLAIN):
        return PLAIN[choice]
    if choice == len(PLAIN):
        symbols = draw(st.lists(st.from_regex(r"[A-Z][A-Z0-9_]{0,5}", fullmatch=True), min_size=1, unique=True))
        return {"type": "enum", "name": "e", "symbols": symbols}, st.sampled_from(symbols)
    if choice == len(PLAIN) + 1:
        size = draw(st.integers(0, 9))
        return {"type": "fixed", "name": "f", "size": size}, st.binary(min_size=size, max_size=size)
    if choice in (len(PLAIN) + 2, len(PLAIN) + 3):
        precision = draw(st.integers(1, 50))
        scale = draw(st.integers(0, precision))
        kind = {"logicalType": "decimal", "precision": precision, "scale": scale, "type": "bytes"}
        if choice % 2:
            kind |= {"type": "fixed", "name": "d", "size": 22}
        return kind, decimals(precision, scale)
    inner, values = draw(types(depth=depth - 1))
    if choice == len(PLAIN) + 4 and (inner == "null" or inner == {"type": "fixed", "name": "f", "size": 0}):
        return PLAIN[0]  # items that take no bytes
    if choice == len(PLAIN) + 4:
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if choice == len(PLAIN) + 5:
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=4)
    if choice == len(PLAIN) + 6:
        record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": inner}]}
        again = {"name": "next", "type": ["null", "r"]}
        record["fields"].append(again)
        leaf = values.map(lambda value: {"a": value, "next": None})
        return record, leaf | st.builds(lambda value, rest: {"a": value, "next": rest}, values, leaf)
    if inner == "null" or isinstance(inner, list):
        return PLAIN[2]
    return ["null", inner] if draw(st.booleans()) else [inner, "null"], values | st.none()


def named_apart(schema, count):
    """A schema in which each named type has a name of its own; within a record `r` names the record itself."""
    if isinstance(schema, list):
        return [named_apart(branch, count) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: named_apart(part, count) for name, part in schema.items() if name in ("type", "items", "values")}
    if schema["type"] not in ("enum", "fixed", "record"):
        return schema | parts
    name = f"{schema['name']}{next(count)}"
    if schema["type"] == "record":
        value, again = schema["fields"]
        parts["fields"] = [named_apart(value, count), again | {"type": ["null", name]}]
    return schema | parts | {"name": name}


@st.composite
def topics(draw):
    """A schema of a record, the names that are wanted, and records."""
    fields = draw(st.lists(types(), min_size=2, max_size=6))
    names = [f"n{index}" for index in range(len(fields))]
    count = itertools.count()
    kinds = [named_apart(kind, count) for kind, _ in fields]
    schema = {
        "type": "record",
        "name": "payment",
        "fields": [{"name": name, "type": kind} for name, kind in zip(names, kinds, strict=True)],
    }
    record = st.fixed_dictionaries({name: values for name, (_, values) in zip(names, fields, strict=True)})
    wanted = draw(st.lists(st.sampled_from([*names, "absent"]), min_size=2, unique=True))
    return schema, wanted, draw(st.lists(record, min_size=1, max_size=5))


@given(topics())
@settings(max_examples=examples(800))
def test_what_the_vendors_encoder_writes_is_read_as_its_decoder_reads_it(topic):
    schema, wanted, records = topic
    parsed = fastavro.parse_schema(schema)
    messages = [encoded(parsed, record) for record in records]
    for message, row in zip(messages, texts_of(schema, wanted, messages), strict=True):
        expected, _ = vendor_reads(parsed, message)
        assert row is not None
        for name in wanted:
            assert is_same(row[name], expected.get(name)), (name, row[name], expected.get(name))


@pytest.mark.slow
def test_a_damaged_message_is_read_as_the_vendors_decoder_reads_it_or_is_broken_and_no_neighbour_is_lost():
    fuzzed = fuzz_avro(7, MESSAGES)
    assert min(fuzzed.read, fuzzed.broken) > MESSAGES // 6


def test_times_of_a_day_have_digits_to_the_microsecond():
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": "string"}, {"name": "t", "type": logical("long", "time-micros")}],
    }
    (row,) = texts_of(schema, ["a", "t"], [encoded(schema, {"a": "x", "t": time(1, 2, 3, 4)})])
    assert row == {"a": "x", "t": "01:02:03.000004"}
