"""Damaged messages in Avro, held against the vendor's decoder."""

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro

from tests.core.avro_events import FAULTY, encoded, is_same, texts_of, vendor_reads
from tests.fuzz.damage import PIECE, Fuzzed, damaged

FUZZED = {
    "type": "record",
    "name": "payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "country", "type": ["null", "string"]},
        {"name": "risk", "type": ["null", "double", "int"]},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["CARD", "WIRE", "CASH"]}},
        {"name": "vip", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "long"]}},
        {
            "name": "tree",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "node",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "child", "type": ["null", "node"]}],
                },
            ],
        },
        {"name": "count", "type": "int"},
    ],
}
WANTED = ["id", "at", "amount", "country", "risk", "kind", "vip", "count"]


def payment(rng: random.Random) -> dict[str, Any]:
    """A payment."""
    tree = None
    for _ in range(rng.randrange(4)):
        tree = {"sku": "s" * rng.randrange(5), "child": tree}
    return {
        "id": f"e{rng.randrange(10**6)}",
        "at": datetime.fromtimestamp(rng.randrange(-(10**9), 2 * 10**9), UTC),
        "amount": Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2),
        "country": rng.choice([None, "DE", "Österreich", "中国"]),
        "risk": rng.choice([None, 0.5, 7]),
        "kind": rng.choice(["CARD", "WIRE", "CASH"]),
        "vip": rng.random() < 0.5,
        "tags": ["t" * rng.randrange(9) for _ in range(rng.randrange(4))],
        "more": {f"k{index}": rng.choice([None, rng.randrange(-(2**40), 2**40)]) for index in range(rng.randrange(3))},
        "tree": tree,
        "count": rng.randrange(-(2**31), 2**31),
    }


def fuzz_avro(seed: int, count: int) -> Fuzzed:
    """Damage so many messages, and see that each is read as the vendor reads it, or is broken."""
    rng, parsed, fuzzed = random.Random(seed), fastavro.parse_schema(FUZZED), Fuzzed()
    for _ in range(0, count, PIECE):
        whole = [encoded(parsed, payment(rng)) for _ in range(PIECE)]
        messages = [damaged(rng, message) for message in whole]
        rows = texts_of(FUZZED, WANTED, messages)
        for message, before, row in zip(messages, whole, rows, strict=True):
            assert row is not None or message != before, message.hex()
            fuzzed.count(row is not None)
            if row is not None:
                _check(parsed, message, row)
    return fuzzed


def _check(parsed: Any, message: bytes, row: dict[str, Any]) -> None:
    expected, left = _vendor(parsed, message)
    assert left == 0
    for name in WANTED:
        same = row[name] is FAULTY or expected is None or is_same(row[name], expected[name])
        # The vendor reads an int of any size, and counts symbols from the end; both are null where another field was
        # found faulty before.
        same = same or (row[name] is None and (name == "kind" or not -(2**31) <= expected["count"] < 2**31))
        assert same, (message.hex(), name, row[name], expected)
    # Where the vendor reads nothing, it is a field that has no value in its logical type, or no symbol of its enum;
    # this one is null where another field was found faulty before.
    assert expected is not None or row["kind"] is None or FAULTY in [row[name] for name in WANTED if name != "vip"]


def _vendor(parsed: Any, message: bytes) -> tuple[dict[str, Any] | None, int]:
    try:
        return vendor_reads(parsed, message)
    except (IndexError, OverflowError, ValueError):
        return None, 0
