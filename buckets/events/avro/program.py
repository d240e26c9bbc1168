"""What of a schema is wanted, as flat arrays that a compiled loop walks through.

Every type is a node. The types on the way to a wanted field have nodes of their own, with the number of its slot, where
the value of a message is put down; all others are shared, since what lies in them is only passed over:

    record ─┬─ "id"       string   slot 0
            ├─ "amount"   union  ─┬─ null    slot 1     whichever branch a message has
            │                     └─ bytes   slot 1
            └─ "customer" record ─┬─ string             passed over
                                  └─ …
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.events.avro.avro_type import NO_RECORD, AvroSchemaError, AvroType, RecordField
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]
NULL: Final = 0
BOOLEAN: Final = 1
INT: Final = 2
LONG: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
BYTES: Final = 6
STRING: Final = 7
FIXED: Final = 8
ENUM: Final = 9
ARRAY: Final = 10
MAP: Final = 11
UNION: Final = 12
RECORD: Final = 13
NO_SLOT: Final = -1
_CODES = {
    "null": NULL,
    "boolean": BOOLEAN,
    "int": INT,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BYTES,
    "string": STRING,
    "fixed": FIXED,
    "enum": ENUM,
    "array": ARRAY,
    "map": MAP,
    "union": UNION,
    "record": RECORD,
}


class Program(NamedTuple):
    """The nodes of a schema; the last one is its root. All arrays are read-only int64.

    Attributes:
        kind: of each node, one of the codes above.
        size: fields of a record, branches of a union, symbols of an enum, bytes of a fixed; 1 for arrays and maps.
        first: where the nodes of these fields or branches, or of items and values, begin in `parts`.
        slot: where its value is put down; `NO_SLOT` for what is passed over.
        parts: nodes.
    """

    kind: Int64s
    size: Int64s
    first: Int64s
    slot: Int64s
    parts: Int64s


def program_of(root: AvroType, names: Sequence[str]) -> tuple[Program, list[AvroType]]:
    """Return how messages of a schema are walked through, and the type of each node.

    Args:
        root: the schema: a record, or a union of records.
        names: the wanted fields, and the lists of wanted arrays; the place of each is its slot. A path such as
            "customer.country" leads into records, since no name has a point. A name that no field has, and that one
            field had once, is that field, also on the way of a path.

    Returns:
        The program, and of each node its type; `NO_RECORD` where a path leads into something else.

    Raises:
        AvroSchemaError: the schema is no record.
    """
    builder = _Builder()
    node = builder.root(root, {name: slot for slot, name in enumerate(names)})
    assert node == len(builder.types) - 1
    return builder.program(), builder.types


def item_program_of(item: AvroType, inner: str) -> tuple[Program, list[AvroType]]:
    """Return how the items of an array are walked through, and the type of each node; their values have slot 0.

    Args:
        item: the type of the items.
        inner: the path from an item to its value; empty where it is the value.
    """
    builder = _Builder()
    builder.item(item, inner)
    return builder.program(), builder.types


class _Builder:
    """Nodes as they are made."""

    def __init__(self) -> None:
        self.types: list[AvroType] = []
        self.kind: list[int] = []
        self.size: list[int] = []
        self.first: list[int] = []
        self.slot: list[int] = []
        self.parts: list[int] = []
        self._passed_over: dict[int, int] = {}

    def root(self, kind: AvroType, slots: dict[str, int]) -> int:
        """Make the node of a record with its wanted fields, or of a union of such records."""
        if kind.kind == "union":
            return self._node(kind, NO_SLOT, [self.root(branch, slots) for branch in kind.branches])
        if kind.kind != "record":
            message = f"is no record but of type {kind.kind}"
            raise AvroSchemaError(message)
        return self._record(kind, slots)

    def item(self, kind: AvroType, inner: str) -> None:
        """Make the nodes of an item of an array, its own as the last one."""
        if inner and kind.kind in ("record", "union"):
            self._inside(kind, {inner: 0})
            # An item that is no record has no value, as an item without the field.
            self.slot = [NO_SLOT if of is NO_RECORD else slot for of, slot in zip(self.types, self.slot, strict=True)]
        else:
            self._wanted(kind, NO_SLOT if inner else 0)

    def program(self) -> Program:
        """Return all nodes as arrays."""
        columns = [self.kind, self.size, self.first, self.slot, self.parts]
        return Program(*(read_only(np.array(column, np.int64)) for column in columns))

    def _record(self, kind: AvroType, slots: dict[str, int]) -> int:
        """Make the node of a record; `slots` are by name, or by the path to a field of a record inside."""
        slot_of = _slots(kind.fields, slots)
        there = {field.name for field in kind.fields}
        parts = []
        for field in kind.fields:
            if field.name in slot_of:
                parts.append(self._wanted(field.kind, slot_of[field.name]))
            else:
                former = [_inside(slots, alias) for alias in field.aliases if alias not in there]
                parts.append(self._inside(field.kind, next(filter(None, [_inside(slots, field.name), *former]), {})))
        return self._node(kind, NO_SLOT, parts)

    def _inside(self, kind: AvroType, slots: dict[str, int]) -> int:
        """Return the node of a value of which fields are wanted, where it has fields."""
        if not slots or kind.kind == "null":
            return self._skipped(kind)
        if kind.kind == "union":
            return self._node(kind, NO_SLOT, [self._inside(branch, slots) for branch in kind.branches])
        if kind.kind == "record":
            return self._record(kind, slots)
        node = self._wanted(kind, next(iter(slots.values())))
        self.types[node] = NO_RECORD
        return node

    def _wanted(self, kind: AvroType, slot: int) -> int:
        """Make the nodes of a wanted value; a union has the slot in all of its branches."""
        if kind.kind == "union":
            return self._node(kind, NO_SLOT, [self._wanted(branch, slot) for branch in kind.branches])
        return self._node(kind, slot, [self._skipped(part) for part in _parts(kind)])

    def _skipped(self, kind: AvroType) -> int:
        """Return the node of a type that is passed over; it may contain itself."""
        if id(kind) not in self._passed_over:
            node = self._passed_over[id(kind)] = self._add(kind, NO_SLOT)
            self._fill(node, [self._skipped(part) for part in _parts(kind)])
        return self._passed_over[id(kind)]

    def _node(self, kind: AvroType, slot: int, parts: Sequence[int]) -> int:
        node = self._add(kind, slot)
        self._fill(node, parts)
        return node

    def _add(self, kind: AvroType, slot: int) -> int:
        self.types.append(kind)
        self.kind.append(_CODES[kind.kind])
        self.size.append(len(kind.symbols) if kind.kind == "enum" else kind.size)
        self.first.append(0)
        self.slot.append(slot)
        return len(self.types) - 1

    def _fill(self, node: int, parts: Sequence[int]) -> None:
        if parts:
            self.size[node], self.first[node] = len(parts), len(self.parts)
            self.parts += parts


def _parts(kind: AvroType) -> list[AvroType]:
    return [field.kind for field in kind.fields] if kind.kind == "record" else list(kind.branches)


def _inside(slots: Mapping[str, int], name: str) -> dict[str, int]:
    """Return the slots of paths into a field, by what follows its name."""
    before = f"{name}."
    return {path.removeprefix(before): slot for path, slot in slots.items() if path.startswith(before)}


def _slots(fields: Sequence[RecordField], slots: dict[str, int]) -> dict[str, int]:
    """Return the slots of the fields that are wanted, by the names that they have now."""
    there = {field.name for field in fields}
    slot_of = {name: slot for name, slot in slots.items() if name in there}
    for field in fields:
        former = [slots[alias] for alias in field.aliases if alias in slots and alias not in there]
        if former and field.name not in slot_of:
            slot_of[field.name] = former[0]
    return slot_of
