"""Reads messages in Avro as events, each by the schema that it was written with.

With a schema registry, the prefix of a message (`decoded`) holds the number of its schema. All messages of one schema
are decoded together; then the rows are put back in order.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Int64s
from buckets.errors import BucketsError
from buckets.events.arrivals import RAW
from buckets.events.avro.avro_type import AvroType, BrokenMessage, RecordField, read_schema, record_reader
from buckets.events.clock_times import PER_SECOND, Faults
from buckets.events.conversion import A_LIST, NO_LIST
from buckets.events.debezium import ImportedField, in_list
from buckets.events.decoded import (
    NO_OBJECT,
    PREFIX_BYTES,
    YEAR_1_S,
    YEAR_10000_S,
    Decoded,
    SchemaError,
    SchemaOf,
    WriterSchema,
    by_schema,
    decimals,
    decoded_fields,
    fitted,
    joined,
    list_column,
    with_fields,
)
from buckets.events.field_paths import ArrayPath, Path, array_path, path_of
from buckets.events.schema import LARGEST_SCALE, AttributeType, EventSchema

Values = list[Any]
Rows = Sequence[int]
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_SHOWN = 40
_AN_OBJECT = "is an object, and must be one value"
_NO_RECORD = AvroType("no record")  # Stands for a type on a path to a field that is not a record
NO_VALUES = {"array": A_LIST, "map": _AN_OBJECT, "record": _AN_OBJECT, _NO_RECORD.kind: NO_OBJECT}
"""By type, why its values are not single values."""
_WILD = "lies outside the years 1 to 9999"


def field_values(name: str, kind: AvroType, records: Values, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return the column of a declared field, null where a record lacks it, and the faults of its values.

    `kind` is the type of the records; a broken record is None.
    """
    array = array_path(name)
    if array is None:
        return _by_type(kind, path_of(name), records, lambda leaf, found: _typed(name, leaf, found, schema))
    return _by_type(kind, path_of(array.outer), records, lambda leaf, found: _lists(name, array, leaf, found, schema))


def leaves(kind: AvroType, name: str) -> list[AvroType]:
    """Return the types that a declared field has in messages of a type; empty if they lack it."""
    array = array_path(name)
    found = [leaf for leaf, _, _ in _ends(kind, path_of(name if array is None else array.outer), (), [])]
    if array is not None and array.steps:
        lists = [leaf for leaf in found if leaf.kind == "array"]
        found = [leaf for each in lists for leaf, _, _ in _ends(each.branches[0], array.steps, (), [])]
    return [leaf for leaf in found if leaf.kind != "null"]


def _by_type(
    kind: AvroType, steps: Path, values: Values, read: Callable[[AvroType, Values], tuple[pa.Array, Faults]]
) -> tuple[pa.Array, Faults]:
    """Return the values at a path, read separately for each type found there."""
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
    """Yield the types at the end of a path, each with the rows that have it and the values there, None if missing."""
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
    if kind.kind != "array":
        objects = {_NO_RECORD.kind: NO_OBJECT} | dict.fromkeys(("record", "map"), "is an object, and must be a list")
        return _nothing(lists, objects.get(kind.kind, NO_LIST))

    def read(leaf: AvroType, found: Values) -> tuple[pa.Array, Faults]:
        # An item that is not a record counts as an item without the field.
        return (pa.nulls(len(found)), {}) if leaf is _NO_RECORD else _typed(name, leaf, found, schema)

    return list_column(name, lists, lambda items: _by_type(kind.branches[0], array.steps, items, read), schema)


def _typed(name: str, kind: AvroType, values: Values, schema: EventSchema) -> tuple[pa.Array, Faults]:
    if kind.kind in NO_VALUES:
        return _nothing(values, NO_VALUES[kind.kind])
    return fitted(name, *_COLUMNS[kind.kind](values, kind), schema)


def _nothing(values: Values, reason: str) -> tuple[pa.Array, Faults]:
    return pa.nulls(len(values)), {row: reason for row, value in enumerate(values) if value is not None}


def _whole(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    """Return whole numbers, converted as their logical type says."""
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
        ticks, faults = _within(numbers, 0, 86_400 * per_second, "is not a time of a day")
        return ticks.cast(pa.time64("us")) if unit == "us" else ticks.cast(pa.int32()).cast(pa.time32("ms")), faults
    ticks, faults = _within(numbers, YEAR_1_S * per_second, YEAR_10000_S * per_second, _WILD)
    return ticks.cast(pa.timestamp(unit, "UTC" if form == "timestamp" else None)), faults


def _within(numbers: pa.Array, least: int, end: int, reason: str) -> tuple[pa.Array, Faults]:
    """Return numbers, with null and a reason for those outside a range."""
    limits = np.iinfo(np.int64)
    outside = pc.or_(pc.less(numbers, max(least, limits.min)), pc.greater(numbers, min(end - 1, limits.max)))
    rows = np.flatnonzero(outside.fill_null(False).to_numpy(zero_copy_only=False)).tolist()
    if not rows:
        return numbers, {}
    faults = {row: f"{numbers[row].as_py()} {reason}" for row in rows}
    return pc.if_else(outside, pa.scalar(None, pa.int64()), numbers), faults


def _text(values: Values, kind: AvroType) -> tuple[pa.Array, Faults]:
    text = pa.array(values, pa.large_string())
    if kind.logical != "uuid":
        return text, {}
    wrong = pc.invert(pc.match_substring_regex(text, _UUID)).fill_null(False).to_numpy(zero_copy_only=False)
    return text, {row: f"{values[row][:_SHOWN]!r} is not a UUID" for row in np.flatnonzero(wrong).tolist()}


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
    "boolean": lambda values, _: (pa.array(values, pa.bool_()), {}),
    "int": _whole,
    "long": _whole,
    "float": lambda values, _: (pa.array(values, pa.float32()), {}),
    "double": lambda values, _: (pa.array(values, pa.float64()), {}),
    "bytes": _bytes,
    "string": _text,
    "fixed": _bytes,
    "enum": _enum,
}
_KINDS: dict[str, AttributeType] = {
    "string": "string",
    "enum": "string",
    "int": "long",
    "long": "long",
    "boolean": "boolean",
}


def imported_fields(root: AvroType, name: str) -> list[ImportedField]:
    """Return the fields of a record schema; refuse any other schema."""
    if root.kind != "record":
        message = f"{name}: the schema is of type {root.kind}; name one of a record"
        raise BucketsError(message)
    return list(_fields(root, "", ()))


def _fields(record: AvroType, before: str, outer: tuple[AvroType, ...]) -> Iterator[ImportedField]:
    """Yield the fields of a record, the arrays that its lists can become, and the fields of nested records.

    Records that contain themselves are passed over.
    """
    for field in record.fields:
        kind, name = _plain(field.kind), f"{before}{field.name}"
        if kind.kind == "record" and kind.fields and kind not in (*outer, record):
            yield from _fields(kind, f"{name}.", (*outer, record))
        elif kind.kind == "array":
            item = _plain(kind.branches[0])
            parts = item.fields if item.kind == "record" else (RecordField("", item),)
            yield from in_list(name, (_imported(part.name, _plain(part.kind)) for part in parts))
        else:
            yield _imported(name, kind)


def _imported(name: str, kind: AvroType) -> ImportedField:
    if kind.logical == "decimal" and kind.scale <= LARGEST_SCALE:
        return ImportedField(name, scale=kind.scale)
    if kind.logical == "decimal":
        reason = f"has {kind.scale} digits after the point, and a measure has at most {LARGEST_SCALE}"
        return ImportedField(name, reason=reason)
    if kind.logical:
        return ImportedField(name, "string", unit="iso8601" if kind.kind == "string" else "ms")
    if kind.kind in _KINDS:
        return ImportedField(name, _KINDS[kind.kind], unit="iso8601" if kind.kind == "string" else "ms")
    if kind.kind in ("float", "double"):
        return ImportedField(name, reason=f"is a {kind.kind}; as a measure it needs a scale, as in {{scale: 2}}")
    return ImportedField(name, reason=f"is of type {kind.kind}", is_single=kind.kind not in NO_VALUES)


def _plain(kind: AvroType) -> AvroType:
    """Return the other branch of a union with null; any other type unchanged."""
    others = [branch for branch in kind.branches if branch.kind != "null"] if kind.kind == "union" else []
    return others[0] if len(others) == 1 else kind


def read_registered(
    rows: pa.RecordBatch, schema: EventSchema, schema_of: SchemaOf, field: str | None = None
) -> pa.RecordBatch:
    """Read messages with the prefix of a registry into the declared fields.

    With `field`, a message is the value of that one field, of any type, instead of a record.
    """

    def decode(contents: Sequence[bytes], number: int) -> Iterable[tuple[Int64s, Decoded]]:
        return [(np.arange(len(contents)), _decoded(contents, schema_of(number), schema, field, PREFIX_BYTES))]

    return by_schema(rows, schema, decode)


def read_plain(rows: pa.RecordBatch, schema: EventSchema, written: WriterSchema) -> pa.RecordBatch:
    """Read messages without a prefix, all written with one schema, as `read_registered` does."""
    decoded = _decoded(rows.column(RAW).to_pylist(), written, schema)
    return with_fields(rows, schema, [(np.arange(rows.num_rows), decoded)])


def _decoded(
    contents: Sequence[bytes], written: WriterSchema, schema: EventSchema, field: str | None = None, prefix: int = 0
) -> Decoded:
    """Decode messages; `prefix` is the number of bytes cut off before each, added to positions shown to people."""
    root, read = _reader(written, field)
    records: list[dict[str, Any] | None] = []
    broken: dict[int, str] = {}
    for row, content in enumerate(contents):
        try:
            records.append(read(content))
        except BrokenMessage as error:
            records.append(None)
            broken[row] = f"broken Avro: {error} at byte {error.at + prefix + 1:,}"
    if root.kind == "union":
        records = [None if record is None else record[""] for record in records]
    return decoded_fields(schema, broken, lambda name: field_values(name, root, records, schema))


@lru_cache(maxsize=256)
def _reader(written: WriterSchema, field: str | None) -> tuple[AvroType, Callable[[bytes], dict[str, Any]]]:
    """Return the type of messages and its decoder; a union is read inside a record made around it."""
    root = record_type(written, field)
    return root, record_reader(AvroType("record", fields=(RecordField("", root),)) if root.kind == "union" else root)


def record_type(written: WriterSchema, field: str | None = None) -> AvroType:
    """Return the type of messages, a record or a union of records, else SchemaError; or a record of just `field`."""
    root = read_schema(written.text, written.references)
    if field is not None:  # A record's bytes are just those of its fields.
        return AvroType("record", fields=(RecordField(field, root),))
    for each in root.records:
        if each.kind != "record":
            message = f"is not a record but of type {each.kind}"
            raise SchemaError(message)
    return root
