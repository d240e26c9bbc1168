"""Messages in Protobuf as events: each by the schema that it was written with.

Where a registry keeps the schemas, the prefix of a message has the number of its schema, and behind it lie indexes that
say which message of the schema it is:

    00 | 00 00 00 07 | 04 02 00        two indexes: of the second message of the file (1) the first one in it (0)
    00 | 00 00 00 07 | 00              the first message of the file, for short

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format

The vendor's runtime is trusted with all but one thing: a field that is written in another type than its schema says is
an unknown one to it, which leaves the default. Of a field that is wanted this would be a wrong value without a word.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from buckets.events.arrivals import RAW
from buckets.events.decoded import Decoded, SchemaError, by_schema, decoded_fields, nothing_of, with_fields
from buckets.events.protobuf.columns import field_values
from buckets.events.protobuf.pinned import PinnedNumbers
from buckets.events.protobuf.proto_schema import ProtobufText, message_at, message_named, read_schema
from buckets.events.protobuf.wanted import WantedField, Way, wanted_fields
from buckets.events.schema import EventSchema

Int64s = npt.NDArray[np.int64]
SchemaOf = Callable[[int], ProtobufText]  # Returns the schema of a number, or raises SchemaError
_NO_INDEXES = "has no indexes of a message behind its prefix"
_VARINT = 0


def read_registered(
    rows: pa.RecordBatch, schema: EventSchema, schema_of: SchemaOf, pinned: PinnedNumbers = ()
) -> pa.RecordBatch:
    """Read messages with the prefix of a registry into the declared fields.

    Args:
        rows: with `raw` (binary).
        schema: the event schema.
        schema_of: returns the schema of a number.
        pinned: the numbers that declared fields had before.

    Returns:
        The rows as `with_fields` leaves them.
    """

    def decode(contents: Sequence[bytes], number: int) -> Iterator[tuple[Int64s, Decoded]]:
        written, rows_of = schema_of(number), dict[tuple[int, ...] | None, list[int]]()
        begins = [_indexes(content) for content in contents]
        for row, (indexes, _) in enumerate(begins):
            rows_of.setdefault(indexes, []).append(row)
        for indexes, chosen in rows_of.items():
            yield np.array(chosen), _of_message(indexes, [contents[r][begins[r][1] :] for r in chosen], number, written)

    def _of_message(
        indexes: tuple[int, ...] | None, contents: Sequence[bytes], number: int, written: ProtobufText
    ) -> Decoded:
        if indexes is None:
            return nothing_of(len(contents), schema, _NO_INDEXES)
        try:
            decoder = _decoder_at(written, indexes, tuple(schema.field_names), pinned)
        except SchemaError as error:
            return nothing_of(len(contents), schema, f"schema {number} {error}")
        return decoder.decode(contents, schema)

    return by_schema(rows, schema, decode)


def _indexes(content: bytes) -> tuple[tuple[int, ...] | None, int]:
    """Return the indexes that a message begins with, and where they end; None where it does not."""
    if content.startswith(b"\0"):
        return (), 1
    numbers, at = list[int](), 0
    while not numbers or len(numbers) <= numbers[0]:
        bits = shift = 0
        while True:
            if at == len(content) or at == _MOST_INDEX_BYTES:
                return None, 0
            byte = content[at]
            at, bits, shift = at + 1, bits | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        numbers.append(bits >> 1 ^ -(bits & 1))
        if numbers[0] < 0:
            return None, 0
    return tuple(numbers[1:]), at


def read_plain(
    rows: pa.RecordBatch, schema: EventSchema, written: ProtobufText, message: str | None = None
) -> pa.RecordBatch:
    """Read messages without a prefix, all of one type, as `read_registered` does.

    Args:
        rows: with `raw` (binary).
        schema: the event schema.
        written: the schema of the messages.
        message: the name of their type; None where the schema has only one.

    Raises:
        SchemaError: it is no schema, or has no such message.
    """
    decoder = _decoder_named(written, message, tuple(schema.field_names))
    return with_fields(rows, schema, [(np.arange(rows.num_rows), decoder.decode(rows.column(RAW).to_pylist(), schema))])


@dataclass
class _Wanted:
    """By number the wanted fields of a message, each with the name that it is declared by, and what is wanted in it."""

    fields: dict[int, tuple[FieldDescriptor, str]] = field(default_factory=dict)
    inside: list[tuple[FieldDescriptor, "_Wanted"]] = field(default_factory=list)


class _Decoder:
    """What reads messages of one type."""

    def __init__(self, message: Descriptor, fields: Mapping[str, WantedField]) -> None:
        self._kind, self._read = message, message_factory.GetMessageClass(message).FromString
        self._fields = fields
        ways = {name: (*wanted.way, *(wanted.inner or ())) for name, wanted in fields.items()}
        self._wanted = _wanted({name: [s for s in way if not isinstance(s, int)] for name, way in ways.items() if way})

    def decode(self, contents: Sequence[bytes], schema: EventSchema) -> Decoded:
        """Read messages, given as what lies behind prefix and indexes."""
        messages: list[Message | None] = []
        broken, faults = dict[int, str](), dict[int, str]()
        for row, content in enumerate(contents):
            message = None
            try:
                message = self._read(content)
            except DecodeError as error:
                broken[row] = f"broken Protobuf: {self._reason(error)}"
            else:
                misfit = _misfit(message, self._wanted)
                if misfit is not None:
                    name, reason = misfit
                    if reason is None:
                        message, broken[row] = None, f"broken Protobuf: {name} {_OTHER_TYPE}"
                    else:
                        faults[row] = f"{name}: {reason}"
            messages.append(message)
        found: dict[Way, list[Any]] = {(): messages}
        return decoded_fields(
            schema, broken, lambda name: field_values(name, self._fields[name], found, schema), faults
        )

    def _reason(self, error: DecodeError) -> str:
        return "a text is not valid UTF-8" if "UTF-8" in str(error) else f"is no message of type {self._kind.full_name}"


def _wanted(ways: Mapping[str, Sequence[FieldDescriptor]]) -> _Wanted:
    """Return what is wanted of a message, by declared field the fields on the way to its value."""
    made = _Wanted({way[0].number: (way[0], name) for name, way in ways.items()})
    for step in {way[0].number: way[0] for way in ways.values() if len(way) > 1}.values():
        inside = {name: way[1:] for name, way in ways.items() if len(way) > 1 and way[0].number == step.number}
        made.inside.append((step, _wanted(inside)))
    return made


def _misfit(message: Any, wanted: _Wanted) -> tuple[str, str | None] | None:
    """Return a wanted field that is written in another type, or what is wrong with its value; None where all fit."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        for each in unknown:
            if each.field_number in wanted.fields:
                kind, name = wanted.fields[each.field_number]
                is_unnamed = kind.enum_type is not None and each.wire_type == _VARINT
                return name, f"{_signed(each.data)} is no value of {kind.enum_type.name}" if is_unnamed else None
    for kind, inside in wanted.inside:
        if kind.is_repeated:
            found = next(filter(None, (_misfit(each, inside) for each in getattr(message, kind.name))), None)
        else:
            found = _misfit(getattr(message, kind.name), inside) if message.HasField(kind.name) else None
        if found is not None:
            return found
    return None


def _signed(bits: int) -> int:
    """Return the number that a varint means in an enum."""
    low = bits & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low


_OTHER_TYPE = "is written in another type than its schema says"
_MOST_INDEX_BYTES = 8


@lru_cache(maxsize=256)
def _decoder_at(
    written: ProtobufText, indexes: tuple[int, ...], names: tuple[str, ...], pinned: PinnedNumbers
) -> _Decoder:
    """Return what reads messages that indexes lead to; raises as `message_at` and `read_schema`."""
    message = message_at(read_schema(written), indexes)
    return _Decoder(message, wanted_fields(message, names, dict(dict(pinned).get(message.full_name, ()))))


@lru_cache(maxsize=256)
def _decoder_named(written: ProtobufText, message: str | None, names: tuple[str, ...]) -> _Decoder:
    """Return what reads messages of a type of a schema; raises as `message_named` and `read_schema`."""
    found = message_named(read_schema(written), message)
    return _Decoder(found, wanted_fields(found, names, {}))
