"""Reads messages in Protobuf as events, each by the schema that it was written with.

With a schema registry, the prefix of a message holds the number of its schema, and the indexes after it select the
message type in that schema:

    00 | 00 00 00 07 | 04 02 00        two indexes: of the second message of the file (1) the first one in it (0)
    00 | 00 00 00 07 | 00              the first message of the file, for short

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format

The vendor's runtime is trusted except in one case: it treats a field with another wire type than its schema's as
unknown, and returns the default. For a wanted field this would be a silent wrong value.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from buckets.arrays import Int64s
from buckets.events.arrivals import RAW
from buckets.events.clock_times import Faults
from buckets.events.decoded import (
    YEAR_1_S,
    YEAR_10000_S,
    Decoded,
    PinnedNumbers,
    SchemaError,
    SchemaOf,
    WriterSchema,
    by_schema,
    decimals,
    decoded_fields,
    fitted,
    list_column,
    nothing_of,
    with_fields,
)
from buckets.events.protobuf import wanted
from buckets.events.protobuf.proto_schema import message_at, message_named, read_schema
from buckets.events.protobuf.wanted import WantedField, Way, wanted_fields
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import format_scaled

Values = list[Any]
_NANOS_OF_MS = 1_000_000
_NANOS_OF_UNIT, _DIGITS_OF_NANOS, _MOST_NANOS = 1_000_000_000, 9, 999_999_999
_INT64, _LARGE_STRING = pa.int64(), pa.large_string()
_TYPES = {
    FieldDescriptor.TYPE_UINT64: pa.uint64(),
    FieldDescriptor.TYPE_FIXED64: pa.uint64(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_BYTES: pa.large_binary(),
}
"""By type; all others except texts, enums and messages are whole numbers of 64 bits."""


def field_values(
    name: str, field: WantedField, found: dict[Way, Values], schema: EventSchema
) -> tuple[pa.Array, Faults]:
    """Return the column of a declared field, null where a message lacks it, and the faults of its values.

    `found` caches values by path: at first the messages under the empty path, None for a broken one. Values found on
    the way are added.
    """
    messages = found[()]
    if field.fault:
        return pa.nulls(len(messages)), {row: field.fault for row, each in enumerate(messages) if each is not None}
    if not field.way:
        return pa.nulls(len(messages)), {}
    values, inner, is_event_time = _followed(field.way, found), field.inner, schema.is_time(name)

    def read(way: Way, column: Values) -> tuple[pa.Array, Faults]:
        last = next(step for step in reversed(way) if not isinstance(step, int))
        return fitted(name, *_column(last, column, is_event_time), schema)

    if inner is None:
        return read(field.way, values)
    return list_column(
        name, values, lambda elements: read(inner or field.way, _followed(inner, {(): elements})), schema
    )


def _followed(way: Way, found: dict[Way, Values]) -> Values:
    """Return the values at the end of a path, None if missing; an unset list is empty."""
    if way not in found:
        found[way] = _stepped(way[-1], _followed(way[:-1], found))
    return found[way]


def _stepped(step: FieldDescriptor | int, values: Values) -> Values:
    if isinstance(step, int):
        return [None if each is None or step >= len(each) else each[step] for each in values]
    name = step.name
    # An unset field has its default, unless it has presence and its schema gives no default: then it is missing.
    if step.has_presence and not step.is_repeated and not step.has_default_value:
        return [getattr(each, name) if each is not None and each.HasField(name) else None for each in values]
    return [None if each is None else getattr(each, name) for each in values]


def _column(field: FieldDescriptor, values: Values, is_event_time: bool) -> tuple[pa.Array, Faults]:
    """Return values of a field as an Arrow column."""
    if field.message_type is not None:
        match field.message_type.full_name:
            case wanted.TIMESTAMP:
                return _moments(values, is_event_time)
            case wanted.CONFLUENT_DECIMAL:
                contents = [None if each is None else each.value for each in values]
                return decimals(contents, [0 if each is None else each.scale for each in values])
            case wanted.MONEY:
                return _money(values)
        rows = [row for row, each in enumerate(values) if each is not None]
        return pa.nulls(len(values)), dict.fromkeys(rows, "is an object, and must be one value")
    if field.enum_type is not None:
        return _enum(field.enum_type, values)
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text(values)
    return pa.array(values, _TYPES.get(field.type, _INT64)), {}


def _text(values: Values) -> tuple[pa.Array, Faults]:
    """Return texts; for invalid UTF-8 in proto2 the runtime returns bytes."""
    faults = {row: "is not valid UTF-8" for row, value in enumerate(values) if isinstance(value, bytes)}
    return pa.array([None if row in faults else value for row, value in enumerate(values)], _LARGE_STRING), faults


def _enum(kind: EnumDescriptor, values: Values) -> tuple[pa.Array, Faults]:
    """Return the names of enum values; a value that the schema does not know stays a number."""
    names: dict[int | None, str | None] = {number: value.name for number, value in kind.values_by_number.items()}
    names[None] = None
    return pa.array([names[value] if value in names else str(value) for value in values], pa.string()), {}


def _parts(values: Values, *names: str) -> tuple[npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]:
    """Return which values are missing, and their fields, 0 for missing values."""
    missing = np.array([each is None for each in values], np.bool_)
    return missing, [np.array([0 if e is None else getattr(e, name) for e in values], np.int64) for name in names]


def _moments(values: Values, is_event_time: bool) -> tuple[pa.Array, Faults]:
    """Return timestamps: in ms for the event time, elsewhere as text with all their digits."""
    missing, (seconds, nanos) = _parts(values, "seconds", "nanos")
    wrong = (seconds < YEAR_1_S) | (seconds >= YEAR_10000_S) | (nanos < 0) | (nanos > _MOST_NANOS)
    faults: Faults = {
        int(row): f"{seconds[row]} s and {nanos[row]} ns is not a time in the years 1 to 9999"
        for row in np.flatnonzero(wrong)
    }
    missing |= wrong
    seconds, nanos = np.where(missing, 0, seconds), np.where(missing, 0, nanos)
    if is_event_time:
        times_ms = pa.array(seconds * 1000 + nanos // _NANOS_OF_MS, mask=missing)
        return times_ms.cast(pa.timestamp("ms", "UTC")), faults
    begins = np.datetime_as_string(seconds.astype("datetime64[s]")).tolist()
    texts = []
    for begin, nano in zip(begins, nanos.tolist(), strict=True):
        digits = f".{nano:09}"  # Cut to 0, 3, 6 or 9 digits, as the JSON of Protobuf has them
        while digits.endswith("000"):
            digits = digits[:-3]
        texts.append(f"{begin}{digits.removesuffix('.')}Z")
    return pa.array(texts, pa.string(), mask=missing), faults


def _money(values: Values) -> tuple[pa.Array, Faults]:
    """Return amounts with nine digits after the point; the currency is a separate field."""
    missing, (units, nanos) = _parts(values, "units", "nanos")
    wrong = (np.abs(nanos) > _MOST_NANOS) | ((units > 0) & (nanos < 0)) | ((units < 0) & (nanos > 0))
    faults: Faults = {
        int(row): f"{units[row]} units and {nanos[row]} nanos is not an amount" for row in np.flatnonzero(wrong)
    }
    amounts = zip(units.tolist(), nanos.tolist(), strict=True)
    texts = [format_scaled(unit * _NANOS_OF_UNIT + nano, _DIGITS_OF_NANOS) for unit, nano in amounts]
    return pa.array(texts, pa.string(), mask=missing), faults


_VARINT = 0


def read_registered(
    rows: pa.RecordBatch, schema: EventSchema, schema_of: SchemaOf, pinned: PinnedNumbers = ()
) -> pa.RecordBatch:
    """Read messages with the prefix of a registry into the declared fields.

    `pinned` holds the earlier numbers of declared fields.
    """

    def decode(contents: Sequence[bytes], number: int) -> Iterator[tuple[Int64s, Decoded]]:
        written, rows_of = schema_of(number), dict[tuple[int, ...] | None, list[int]]()
        begins = [_indexes(content) for content in contents]
        for row, (indexes, _) in enumerate(begins):
            rows_of.setdefault(indexes, []).append(row)
        for indexes, chosen in rows_of.items():
            fault = "" if indexes is not None else "has no indexes of a message behind its prefix"
            try:
                decoder = None if fault else _decoder(written, indexes, tuple(schema.field_names), pinned)
            except SchemaError as error:
                decoder, fault = None, f"schema {number} {error}"
            if decoder is None:
                yield np.array(chosen), nothing_of(len(chosen), schema, fault)
            else:
                yield np.array(chosen), decoder([contents[row][begins[row][1] :] for row in chosen], schema)

    return by_schema(rows, schema, decode)


def _indexes(content: bytes) -> tuple[tuple[int, ...] | None, int]:
    """Return the message indexes at the start of a message, and where they end; None if invalid."""
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
    rows: pa.RecordBatch, schema: EventSchema, written: WriterSchema, message: str | None = None
) -> pa.RecordBatch:
    """Read messages without a prefix, all of one type; `message` names it if the schema has several."""
    decoder = _decoder(written, message, tuple(schema.field_names), ())
    return with_fields(rows, schema, [(np.arange(rows.num_rows), decoder(rows.column(RAW).to_pylist(), schema))])


@dataclass
class _Wanted:
    """The wanted fields of a message by number, each with its declared name and the fields wanted inside it."""

    fields: dict[int, tuple[FieldDescriptor, str]] = field(default_factory=dict)
    inside: list[tuple[FieldDescriptor, "_Wanted"]] = field(default_factory=list)


def _wanted(ways: Mapping[str, Sequence[FieldDescriptor]]) -> _Wanted:
    made = _Wanted({way[0].number: (way[0], name) for name, way in ways.items()})
    for step in {way[0].number: way[0] for way in ways.values() if len(way) > 1}.values():
        inside = {name: way[1:] for name, way in ways.items() if len(way) > 1 and way[0].number == step.number}
        made.inside.append((step, _wanted(inside)))
    return made


def _misfit(message: Any, wanted: _Wanted) -> tuple[str, str | None] | None:
    """Return a wanted field with another wire type, or the fault of its value; None if all fit."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        for each in unknown:
            if each.field_number in wanted.fields:
                kind, name = wanted.fields[each.field_number]
                if kind.enum_type is None or each.wire_type != _VARINT:
                    return name, None
                number = int.from_bytes((each.data & 0xFFFFFFFF).to_bytes(4), signed=True)
                return name, f"{number} is not a value of {kind.enum_type.name}"
    for kind, inside in wanted.inside:
        if kind.is_repeated:
            found = next(filter(None, (_misfit(each, inside) for each in getattr(message, kind.name))), None)
        else:
            found = _misfit(getattr(message, kind.name), inside) if message.HasField(kind.name) else None
        if found is not None:
            return found
    return None


_OTHER_TYPE = "is written in another type than its schema says"
_MOST_INDEX_BYTES = 8


@lru_cache(maxsize=512)
def _decoder(
    written: WriterSchema, chosen: tuple[int, ...] | str | None, names: tuple[str, ...], pinned: PinnedNumbers
) -> Callable[[Sequence[bytes], EventSchema], Decoded]:
    """Return a decoder for messages, without prefix and indexes; raises as `read_schema`.

    Indexes or a name select their type in a schema.
    """
    file = read_schema(written)
    kind = message_at(file, chosen) if isinstance(chosen, tuple) else message_named(file, chosen)
    fields = wanted_fields(kind, names, dict(dict(pinned).get(kind.full_name, ())))
    read = message_factory.GetMessageClass(kind).FromString
    ways = {name: (*wanted.way, *(wanted.inner or ())) for name, wanted in fields.items()}
    on_ways = _wanted({name: [s for s in way if not isinstance(s, int)] for name, way in ways.items() if way})

    def decode(contents: Sequence[bytes], schema: EventSchema) -> Decoded:
        messages: list[Message | None] = []
        broken, faults = dict[int, str](), dict[int, str]()
        for row, content in enumerate(contents):
            message = None
            try:
                message = read(content)
            except DecodeError as error:
                is_text = "UTF-8" in str(error)
                why = "a text is not valid UTF-8" if is_text else f"is not a message of type {kind.full_name}"
                broken[row] = f"broken Protobuf: {why}"
            else:
                name, reason = _misfit(message, on_ways) or ("", "")
                if reason is None:
                    message, broken[row] = None, f"broken Protobuf: {name} {_OTHER_TYPE}"
                elif reason:
                    faults[row] = f"{name}: {reason}"
            messages.append(message)
        found: dict[Way, list[Any]] = {(): messages}
        return decoded_fields(schema, broken, lambda name: field_values(name, fields[name], found, schema), faults)

    return decode
