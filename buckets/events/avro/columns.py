"""Values of records as columns of Arrow, in types from which `arrivals.convert` goes on, as it does with Parquet's.

Whole numbers, texts, decimals and moments keep their types. Floating point becomes its shortest decimal text, a time of
an event that is declared in a unit the number of them. Where messages write one field in several types, as unions and
changes of a schema make it, all become text.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.avro.avro_type import AvroType
from buckets.events.conversion import A_LIST, NO_LIST
from buckets.events.field_paths import ArrayPath, Path, array_path, path_of
from buckets.events.moment_text import Faults
from buckets.events.schema import EventSchema
from buckets.events.time_units import PER_SECOND
from buckets.events.written_values import NO_OBJECT, YEAR_1_S, YEAR_10000_S, decimals, fitted, joined, list_column

Values = list[Any]
Rows = Sequence[int]
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_SHOWN = 40
_AN_OBJECT = "is an object, and must be one value"
_NO_RECORD = AvroType("no record")
"""What stands for a type that is no record, where a path to a field leads into one."""
NO_VALUES = {"array": A_LIST, "map": _AN_OBJECT, "record": _AN_OBJECT, _NO_RECORD.kind: NO_OBJECT}
"""Why values of some types are no single ones."""
_WILD = "lies outside the years 1 to 9999"


def field_values(name: str, kind: AvroType, records: Values, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return the column of a declared field, null where a record does not have it, and what is wrong with its values.

    Args:
        name: of the field.
        kind: the type of the records.
        records: as fastavro has read them; None for one that is broken.
        schema: what the field is to become.
    """
    array = array_path(name)
    if array is None:
        return _by_type(kind, path_of(name), records, lambda leaf, found: _typed(name, leaf, found, schema))
    return _by_type(kind, path_of(array.outer), records, lambda leaf, found: _lists(name, array, leaf, found, schema))


def leaves(kind: AvroType, name: str) -> list[AvroType]:
    """Return the types that a declared field has in messages of a type; none where they do not have it."""
    array = array_path(name)
    found = [leaf for leaf, _, _ in _ends(kind, path_of(name if array is None else array.outer), (), [])]
    if array is not None and array.steps:
        lists = [leaf for leaf in found if leaf.kind == "array"]
        found = [leaf for each in lists for leaf, _, _ in _ends(each.branches[0], array.steps, (), [])]
    return [leaf for leaf in found if leaf.kind != "null"]


def _by_type(
    kind: AvroType, steps: Path, values: Values, read: Callable[[AvroType, Values], tuple[pa.Array, Faults]]
) -> tuple[pa.Array, Faults]:
    """Return what lies at a path in values, those of each type read for themselves."""
    parts: list[pa.Array] = []
    at, faults = np.full(len(values), -1, np.int64), Faults()
    for leaf, rows, found in _ends(kind, steps, range(len(values)), values):
        if leaf.kind == "null" or not rows:
            continue
        column, of_leaf = read(leaf, found)
        if len(rows) == len(values):
            return column, of_leaf
        at[rows] = sum(map(len, parts)) + np.arange(len(rows))
        parts.append(column)
        faults |= {rows[row]: reason for row, reason in of_leaf.items()}
    if not parts:
        return pa.nulls(len(values)), faults
    column, of_text = joined(parts)
    faults |= {int(np.flatnonzero(at == place)[0]): reason for place, reason in of_text.items()}
    return column.take(pa.array(at, mask=at < 0)), faults


def _ends(kind: AvroType, steps: Path, rows: Rows, values: Values) -> Iterator[tuple[AvroType, Rows, Values]]:
    """Yield the types at the end of a path, each with the rows that have it and what lies there, None for nothing."""
    if kind.kind == "union" and kind.are_told_apart:
        for number, branch in enumerate(kind.branches):
            chosen = [at for at, value in enumerate(values) if value is not None and number in value]
            yield from _ends(branch, steps, [rows[at] for at in chosen], [values[at][number] for at in chosen])
    elif kind.kind == "union":
        for branch in kind.branches:
            if branch.kind != "null":
                yield from _ends(branch, steps, rows, values)
    elif not steps or kind.kind == "null":
        yield kind, rows, values
    elif kind.kind == "array" and isinstance(steps[0], int):
        index = steps[0]
        inside = [None if value is None or index >= len(value) else value[index] for value in values]
        yield from _ends(kind.branches[0], steps[1:], rows, inside)
    elif kind.kind == "record" and isinstance(steps[0], str):
        field = kind.field(steps[0])
        if field is not None:
            inside = [None if value is None else value[field.name] for value in values]
            yield from _ends(field.kind, steps[1:], rows, inside)
    else:
        yield _NO_RECORD, rows, values


def _lists(name: str, array: ArrayPath, kind: AvroType, lists: Values, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return values of one type as a column of lists."""
    if kind.kind != "array":
        objects = {_NO_RECORD.kind: NO_OBJECT} | dict.fromkeys(("record", "map"), "is an object, and must be a list")
        return _nothing(lists, objects.get(kind.kind, NO_LIST))

    def read(leaf: AvroType, found: Values) -> tuple[pa.Array, Faults]:
        # An item that is no record has no value, as an item without the field.
        return (pa.nulls(len(found)), {}) if leaf is _NO_RECORD else _typed(name, leaf, found, schema)

    return list_column(name, lists, lambda items: _by_type(kind.branches[0], array.steps, items, read), schema)


def _typed(name: str, kind: AvroType, values: Values, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return values of one type as a column of Arrow."""
    if kind.kind in NO_VALUES:
        return _nothing(values, NO_VALUES[kind.kind])
    return fitted(name, *_COLUMNS[kind.kind](values, kind), schema)


def _nothing(values: Values, reason: str) -> tuple[pa.Array, Faults]:
    return pa.nulls(len(values)), {row: reason for row, value in enumerate(values) if value is not None}


def _boolean(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    return pa.array(values, pa.bool_()), {}


def _whole(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    """Return whole numbers, and what logical types make of them."""
    numbers = pa.array(values, pa.int64())
    if kind.kind == "int":
        numbers, faults = _within(numbers, -(2**31), 2**31, "does not fit its type int")
        if faults:
            return numbers, faults
    if kind.logical == "date":
        days, faults = _within(numbers, YEAR_1_S // 86_400, YEAR_10000_S // 86_400, _WILD)
        return days.cast(pa.int32()).cast(pa.date32()), faults
    if "-" not in kind.logical:
        return numbers, {}
    form, _, precision = kind.logical.rpartition("-")
    unit = _UNITS[precision]
    per_second = PER_SECOND[unit]
    if form == "time":
        ticks, faults = _within(numbers, 0, 86_400 * per_second, "is no time of a day")
        return ticks.cast(pa.time64("us")) if unit == "us" else ticks.cast(pa.int32()).cast(pa.time32("ms")), faults
    ticks, faults = _within(numbers, YEAR_1_S * per_second, YEAR_10000_S * per_second, _WILD)
    return ticks.cast(pa.timestamp(unit, "UTC" if form == "timestamp" else None)), faults


def _within(numbers: pa.Array, least: int, end: int, reason: str) -> tuple[pa.Array, Faults]:
    """Return numbers with those outside a range as null, and why these are faulty."""
    limits = np.iinfo(np.int64)
    outside = pc.or_(pc.less(numbers, max(least, limits.min)), pc.greater(numbers, min(end - 1, limits.max)))
    rows = np.flatnonzero(outside.fill_null(False).to_numpy(zero_copy_only=False)).tolist()
    if not rows:
        return numbers, {}
    faults = {row: f"{numbers[row].as_py()} {reason}" for row in rows}
    return pc.if_else(outside, pa.scalar(None, pa.int64()), numbers), faults


def _floating(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    return pa.array(values, pa.float64() if kind.kind == "double" else pa.float32()), {}


def _text(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    text = pa.array(values, pa.large_string())
    if kind.logical != "uuid":
        return text, {}
    wrong = pc.invert(pc.match_substring_regex(text, _UUID)).fill_null(False).to_numpy(zero_copy_only=False)
    return text, {row: f"{values[row][:_SHOWN]!r} is no UUID" for row in np.flatnonzero(wrong).tolist()}


def _bytes(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    if kind.logical == "decimal":
        return decimals(values, [kind.scale] * len(values), kind.precision)
    if kind.logical == "uuid":
        return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in values], pa.string()), {}
    return pa.array(values, pa.large_binary()), {}


def _enum(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    known = range(len(kind.symbols))
    faults = {
        row: f"has symbol {value} of an enum of {len(known)}"
        for row, value in enumerate(values)
        if value is not None and value not in known
    }
    return pa.array([None if value not in known else kind.symbols[value] for value in values], pa.string()), faults


_COLUMNS: dict[str, Callable[[Values, AvroType], tuple[pa.Array, Faults]]] = {
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
