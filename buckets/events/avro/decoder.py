"""Decodes messages of one schema into the fields that an event schema declares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from buckets.events.avro.arrays import ItemReader, array_values, item_readers
from buckets.events.avro.avro_type import AvroType, RecordField, read_schema
from buckets.events.avro.columns import NO_VALUES, field_values
from buckets.events.avro.program import Program, program_of
from buckets.events.avro.scan import DEEPEST, FAULTS, NO_LEAF, scan
from buckets.events.decoded import Decoded
from buckets.events.field_paths import outer_name
from buckets.events.schema import EventSchema
from buckets.events.varint import SOUND
from buckets.events.written_values import WrittenValues, without_faulty
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Decoder:
    """What reads messages of one schema.

    Attributes:
        program: how they are walked through.
        types: that of each node.
        slots: that of each declared field; those in one list share it.
        readers: by field in a list, what reads its items.
    """

    program: Program
    types: Sequence[AvroType]
    slots: Sequence[int]
    readers: Mapping[str, Mapping[int, ItemReader]]

    def reached(self, names: Sequence[str]) -> list[str]:
        """Return those declared fields, all of which are given, that messages may have."""
        return [
            name
            for name, slot in zip(names, self.slots, strict=True)
            if slot in self.program.slot
            and (name not in self.readers or any(0 in reader.program.slot for reader in self.readers[name].values()))
        ]

    def decode(self, data: Bytes, begin: Int64s, end: Int64s, schema: EventSchema, prefix: int = 0) -> Decoded:
        """Read messages.

        Args:
            data: uint8, the bytes of all.
            begin: int64 `(rows,)`, where each begins.
            end: int64 `(rows,)`, where each ends.
            schema: the event schema, of whose fields the program knows.
            prefix: how many bytes lie before each, for positions that people read.
        """
        names, rows, slot_count = schema.field_names, len(begin), max(self.slots) + 1
        leaves = np.full((slot_count, rows), NO_LEAF, np.int64)
        numbers, lengths = np.zeros((2, slot_count, rows), np.int64)
        codes = np.empty((rows, 2), np.int64)
        stack = np.empty((3, DEEPEST), np.int64)
        data = read_only(data)
        scan(self.program, data, read_only(begin), read_only(end), leaves, numbers, lengths, codes, stack)
        broken = np.flatnonzero(codes[:, 0] != SOUND)
        leaves[:, broken] = NO_LEAF
        faults = {row: _broken(codes[row, 0], codes[row, 1] + prefix) for row in broken.tolist()}
        columns = []
        for slot, name in zip(self.slots, names, strict=True):
            values = WrittenValues(data, numbers[slot], lengths[slot])
            if name in self.readers:
                column, of_field = array_values(name, leaves[slot], values, self.types, self.readers[name], schema)
            else:
                column, of_field = field_values(name, leaves[slot], values, self.types, schema)
            columns.append(without_faulty(column, of_field))
            for row, reason in of_field.items():
                faults.setdefault(row, f"{name}: {reason}")
        return Decoded(columns, faults, frozenset(broken.tolist()))

    def fault_of(self, slot: int) -> str:
        """Return why a field can have no value, by its place; empty where it can, or where it is not there."""
        nodes = np.flatnonzero(self.program.slot == slot).tolist()
        faults = [NO_VALUES.get(kind, "") for kind in (self.types[node].kind for node in nodes) if kind != "null"]
        return faults[0] if faults and all(faults) else ""


def _broken(code: int, at: int) -> str:
    return f"broken Avro: {FAULTS[int(code)]} at byte {at + 1:,}"


@lru_cache(maxsize=256)
def decoder_of(text: str, references: tuple[str, ...], names: tuple[str, ...], field: str | None = None) -> Decoder:
    """Return what reads messages of a schema.

    Args:
        text: the JSON of the schema.
        references: schemas whose types it names, as `read_schema` takes them.
        names: the fields of the event schema.
        field: the one field that a message is; None where it is the fields of a record.

    Raises:
        AvroSchemaError: it is no schema, or none of a record where it must be one.
    """
    outer = list(dict.fromkeys(map(outer_name, names)))
    root = read_schema(text, references)
    if field is not None:  # A record is written as its fields are, and nothing else.
        root = AvroType("record", fields=(RecordField(field, root),))
    program, types = program_of(root, outer)
    slots = [outer.index(outer_name(name)) for name in names]
    return Decoder(program, types, slots, item_readers(names, slots, program, types))
