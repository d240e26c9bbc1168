"""Decodes messages of one type into the fields that an event schema declares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor

from buckets.events.decoded import Decoded
from buckets.events.protobuf.arrays import ElementReader, array_values, element_readers, read_items
from buckets.events.protobuf.columns import FoundValues, field_values
from buckets.events.protobuf.program import MessageProgram, Slots, program_of
from buckets.events.protobuf.proto_schema import ProtobufText, message_at, message_named, read_schema
from buckets.events.protobuf.wanted import Numbers, WantedField, wanted_fields
from buckets.events.protobuf.wire import DEEPEST, FAULTS, NO_ITEMS, scan
from buckets.events.schema import EventSchema
from buckets.events.varint import SOUND
from buckets.events.written_values import without_faulty
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
PinnedNumbers = tuple[tuple[str, tuple[tuple[str, Numbers], ...]], ...]
"""By full name of a message the numbers that its declared fields had, as one value that can be a key."""


@dataclass(frozen=True)
class MessageDecoder:
    """What reads messages of one type.

    Attributes:
        program: how they are walked through.
        fields: what each declared field is in them.
        slots: where the values of each are put down.
        slot_count: how many slots there are.
        readers: by array, what reads its elements.
    """

    program: MessageProgram
    fields: Sequence[WantedField]
    slots: Sequence[Slots | None]
    slot_count: int
    readers: Mapping[str, ElementReader]

    def decode(self, data: Bytes, begin: Int64s, end: Int64s, prefix: Int64s, schema: EventSchema) -> Decoded:
        """Read messages.

        Args:
            data: uint8, the bytes of all.
            begin: int64 `(rows,)`, where each begins.
            end: int64 `(rows,)`, where each ends.
            prefix: int64 `(rows,)`, how many bytes lie before each, for positions that people read.
            schema: the event schema, of whose fields the program knows.
        """
        rows = len(begin)
        there = np.zeros((self.slot_count, rows), np.bool_)
        numbers, lengths = np.zeros((2, self.slot_count, rows), np.int64)
        codes = np.empty((rows, 2), np.int64)
        stack = np.empty((3, DEEPEST), np.int64)
        data = read_only(data)
        scan(self.program, data, read_only(begin), read_only(end), there, numbers, lengths, NO_ITEMS, codes, stack)
        found = FoundValues(data, there, numbers, lengths, codes[:, 0] == SOUND)
        elements = read_items(self.program, self.readers, found, begin, end, codes) if self.readers else {}
        broken = np.flatnonzero(~found.sound).tolist()
        faults = {
            row: f"broken Protobuf: {FAULTS[int(codes[row, 0])]} at byte {codes[row, 1] + prefix[row] + 1:,}"
            for row in broken
        }
        columns = []
        for name, field, slots in zip(schema.field_names, self.fields, self.slots, strict=True):
            if name in elements:
                column, of_field = array_values(name, elements[name], found, schema)
            else:
                column, of_field = field_values(name, field, slots, found, schema)
            columns.append(without_faulty(column, of_field))
            for row, reason in of_field.items():
                faults.setdefault(row, f"{name}: {reason}")
        return Decoded(columns, faults, frozenset(broken))


@lru_cache(maxsize=256)
def decoder_at(
    written: ProtobufText, indexes: tuple[int, ...], names: tuple[str, ...], pinned: PinnedNumbers
) -> MessageDecoder:
    """Return what reads messages of a schema.

    Args:
        written: the schema.
        indexes: lead to the message, as `message_at` takes them.
        names: the fields of the event schema.
        pinned: the numbers that they had before.

    Raises:
        ProtobufSchemaError: it is no schema, or has no such message.
    """
    return _decoder(message_at(read_schema(written), indexes), names, pinned)


@lru_cache(maxsize=256)
def decoder_named(written: ProtobufText, message: str | None, names: tuple[str, ...]) -> MessageDecoder:
    """Return what reads messages of a type of a schema, as `message_named` finds it; raises as `decoder_at`."""
    return _decoder(message_named(read_schema(written), message), names, ())


def _decoder(message: Descriptor, names: tuple[str, ...], pinned: PinnedNumbers) -> MessageDecoder:
    fields = wanted_fields(message, names, dict(dict(pinned).get(message.full_name, ())))
    program, slots, slot_count = program_of(message, fields)
    return MessageDecoder(program, fields, slots, slot_count, element_readers(names, fields, slots))
