"""Wanted values as columns of Arrow, in types from which `arrivals.convert` goes on, as it does with those of Parquet.

Whole numbers, texts, decimals and moments keep their types. Floating point becomes its shortest decimal text, a time of
an event that is declared in a unit the number of them. Where messages write one field in several types, as unions and
changes of a schema make it, all become text.
"""

import uuid
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.byte_strings import gathered
from buckets.events.avro.avro_type import NO_RECORD, AvroType
from buckets.events.avro.scan import NO_LEAF, read_big_endian
from buckets.events.conversion import A_LIST
from buckets.events.moment_text import Faults
from buckets.events.schema import EventSchema
from buckets.events.time_units import PER_SECOND
from buckets.events.written_values import (
    NO_OBJECT,
    YEAR_1_S,
    YEAR_10000_S,
    WrittenValues,
    decimals,
    fitted,
    joined,
)
from buckets.numbers.decimal128 import MOST_DIGITS

Int64s = npt.NDArray[np.int64]
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DIGITS_OF_64_BITS = 19
_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_SHOWN = 40
_AN_OBJECT = "is an object, and must be one value"
NO_VALUES = {
    "array": A_LIST,
    "map": _AN_OBJECT,
    "record": _AN_OBJECT,
    NO_RECORD.kind: NO_OBJECT,
}
"""Why values of some types are no single ones."""
_WILD = "lies outside the years 1 to 9999"


def field_values(
    name: str, leaves: Int64s, values: WrittenValues, types: Sequence[AvroType], schema: EventSchema
) -> tuple[pa.Array, Faults]:
    """Return the column of a field, and what is wrong with its values.

    Args:
        name: of the field.
        leaves: int64 `(rows,)`, for each the index of its type; `NO_LEAF` where there is none, which is null.
        values: of all rows.
        types: those of the schema.
        schema: what the field is to become.
    """
    there = np.unique(leaves)
    kinds = [int(leaf) for leaf in there if leaf != NO_LEAF]
    if not kinds:
        return pa.nulls(len(leaves)), {}
    if len(there) == 1:
        return _typed(name, values, types[kinds[0]], schema)
    parts, at, faults = by_leaf(leaves, lambda leaf, rows: _typed(name, values.of(rows), types[leaf], schema))
    column, of_text = joined(parts)
    faults |= {int(np.flatnonzero(at == place)[0]): reason for place, reason in of_text.items()}
    return column.take(pa.array(at, mask=at < 0)), faults


def by_leaf(
    leaves: Int64s, read: Callable[[int, Int64s], tuple[pa.Array, Faults]]
) -> tuple[list[pa.Array], Int64s, Faults]:
    """Read the values of each type for themselves.

    Args:
        leaves: int64 `(rows,)`, for each the index of its type; `NO_LEAF` where there is no value.
        read: given an index and the rows that have it, returns their column, and what is wrong by its places.

    Returns:
        The columns; int64 `(rows,)`, where the value of each row lies in them one after the other, -1 for none; and by
        row what is wrong.
    """
    parts: list[pa.Array] = []
    at, faults = np.full(len(leaves), -1, np.int64), Faults()
    for leaf in np.unique(leaves[leaves != NO_LEAF]).tolist():
        rows = np.flatnonzero(leaves == leaf)
        column, of_leaf = read(leaf, rows)
        at[rows] = sum(map(len, parts)) + np.arange(len(rows))
        parts.append(column)
        faults |= {int(rows[row]): reason for row, reason in of_leaf.items()}
    return parts, at, faults


def _typed(name: str, values: WrittenValues, kind: AvroType, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return values of one type as a column of Arrow."""
    if kind.kind in NO_VALUES:
        count = len(values.numbers)
        return pa.nulls(count), dict.fromkeys(range(count), NO_VALUES[kind.kind])
    return fitted(name, *_COLUMNS[kind.kind](values, kind), schema)


def _boolean(values: WrittenValues, kind: AvroType) -> tuple[pa.Array, Faults]:
    return pa.array(values.numbers.astype(np.bool_)), {}


def _whole(values: WrittenValues, kind: AvroType) -> tuple[pa.Array, Faults]:
    """Return whole numbers, and what logical types make of them."""
    numbers = values.numbers
    if kind.logical == "date":
        days, faults = _within(numbers, YEAR_1_S // 86_400, YEAR_10000_S // 86_400, _WILD)
        return pa.array(days.astype(np.int32)).cast(pa.date32()), faults
    if "-" not in kind.logical:
        return pa.array(numbers), {}
    form, _, precision = kind.logical.rpartition("-")
    unit = _UNITS[precision]
    per_second = PER_SECOND[unit]
    if form == "time":
        ticks, faults = _within(numbers, 0, 86_400 * per_second, "is no time of a day")
        return pa.array(ticks).cast(pa.time64("us")) if unit == "us" else _time_of_ms(ticks), faults
    earliest, latest = YEAR_1_S * per_second, YEAR_10000_S * per_second
    ticks, faults = _within(numbers, earliest, latest, _WILD)
    return pa.array(ticks).cast(pa.timestamp(unit, "UTC" if form == "timestamp" else None)), faults


def _time_of_ms(ticks: Int64s) -> pa.Array:
    return pa.array(ticks.astype(np.int32)).cast(pa.time32("ms"))


def _within(numbers: Int64s, least: int, end: int, reason: str) -> tuple[Int64s, Faults]:
    """Return numbers with those outside a range as 0, and why these are faulty."""
    limits = np.iinfo(np.int64)
    low, high = max(least, limits.min), min(end - 1, limits.max)
    outside = (numbers < low) | (numbers > high)
    if not outside.any():
        return numbers, {}
    return np.where(outside, 0, numbers), {int(row): f"{numbers[row]} {reason}" for row in np.flatnonzero(outside)}


def _floating(values: WrittenValues, kind: AvroType) -> tuple[pa.Array, Faults]:
    wide = kind.kind == "double"
    bits = np.frombuffer(gathered(values.data, values.numbers, values.lengths).data, "<f8" if wide else "<f4")
    return pa.array(bits), {}


def _text(values: WrittenValues, kind: AvroType) -> tuple[pa.Array, Faults]:
    text = values.bytes.view(pa.large_string())
    if kind.logical != "uuid":
        return text, {}
    wrong = np.flatnonzero(~pc.match_substring_regex(text, _UUID).to_numpy(zero_copy_only=False))
    return text, {int(row): f"{text[int(row)].as_py()[:_SHOWN]!r} is no UUID" for row in wrong}


def _bytes(values: WrittenValues, kind: AvroType) -> tuple[pa.Array, Faults]:
    if kind.logical == "decimal":
        return _decimal(values, kind)
    if kind.logical == "uuid":
        return pa.array([str(uuid.UUID(bytes=value)) for value in values.bytes.to_pylist()], pa.string()), {}
    return values.bytes, {}


def _decimal(values: WrittenValues, kind: AvroType) -> tuple[pa.Array, Faults]:
    """Return decimals to the digit; one with more digits than its type says is faulty."""
    words = np.empty((len(values.numbers), 2), np.int64)
    fits = np.empty(len(values.numbers), np.bool_)
    read_big_endian(values.data, values.numbers, values.lengths, words, fits)
    if fits.all() and kind.precision <= MOST_DIGITS and _has_digits(words, kind.precision):
        whole = pa.decimal128(MOST_DIGITS, kind.scale)
        return pa.Array.from_buffers(whole, len(words), [None, pa.py_buffer(words)]), {}
    contents = values.bytes.to_pylist()
    return decimals(contents, [kind.scale] * len(contents), kind.precision)


def _has_digits(words: Int64s, precision: int) -> bool:
    """Return whether numbers of 128 bits surely have no more digits; by the high half alone where there is one."""
    low, high = words[:, 0], words[:, 1]
    is_narrow = high == low >> 63
    if precision < _DIGITS_OF_64_BITS:
        most = 10**precision
        return bool(np.all(is_narrow & (low < most) & (low > -most)))
    most = 10**precision >> 64
    return bool(np.all(is_narrow | ((high < most) & (high >= -most))))


def _enum(values: WrittenValues, kind: AvroType) -> tuple[pa.Array, Faults]:
    return pa.array(kind.symbols, pa.string()).take(pa.array(values.numbers)), {}


_COLUMNS: dict[str, Callable[[WrittenValues, AvroType], tuple[pa.Array, Faults]]] = {
    "boolean": _boolean,
    "int": _whole,
    "long": _whole,
    "float": _floating,
    "double": _floating,
    "bytes": _bytes,
    "string": _text,
    "fixed": _bytes,
    "enum": _enum,
}
