"""What of a message is wanted, as flat arrays that a compiled loop walks through.

Every message is a node with its fields in the order of their numbers. The messages on the way to a wanted field have
nodes of their own, in which fields have the number of the slot where their value is put down; all others are shared,
since what lies in them is only passed over. A message on the way has a slot too, which says whether it is there:

    payment ─┬─ 1 id        text      slot 0
             ├─ 2 customer  message   slot 3 ── person ─┬─ 1 name     text
             │                                          └─ 2 country  text   slot 1
             └─ 3 lines     message             line ── …                    passed over
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from buckets.events.protobuf.wanted import PARTS, WantedField
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]
UNKNOWN: Final = 0
INT64: Final = 1
INT32: Final = 2
UINT32: Final = 3
SINT32: Final = 4
SINT64: Final = 5
BOOLEAN: Final = 6
FIXED32: Final = 7
SFIXED32: Final = 8
FIXED64: Final = 9
TEXT: Final = 10
BYTES: Final = 11
MESSAGE: Final = 12
GROUP: Final = 13
NO_SLOT: Final = -1
_CODES = {
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_UINT64: INT64,
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_FIXED64: FIXED64,
    FieldDescriptor.TYPE_FIXED32: FIXED32,
    FieldDescriptor.TYPE_BOOL: BOOLEAN,
    FieldDescriptor.TYPE_STRING: TEXT,
    FieldDescriptor.TYPE_GROUP: GROUP,
    FieldDescriptor.TYPE_MESSAGE: MESSAGE,
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_UINT32: UINT32,
    FieldDescriptor.TYPE_ENUM: INT32,
    FieldDescriptor.TYPE_SFIXED32: SFIXED32,
    FieldDescriptor.TYPE_SFIXED64: FIXED64,
    FieldDescriptor.TYPE_SINT32: SINT32,
    FieldDescriptor.TYPE_SINT64: SINT64,
}
"""How a type is written; what the bits are beside that, the columns know."""


class MessageProgram(NamedTuple):
    """The nodes of a message; the last one is its root, the first one has no fields. All arrays are read-only int64.

    Attributes:
        first: of each node the place of its first field; of one more, where the last one ends.
        number: of each field, by which it is known.
        kind: one of the codes above.
        repeated: whether it is a list; of one with a slot its length is put down.
        child: the node of a message or group; 0 of others.
        slot: where its value is put down; `NO_SLOT` for what is passed over.
        strict: whether a message is broken in which it is written in another way than its type.
        clears: `(fields, 2)`, the part of `cleared` that it takes out, of the same oneof.
        cleared: slots.
    """

    first: Int64s
    number: Int64s
    kind: Int64s
    repeated: Int64s
    child: Int64s
    slot: Int64s
    strict: Int64s
    clears: Int64s
    cleared: Int64s


class Slots(NamedTuple):
    """Where the values of a wanted field are put down.

    Attributes:
        value: its own slot; of a message that is one value, whether it is there.
        parent: of the message that it is in, whether it is there; `NO_SLOT` for the outermost.
        parts: those of what a message that is one value is made of.
    """

    value: int
    parent: int
    parts: tuple[int, ...] = ()


def program_of(message: Descriptor, wanted: Sequence[WantedField]) -> tuple[MessageProgram, list[Slots | None], int]:
    """Return how messages are walked through, the slots of each wanted field, and how many slots there are.

    Args:
        message: the type.
        wanted: the fields; those without a way have no slots.
    """
    builder = _Builder()
    tree = _Tree()
    slots = [_add_way(tree, field, builder) if field.way else None for field in wanted]
    builder.root(message, tree)
    return builder.program(), slots, builder.slots


class _Tree:
    """What of a message is wanted: slots by the number of a field, and what of messages inside."""

    def __init__(self) -> None:
        self.slot: dict[int, int] = {}
        self.inside: dict[int, _Tree] = {}

    def slots_of(self, number: int) -> list[int]:
        """Return all slots of a field, and of what is in it."""
        inside = self.inside.get(number)
        own = [self.slot[number]] if number in self.slot else []
        return own + ([] if inside is None else [slot for each in inside.numbers for slot in inside.slots_of(each)])

    @property
    def numbers(self) -> list[int]:
        return sorted(self.slot.keys() | self.inside.keys())


def _add_way(tree: _Tree, field: WantedField, builder: "_Builder") -> Slots:
    parent = NO_SLOT
    for step in field.way[:-1]:
        parent = tree.slot.setdefault(step.number, builder.next_slot(tree.slot.get(step.number)))
        tree = tree.inside.setdefault(step.number, _Tree())
    last = field.last
    own = tree.slot.setdefault(last.number, builder.next_slot(tree.slot.get(last.number)))
    parts: tuple[int, ...] = ()
    if last.message_type is not None and last.message_type.full_name in PARTS:
        inside, known = tree.inside.setdefault(last.number, _Tree()), last.message_type.fields_by_name
        numbers = [known[name].number for name in PARTS[last.message_type.full_name]]
        parts = tuple(inside.slot.setdefault(number, builder.next_slot(inside.slot.get(number))) for number in numbers)
    return Slots(own, parent, parts)


class _Builder:
    """Nodes as they are made: each has a list of fields."""

    def __init__(self) -> None:
        self.slots = 0
        self._nodes: list[list[tuple[int, ...]]] = [[]]
        self._clears: list[list[list[int]]] = [[]]
        self._passed_over: dict[str, int] = {}

    def next_slot(self, known: int | None) -> int:
        """Return a slot: the one that is known, or a new one."""
        if known is not None:
            return known
        self.slots += 1
        return self.slots - 1

    def root(self, message: Descriptor, tree: _Tree) -> None:
        """Make the nodes of a message, its own as the last one."""
        fields = self._fields(message, tree)
        self._append(*fields)

    def _append(self, fields: list[tuple[int, ...]], clears: list[list[int]]) -> int:
        self._nodes.append(fields)
        self._clears.append(clears)
        return len(self._nodes) - 1

    def _fields(self, message: Descriptor, tree: _Tree) -> tuple[list[tuple[int, ...]], list[list[int]]]:
        fields, clears = [], []
        for field in sorted(message.fields, key=lambda field: field.number):
            inside = tree.inside.get(field.number)
            child = 0
            if field.message_type is not None:
                child = self._passed(field.message_type) if inside is None else self._on_the_way(field, inside)
            slot = tree.slot.get(field.number, NO_SLOT)
            is_strict = slot != NO_SLOT or inside is not None
            row = (field.number, _CODES[field.type], field.is_repeated, child, slot, is_strict)
            fields.append(tuple(map(int, row)))
            clears.append(_others(field, tree))
        return fields, clears

    def _on_the_way(self, field: FieldDescriptor, inside: _Tree) -> int:
        return self._append(*self._fields(field.message_type, inside))

    def _passed(self, message: Descriptor) -> int:
        """Return the node of a message that is passed over; it may contain itself."""
        name = message.full_name
        if name not in self._passed_over:
            node = self._passed_over[name] = self._append([], [])
            self._nodes[node], self._clears[node] = self._fields(message, _Tree())
        return self._passed_over[name]

    def program(self) -> MessageProgram:
        """Return all nodes as arrays."""
        first = np.cumsum([0, *map(len, self._nodes)])
        rows = np.array([row for fields in self._nodes for row in fields], np.int64).reshape(-1, 6)
        cleared: list[int] = []
        clears = np.zeros((len(rows), 2), np.int64)
        for place, slots in enumerate(slots for of_node in self._clears for slots in of_node):
            clears[place] = len(cleared), len(cleared) + len(slots)
            cleared += slots
        columns = [np.ascontiguousarray(rows[:, index]) for index in range(6)]
        return MessageProgram(*map(read_only, (first, *columns, clears, np.array(cleared, np.int64))))


def _others(field: FieldDescriptor, tree: _Tree) -> list[int]:
    """Return the slots of the other fields of the oneof that a field is in."""
    oneof = field.containing_oneof
    if oneof is None:
        return []
    return [slot for other in oneof.fields if other.number != field.number for slot in tree.slots_of(other.number)]
