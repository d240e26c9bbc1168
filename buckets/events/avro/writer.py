"""Writes plain values in Avro: a schema becomes functions, one in the other, each of which writes values of a type."""

import json
from collections.abc import Callable
from typing import Any

from buckets.events.avro.avro_type import AvroType

Write = Callable[[Any, bytearray], None]
"""Writes a value behind what is there."""
_BRANCHES: dict[type, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("boolean",),
    int: ("long", "int"),
    str: ("string",),
    list: ("array", "string"),
    dict: ("record", "map", "string"),
}
"""By type of a value, the branches of a union that can hold it; an object or a list may be JSON as text."""


def avro_writer(kind: AvroType) -> Write:
    """Return what writes null, truths, whole numbers, texts, lists and objects, without a prefix.

    A field of a record that an object does not have is null. The type must not contain itself.
    """
    return _MAKERS[kind.kind](kind)


def _record(kind: AvroType) -> Write:
    fields = [(field.name, avro_writer(field.kind)) for field in kind.fields]

    def write(value: Any, out: bytearray) -> None:
        for name, write_field in fields:
            write_field(value.get(name), out)

    return write


def _union(kind: AvroType) -> Write:
    kinds = [branch.kind for branch in kind.branches]
    chosen = {
        of_value: next((kinds.index(name) for name in names if name in kinds), None)
        for of_value, names in _BRANCHES.items()
    }
    branches = {
        of_value: (number, avro_writer(kind.branches[number]))
        for of_value, number in chosen.items()
        if number is not None
    }

    def write(value: Any, out: bytearray) -> None:
        number, write_branch = branches[type(value)]
        write_number(number, out)
        write_branch(value, out)

    return write


def _array(kind: AvroType) -> Write:
    write_item = avro_writer(kind.branches[0])

    def write(value: Any, out: bytearray) -> None:
        # One block; its length is 0, and the end of the list, where there are no items.
        write_number(len(value), out)
        for item in value:
            write_item(item, out)
        if value:
            out.append(0)

    return write


def _map(kind: AvroType) -> Write:
    write_item = avro_writer(kind.branches[0])

    def write(value: Any, out: bytearray) -> None:
        write_number(len(value), out)
        for name, item in value.items():
            write_text(name, out)
            write_item(item, out)
        if value:
            out.append(0)

    return write


def write_text(value: Any, out: bytearray) -> None:
    """Write a text; an object or a list as JSON."""
    content = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    write_number(len(content), out)
    out += content


def write_number(number: int, out: bytearray) -> None:
    """Write a whole number of up to 64 bits."""
    zigzag = (number << 1) ^ (number >> 63)
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)


def _write_boolean(value: Any, out: bytearray) -> None:
    out.append(value)


def _write_nothing(value: Any, out: bytearray) -> None:
    pass


_MAKERS: dict[str, Callable[[AvroType], Write]] = {
    "record": _record,
    "union": _union,
    "array": _array,
    "map": _map,
    "string": lambda kind: write_text,
    "int": lambda kind: write_number,
    "long": lambda kind: write_number,
    "boolean": lambda kind: _write_boolean,
    "null": lambda kind: _write_nothing,
}
