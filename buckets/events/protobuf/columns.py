"""Wanted values as columns of Arrow, by the types of their fields.

Whole numbers and texts keep their types. Floating point becomes its shortest decimal text, an enum the name of its
value, a Timestamp of Google's own types a moment where it is the time of an event and text in RFC 3339 elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from buckets.events.moment_text import Faults
from buckets.events.protobuf.program import NO_SLOT, Slots
from buckets.events.protobuf.wanted import CONFLUENT_DECIMAL, MONEY, TIMESTAMP, WantedField
from buckets.events.schema import EventSchema
from buckets.events.written_values import YEAR_1_S, YEAR_10000_S, WrittenValues, decimals, fitted
from buckets.numbers.fixed_point import format_scaled

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_NANOS_OF_MS = 1_000_000
_NANOS_OF_UNIT, _DIGITS_OF_NANOS, _MOST_NANOS = 1_000_000_000, 9, 999_999_999


@dataclass(frozen=True)
class FoundValues:
    """What was found in messages, by slot and row.

    Attributes:
        data: uint8, the bytes of all messages.
        there: bool `(slots, rows)`, whether there is a value.
        numbers: int64 `(slots, rows)`, a number, the bits of floating point, or where bytes begin.
        lengths: int64 `(slots, rows)`, how many bytes there are.
        sound: bool `(rows,)`, which messages are not broken.
    """

    data: npt.NDArray[np.uint8]
    there: Bools
    numbers: Int64s
    lengths: Int64s
    sound: Bools


@dataclass(frozen=True)
class ValueRows:
    """The rows of a field that have a value: its own, and those that its parts have."""

    values: WrittenValues
    parts: tuple[WrittenValues, ...] = ()


def field_values(
    name: str, field: WantedField, slots: Slots | None, found: FoundValues, schema: EventSchema
) -> tuple[pa.Array, Faults]:
    """Return the column of a declared field, null where a message does not have it, and what is wrong with its values.

    Args:
        name: of the declared field.
        field: what it is in the messages.
        slots: where its values are.
        found: what was found.
        schema: what the field is to become.
    """
    count = len(found.sound)
    if field.fault:
        return pa.nulls(count), {int(row): field.fault for row in np.flatnonzero(found.sound)}
    if slots is None:
        return pa.nulls(count), {}
    in_parent = found.sound if slots.parent == NO_SLOT else found.there[slots.parent] & found.sound
    has_value = found.there[slots.value] & found.sound
    if not field.last.has_presence:
        # What is not written has the default of its type: zeros, or no bytes, as all slots have from the beginning.
        has_value = in_parent
    has_default = in_parent & ~has_value & field.last.has_default_value
    return _chosen(name, field, slots, found, has_value, has_default, schema)


def _chosen(
    name: str,
    field: WantedField,
    slots: Slots,
    found: FoundValues,
    has_value: Bools,
    has_default: Bools,
    schema: EventSchema,
) -> tuple[pa.Array, Faults]:
    """Return the column of the rows that have a value or the default that their schema names, null elsewhere."""
    is_all = bool(has_value.all())
    rows = np.flatnonzero(has_value)

    def of(slot: int) -> WrittenValues:
        values = WrittenValues(found.data, found.numbers[slot], found.lengths[slot])
        return values if is_all else values.of(rows)

    chosen = ValueRows(of(slots.value), tuple(map(of, slots.parts)))
    column, faults = column_of(field.last, chosen, name == schema.event_time.field)
    if has_default.any():
        # One default, behind the values, stands for all.
        column = pa.concat_arrays([column, _default(field.last, column.type)])
    column, faults = fitted(name, column, faults, schema)
    if is_all:
        return column, faults
    at = np.where(has_default, len(rows), np.cumsum(has_value) - 1)
    of_rows = {int(rows[row]): reason for row, reason in faults.items() if row < len(rows)}
    if len(rows) in faults:
        of_rows |= dict.fromkeys(np.flatnonzero(has_default).tolist(), faults[len(rows)])
    return column.take(pa.array(at, mask=~(has_value | has_default))), of_rows


def _default(field: FieldDescriptor, kind: pa.DataType) -> pa.Array:
    """Return the default that a schema names for a field, as its column has values."""
    value = field.default_value
    if field.enum_type is not None:
        value = field.enum_type.values_by_number[value].name
    if isinstance(value, float):
        return pa.array(np.array([value], kind.to_pandas_dtype()))
    return pa.array([value], kind)


def column_of(field: FieldDescriptor, rows: ValueRows, is_event_time: bool) -> tuple[pa.Array, Faults]:
    """Return values of a field as a column of Arrow."""
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return _moments(rows, is_event_time)
        if field.message_type.full_name == CONFLUENT_DECIMAL:
            return _decimals(rows)
        if field.message_type.full_name == MONEY:
            return _money(rows)
        count = len(rows.values.numbers)
        return pa.nulls(count), dict.fromkeys(range(count), "is an object, and must be one value")
    if field.enum_type is not None:
        return _enum(field, rows.values.numbers)
    return _COLUMNS.get(field.type, _whole)(rows.values), {}


def _whole(values: WrittenValues) -> pa.Array:
    return pa.array(values.numbers)


def _unsigned(values: WrittenValues) -> pa.Array:
    return pa.array(np.ascontiguousarray(values.numbers).view(np.uint64))


def _boolean(values: WrittenValues) -> pa.Array:
    return pa.array(values.numbers.astype(np.bool_))


def _float(values: WrittenValues) -> pa.Array:
    return pa.array(values.numbers.astype(np.uint32).view(np.float32))


def _double(values: WrittenValues) -> pa.Array:
    return pa.array(np.ascontiguousarray(values.numbers).view(np.float64))


def _text(values: WrittenValues) -> pa.Array:
    return values.bytes.view(pa.large_string())


def _bytes(values: WrittenValues) -> pa.Array:
    return values.bytes


_COLUMNS: dict[int, Callable[[WrittenValues], pa.Array]] = {
    FieldDescriptor.TYPE_UINT64: _unsigned,
    FieldDescriptor.TYPE_FIXED64: _unsigned,
    FieldDescriptor.TYPE_BOOL: _boolean,
    FieldDescriptor.TYPE_FLOAT: _float,
    FieldDescriptor.TYPE_DOUBLE: _double,
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BYTES: _bytes,
}
"""By type; all others are whole numbers of 64 bits."""


def _enum(field: FieldDescriptor, numbers: Int64s) -> tuple[pa.Array, Faults]:
    """Return the names of values; of one that the schema does not know the number, if the enum is open to such."""
    known, places = np.unique(numbers, return_inverse=True)
    values = field.enum_type.values_by_number
    names = [values[number].name if number in values else str(number) for number in known.tolist()]
    column = pa.array(names, pa.string()).take(pa.array(places.astype(np.int64)))
    if not field.enum_type.is_closed:
        return column, {}
    strange = np.array([number not in values for number in known.tolist()], np.bool_)
    faulty = np.flatnonzero(strange[places])
    return column, {int(row): f"{numbers[row]} is no value of {field.enum_type.name}" for row in faulty}


def _moments(rows: ValueRows, is_event_time: bool) -> tuple[pa.Array, Faults]:
    """Return moments: to the millisecond as the time of an event, as text with all of their digits elsewhere."""
    seconds, nanos = (part.numbers for part in rows.parts)
    wrong = (seconds < YEAR_1_S) | (seconds >= YEAR_10000_S) | (nanos < 0) | (nanos > _MOST_NANOS)
    faults: Faults = {
        int(row): f"{seconds[row]} s and {nanos[row]} ns is no time in the years 1 to 9999"
        for row in np.flatnonzero(wrong)
    }
    if faults:
        seconds, nanos = np.where(wrong, 0, seconds), np.where(wrong, 0, nanos)
    if is_event_time:
        return pa.array(seconds * 1000 + nanos // _NANOS_OF_MS).cast(pa.timestamp("ms", "UTC")), faults
    begins = np.datetime_as_string(seconds.astype("datetime64[s]")).tolist()
    texts = [f"{begin}{_fraction(nano)}Z" for begin, nano in zip(begins, nanos.tolist(), strict=True)]
    return pa.array(texts, pa.string()), faults


def _fraction(nanos: int) -> str:
    """Return a part of a second with 0, 3, 6 or 9 digits, as the JSON of Protobuf has it."""
    if nanos == 0:
        return ""
    digits = f"{nanos:09}"
    return f".{digits[:3] if digits.endswith('000000') else digits[:6] if digits.endswith('000') else digits}"


def _decimals(rows: ValueRows) -> tuple[pa.Array, Faults]:
    """Return decimals to the digit; each has a scale of its own."""
    written, scales = rows.parts
    return decimals(written.bytes.to_pylist(), scales.numbers.tolist())


def _money(rows: ValueRows) -> tuple[pa.Array, Faults]:
    """Return amounts with nine digits after the point; their currency is a field of its own."""
    units, nanos = (part.numbers for part in rows.parts)
    wrong = (np.abs(nanos) > _MOST_NANOS) | ((units > 0) & (nanos < 0)) | ((units < 0) & (nanos > 0))
    faults: Faults = {
        int(row): f"{units[row]} units and {nanos[row]} nanos is no amount" for row in np.flatnonzero(wrong)
    }
    amounts = zip(units.tolist(), nanos.tolist(), strict=True)
    texts = [format_scaled(unit * _NANOS_OF_UNIT + nano, _DIGITS_OF_NANOS) for unit, nano in amounts]
    return pa.array(texts, pa.string()), faults
