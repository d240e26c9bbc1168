"""Decodes messages of one schema into the fields that an event schema declares."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from buckets.events.avro.avro_type import AvroType, read_schema
from buckets.events.avro.columns import NO_VALUES, field_values
from buckets.events.avro.program import Program, program_of
from buckets.events.avro.scan import DEEPEST, FAULTS, NO_LEAF, scan
from buckets.events.decoded import Decoded
from buckets.events.schema import EventSchema
from buckets.events.varint import SOUND
from buckets.events.written_values import WrittenValues, without_faulty
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Decoder:
    """What reads messages of one schema."""

    program: Program
    types: Sequence[AvroType]

    def decode(self, data: Bytes, begin: Int64s, end: Int64s, schema: EventSchema, prefix: int = 0) -> Decoded:
        """Read messages.

        Args:
            data: uint8, the bytes of all.
            begin: int64 `(rows,)`, where each begins.
            end: int64 `(rows,)`, where each ends.
            schema: the event schema, of whose fields the program knows.
            prefix: how many bytes lie before each, for positions that people read.
        """
        names, rows = schema.field_names, len(begin)
        leaves = np.full((len(names), rows), NO_LEAF, np.int64)
        numbers, lengths = np.zeros((2, len(names), rows), np.int64)
        codes = np.empty((rows, 2), np.int64)
        stack = np.empty((3, DEEPEST), np.int64)
        data = read_only(data)
        scan(self.program, data, read_only(begin), read_only(end), leaves, numbers, lengths, codes, stack)
        broken = np.flatnonzero(codes[:, 0] != SOUND)
        leaves[:, broken] = NO_LEAF
        faults = {row: _broken(codes[row, 0], codes[row, 1] + prefix) for row in broken.tolist()}
        columns = []
        for slot, name in enumerate(names):
            values = WrittenValues(data, numbers[slot], lengths[slot])
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
def decoder_of(text: str, references: tuple[str, ...], names: tuple[str, ...]) -> Decoder:
    """Return what reads messages of a schema.

    Args:
        text: the JSON of the schema.
        references: schemas whose types it names, as `read_schema` takes them.
        names: the fields of the event schema.

    Raises:
        AvroSchemaError: it is no schema of a record.
    """
    program, types = program_of(read_schema(text, references), names)
    return Decoder(program, types)
