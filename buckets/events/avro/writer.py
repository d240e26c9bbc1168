"""Writes plain values in Avro, by the schema of a record."""

import json
from typing import Any

from buckets.events.avro.avro_type import AvroType

_BRANCHES: dict[type, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("boolean",),
    int: ("long", "int"),
    str: ("string",),
    list: ("array",),
    dict: ("record", "map", "string"),
}
"""By type of a value, the branches of a union that can hold it; an object that none can is written as JSON."""


def avro_bytes(kind: AvroType, value: Any) -> bytes:
    """Return a value as Avro, without a prefix: null, truths, whole numbers, texts, lists and objects.

    A field of a record that an object does not have is null.
    """
    out = bytearray()
    _write(kind, value, out)
    return bytes(out)


def _write(kind: AvroType, value: Any, out: bytearray) -> None:
    match kind.kind:
        case "union":
            _write_branch(kind, value, out)
        case "record":
            for field in kind.fields:
                _write(field.kind, value.get(field.name), out)
        case "boolean":
            out.append(value)
        case "int" | "long":
            _write_number(value, out)
        case "string":
            _write_text(value, out)
        case "array":
            _write_items([(None, item) for item in value], kind.branches[0], out)
        case "map":
            _write_items(list(value.items()), kind.branches[0], out)
        case "null":
            pass
        case other:
            raise NotImplementedError(other)


def _write_branch(kind: AvroType, value: Any, out: bytearray) -> None:
    kinds = [branch.kind for branch in kind.branches]
    number = next(kinds.index(name) for name in _BRANCHES[type(value)] if name in kinds)
    _write_number(number, out)
    _write(kind.branches[number], value, out)


def _write_items(items: list[tuple[str | None, Any]], kind: AvroType, out: bytearray) -> None:
    """Write the items of a list, or those of a map with their names, as one block."""
    if items:
        _write_number(len(items), out)
    for name, item in items:
        if name is not None:
            _write_text(name, out)
        _write(kind, item, out)
    out.append(0)


def _write_text(value: Any, out: bytearray) -> None:
    content = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    _write_number(len(content), out)
    out += content


def _write_number(number: int, out: bytearray) -> None:
    zigzag = (number << 1) ^ (number >> 63)
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
