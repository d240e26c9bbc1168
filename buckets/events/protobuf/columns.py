"""Values of messages as columns of Arrow, by the types of their fields.

Whole numbers and texts keep their types. Floating point becomes its shortest decimal text, an enum the name of its
value, a Timestamp of Google's own types a moment where it is the time of an event and text in RFC 3339 elsewhere.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from buckets.events.clock_times import Faults
from buckets.events.protobuf import wanted
from buckets.events.protobuf.wanted import WantedField, Way
from buckets.events.schema import EventSchema
from buckets.events.written_values import YEAR_1_S, YEAR_10000_S, decimals, fitted, list_column
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
"""By type; all others but texts, enums and messages are whole numbers of 64 bits."""


def field_values(
    name: str, field: WantedField, found: dict[Way, Values], schema: EventSchema
) -> tuple[pa.Array, Faults]:
    """Return the column of a declared field, null where a message does not have it, and what is wrong with its values.

    Args:
        name: of the declared field.
        field: what it is in the messages.
        found: by way what lies at its end, at first messages at the one of no steps, None for one that is broken; what
            is found on the way is added.
        schema: what the field is to become.
    """
    messages = found[()]
    if field.fault:
        return pa.nulls(len(messages)), {row: field.fault for row, each in enumerate(messages) if each is not None}
    if not field.way:
        return pa.nulls(len(messages)), {}
    values, inner, is_event_time = _followed(field.way, found), field.inner, name == schema.event_time.field

    def read(way: Way, column: Values) -> tuple[pa.Array, Faults]:
        last = next(step for step in reversed(way) if not isinstance(step, int))
        return fitted(name, *_column(last, column, is_event_time), schema)

    if inner is None:
        return read(field.way, values)
    return list_column(
        name, values, lambda elements: read(inner or field.way, _followed(inner, {(): elements})), schema
    )


def _followed(way: Way, found: dict[Way, Values]) -> Values:
    """Return what lies at the end of a way, None for nothing; a list that is not written is empty."""
    if way not in found:
        found[way] = _stepped(way[-1], _followed(way[:-1], found))
    return found[way]


def _stepped(step: FieldDescriptor | int, values: Values) -> Values:
    if isinstance(step, int):
        return [None if each is None or step >= len(each) else each[step] for each in values]
    name = step.name
    # What is not written has the default of its schema or its type, unless it is known to be missing.
    if step.has_presence and not step.is_repeated and not step.has_default_value:
        return [getattr(each, name) if each is not None and each.HasField(name) else None for each in values]
    return [None if each is None else getattr(each, name) for each in values]


def _column(field: FieldDescriptor, values: Values, is_event_time: bool) -> tuple[pa.Array, Faults]:
    """Return values of a field as a column of Arrow."""
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
    """Return texts; the runtime has bytes for one in proto2 that is none."""
    faults = {row: "is not valid UTF-8" for row, value in enumerate(values) if isinstance(value, bytes)}
    return pa.array([None if row in faults else value for row, value in enumerate(values)], _LARGE_STRING), faults


def _enum(kind: EnumDescriptor, values: Values) -> tuple[pa.Array, Faults]:
    """Return the names of values; of one that the schema does not know the number."""
    names: dict[int | None, str | None] = {number: value.name for number, value in kind.values_by_number.items()}
    names[None] = None
    return pa.array([names[value] if value in names else str(value) for value in values], pa.string()), {}


def _parts(values: Values, *names: str) -> tuple[npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]:
    """Return which values are missing, and fields of them, 0 where they are."""
    missing = np.array([each is None for each in values], np.bool_)
    return missing, [np.array([0 if e is None else getattr(e, name) for e in values], np.int64) for name in names]


def _moments(values: Values, is_event_time: bool) -> tuple[pa.Array, Faults]:
    """Return moments: to the millisecond as the time of an event, as text with all of their digits elsewhere."""
    missing, (seconds, nanos) = _parts(values, "seconds", "nanos")
    wrong = (seconds < YEAR_1_S) | (seconds >= YEAR_10000_S) | (nanos < 0) | (nanos > _MOST_NANOS)
    faults: Faults = {
        int(row): f"{seconds[row]} s and {nanos[row]} ns is no time in the years 1 to 9999"
        for row in np.flatnonzero(wrong)
    }
    missing |= wrong
    seconds, nanos = np.where(missing, 0, seconds), np.where(missing, 0, nanos)
    if is_event_time:
        times_ms = pa.array(seconds * 1000 + nanos // _NANOS_OF_MS, mask=missing)
        return times_ms.cast(pa.timestamp("ms", "UTC")), faults
    begins = np.datetime_as_string(seconds.astype("datetime64[s]")).tolist()
    texts = [f"{begin}{_fraction(nano)}Z" for begin, nano in zip(begins, nanos.tolist(), strict=True)]
    return pa.array(texts, pa.string(), mask=missing), faults


def _fraction(nanos: int) -> str:
    """Return a part of a second with 0, 3, 6 or 9 digits, as the JSON of Protobuf has it."""
    if nanos == 0:
        return ""
    digits = f"{nanos:09}"
    return f".{digits[:3] if digits.endswith('000000') else digits[:6] if digits.endswith('000') else digits}"


def _money(values: Values) -> tuple[pa.Array, Faults]:
    """Return amounts with nine digits after the point; their currency is a field of its own."""
    missing, (units, nanos) = _parts(values, "units", "nanos")
    wrong = (np.abs(nanos) > _MOST_NANOS) | ((units > 0) & (nanos < 0)) | ((units < 0) & (nanos > 0))
    faults: Faults = {
        int(row): f"{units[row]} units and {nanos[row]} nanos is no amount" for row in np.flatnonzero(wrong)
    }
    amounts = zip(units.tolist(), nanos.tolist(), strict=True)
    texts = [format_scaled(unit * _NANOS_OF_UNIT + nano, _DIGITS_OF_NANOS) for unit, nano in amounts]
    return pa.array(texts, pa.string(), mask=missing), faults
