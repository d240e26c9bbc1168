"""Messages in a binary format: the schemas they are read by, and their declared fields, in the order of messages.

Columns have types that Parquet has too. A field that is written in several types, because of unions or schema changes,
becomes text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from buckets.arrays import Int64s
from buckets.events import conversion
from buckets.events.arrivals import BROKEN, LONGEST_RAW, RAW, field_column, good_rows, replaced, shortened
from buckets.events.clock_times import PER_SECOND, Faults
from buckets.events.csv_events import as_text
from buckets.events.schema import EventSchema
from buckets.list_columns import list_of
from buckets.numbers.fixed_point import format_scaled

YEAR_1_S, YEAR_10000_S = -62_135_596_800, 253_402_300_800
"""The seconds in which the year 1 begins and the year 9999 has ended: what is outside has no text in ISO 8601."""

_LARGEST_SCALE, _MOST_BYTES = 1000, 500
"""Digits after the point, or zeros before it, and bytes with which a decimal is still written out."""

NO_OBJECT = "is in something that is not an object, and must be in one"
"""The fault of a field whose path leads into a value."""


def fitted(name: str, column: pa.Array, faults: Faults, schema: EventSchema) -> tuple[pa.Array, Faults]:
    """Return a column as its field expects: no booleans for text, the event time in its unit.

    Floats become whole numbers where these are expected, otherwise their shortest decimal text.
    """
    if pa.types.is_boolean(column.type) and schema.holds_text(name):
        texts = pc.cast(column, pa.string()).to_pylist()
        return pa.nulls(len(column), pa.string()), {
            row: f"is {text}, and must be text" for row, text in enumerate(texts) if text is not None
        }
    if pa.types.is_floating(column.type):
        kinds = {} if schema.is_time(name) else schema.attributes | schema.arrays
        kind = "string" if schema.holds_text(name) else kinds.get(name)
        if kind is None or kind == "boolean":
            return pc.cast(column, pa.string()), faults
        column, of_floats = conversion.attributes(column, kind)
        return column, of_floats | faults
    if schema.is_time(name) and schema.event_time.unit != "iso8601":
        column = _as_number(column, schema.event_time.unit)
    return column, faults


def joined(parts: Sequence[pa.Array]) -> tuple[pa.Array, Faults]:
    """Join columns of one field, as text if their types differ; return faults by row for values without a text."""
    known = [part for part in parts if not pa.types.is_null(part.type)]
    if not known:
        return pa.nulls(sum(map(len, parts)), pa.string()), {}
    faults: Faults = {}
    kind = known[0].type
    if any(part.type != kind for part in known):
        kind, before, texts = pa.string(), 0, []
        for part in parts:
            text, of_part = conversion.attributes(part.cast(kind) if pa.types.is_null(part.type) else part, "string")
            faults |= {before + row: reason for row, reason in of_part.items()}
            texts.append(text)
            before += len(part)
        parts = texts
    return pa.concat_arrays([part.cast(kind) for part in parts]), faults


def decimals(
    contents: Sequence[bytes | None], scales: Sequence[int], precision: int | None = None
) -> tuple[pa.Array, Faults]:
    """Return exact decimals, as text, from whole numbers in two's complement.

    A scale is the number of digits after the point; below 0, the number of zeros to append. A value is faulty if it is
    too long to write out, or has more digits than `precision`.
    """
    most = None if precision is None else 10 ** min(precision, 3 * _MOST_BYTES)  # A byte has less than three digits.
    texts: list[str | None] = []
    faults: Faults = {}
    for row, (content, scale) in enumerate(zip(contents, scales, strict=True)):
        if content is None:
            texts.append(None)
            continue
        number = int.from_bytes(content, signed=True)
        if abs(scale) > _LARGEST_SCALE or number.bit_length() > 8 * _MOST_BYTES:
            faults[row] = f"a decimal has {len(content):,} bytes and a scale of {scale:,}"
        elif most is not None and abs(number) >= most:
            faults[row] = f"a decimal has more than the {precision} digits of its type"
        texts.append(None if row in faults else format_scaled(number * 10 ** max(0, -scale), max(0, scale)))
    return pa.array(texts, pa.string()), faults


def list_column(
    name: str,
    lists: Sequence[Sequence[Any] | None],
    read: Callable[[list[Any]], tuple[pa.Array, Faults]],
    schema: EventSchema,
) -> tuple[pa.Array, Faults]:
    """Return the column of an array, with its faults by row.

    `read` converts the concatenated elements of all lists to a column with faults.
    """
    counts = np.array([0 if elements is None else len(elements) for elements in lists], np.int64)
    faults = conversion.long_lists(counts)
    counts[list(faults)] = 0
    elements, of_elements = read([element for row, each in enumerate(lists) if counts[row] for element in each or ()])
    is_there = np.array([elements is not None for elements in lists], np.bool_)
    column, of_kind = conversion.arrays(list_of(elements, counts, is_there), schema.arrays[name])
    return column, of_kind | conversion.of_rows(of_elements, counts) | faults


def _as_number(column: pa.Array, unit: str) -> pa.Array:
    """Return timestamps with a zone as numbers of units since the epoch; any other column unchanged."""
    if not getattr(column.type, "tz", None):
        return column
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    ticks = pc.cast(column, pa.int64()).fill_null(0).to_numpy()
    times_ms = ticks // (PER_SECOND[column.type.unit] // 1000)
    if unit in ("s", "ns"):  # Nanoseconds of distant years exceed 64 bits.
        places, zeros = (3, "") if unit == "s" else (0, "000000")
        texts = [format_scaled(time_ms, places) + zeros for time_ms in times_ms.tolist()]
        return pa.array(texts, pa.string(), mask=is_null)
    return pa.array(times_ms * (PER_SECOND[unit] // 1000), mask=is_null)


PREFIX_BYTES = 5
NO_NUMBER = -1
_MOST_SHOWN = LONGEST_RAW // 2  # Bytes of a message that a dead letter keeps as hexadecimal digits
NO_PREFIX = "does not begin with the prefix of a schema registry, five bytes of which the first is 0"


def schema_numbers(raw: pa.Array) -> Int64s:
    """Return the schema number in the prefix of each message, `NO_NUMBER` if it has no prefix."""
    prefixes = pc.binary_slice(raw, 0, PREFIX_BYTES).to_pylist()
    numbers = (
        int.from_bytes(prefix) if len(prefix) == PREFIX_BYTES and prefix[0] == 0 else NO_NUMBER for prefix in prefixes
    )
    return np.fromiter(numbers, np.int64, len(prefixes))


def text_behind_prefix(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Strip the prefix from `raw` and decode it as `as_text` does; messages without a prefix are `broken` too."""
    raw = rows.column(RAW)
    has_prefix = pa.array(schema_numbers(raw) != NO_NUMBER)
    text = pc.if_else(has_prefix, pc.binary_replace_slice(raw, 0, PREFIX_BYTES, b""), raw)
    rows = as_text(replaced(rows, RAW, text))
    reasons = pc.if_else(has_prefix, rows.column(BROKEN), NO_PREFIX)
    return replaced(rows, BROKEN, reasons)


AVRO, PROTOBUF = "AVRO", "PROTOBUF"


@dataclass(frozen=True)
class WriterSchema:
    """A schema that messages are written with, from a registry or a file."""

    kind: str  # as registries name it: AVRO, JSON or PROTOBUF
    text: str  # JSON of Avro, a `.proto` file, or a descriptor in base64
    references: tuple[str, ...] = ()  # imported schemas, each after its own imports
    names: tuple[str, ...] = ()  # the names by which they are imported


Numbers = tuple[int, ...]
PinnedNumbers = tuple[tuple[str, tuple[tuple[str, Numbers], ...]], ...]
"""By full name of a message, the earlier numbers of its declared fields, as one hashable value."""


class PinnedProtobuf(BaseModel):
    """The schemas and numbers by which Protobuf values are read, besides those named by their prefixes.

    Attributes:
        text: the schema of values without a prefix: a set of descriptors in base64.
        message: their type in it; None if it has only one.
        numbers: by the full name of a message, the numbers of declared fields under the names that they had when a job
            was started.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    message: str | None = None
    numbers: dict[str, dict[str, Numbers]] = Field(default_factory=dict)

    @property
    def pinned_numbers(self) -> PinnedNumbers:
        """The numbers as a value that can be a key."""
        return tuple((message, tuple(fields.items())) for message, fields in sorted(self.numbers.items()))


SchemaOf = Callable[[int], WriterSchema]  # Returns the schema of a number, or raises SchemaError


class SchemaError(ValueError):
    """A schema is not known, cannot be read, or has no such message; says why."""


@dataclass(frozen=True)
class Decoded:
    """The declared fields of messages."""

    columns: list[pa.Array]  # for each field a column of Arrow, null where a message does not have it
    faults: Faults  # by row, why a message is no event
    unread: frozenset[int] = frozenset()  # the rows that could not be decoded


def nothing_of(rows: int, schema: EventSchema, reason: str) -> Decoded:
    """Return messages that all failed to decode, for one reason."""
    columns = [pa.nulls(rows) for _ in schema.field_names]
    return Decoded(columns, dict.fromkeys(range(rows), reason), frozenset(range(rows)))


def decoded_fields(
    schema: EventSchema,
    broken: Mapping[int, str],
    read: Callable[[str], tuple[pa.Array, Faults]],
    faults: Mapping[int, str] = MappingProxyType({}),
) -> Decoded:
    """Return the declared fields of messages; `read` returns the column of a field, and its faults.

    `broken` says by row why a message cannot be read, `faults` why a readable one is not an event.
    """
    columns, found = [], dict(broken) | dict(faults)
    for name in schema.field_names:
        column, of_field = read(name)
        if of_field:  # A faulty value does not show what was written.
            column = pc.if_else(pa.array(good_rows(len(column), of_field)), column, pa.scalar(None, column.type))
        columns.append(column)
        newer_names = schema.newer_names(name) if of_field else ()
        newer = [columns[schema.field_names.index(each)] for each in newer_names]
        for row, reason in of_field.items():
            if not any(values[row].is_valid for values in newer):
                found.setdefault(row, f"{name}: {reason}")
    return Decoded(columns, found, frozenset(broken))


def by_schema(
    rows: pa.RecordBatch,
    schema: EventSchema,
    decode: Callable[[Sequence[bytes], int], Iterable[tuple[Int64s, Decoded]]],
) -> pa.RecordBatch:
    """Read messages (binary) with the prefix of a registry into the declared fields, grouped by schema.

    `decode` takes messages without prefixes and their schema number. It returns parts, each with the indexes of its
    messages among these, or raises SchemaError.
    """
    messages, numbers = rows.column(RAW).to_pylist(), schema_numbers(rows.column(RAW))
    parts: list[tuple[Int64s, Decoded]] = []
    for number in np.unique(numbers).tolist():
        of_schema = np.flatnonzero(numbers == number)
        if number == NO_NUMBER:
            parts.append((of_schema, nothing_of(len(of_schema), schema, NO_PREFIX)))
            continue
        try:
            decoded = decode([messages[row][PREFIX_BYTES:] for row in of_schema.tolist()], number)
            parts += [(of_schema[places], part) for places, part in decoded]
        except SchemaError as error:
            parts.append((of_schema, nothing_of(len(of_schema), schema, f"schema {number} {error}")))
    return with_fields(rows, schema, parts)


def with_fields(rows: pa.RecordBatch, schema: EventSchema, parts: list[tuple[Int64s, Decoded]]) -> pa.RecordBatch:
    """Join the parts decoded by different schemas, in the order of the rows.

    Messages that are not events get the reason as `broken`; unreadable ones also get their bytes in hexadecimal as
    `raw`.
    """
    order = np.concatenate([np.empty(0, np.int64), *(of_part for of_part, _ in parts)])
    back = None if len(parts) == 1 else pa.array(np.argsort(order))
    reasons: list[str | None] = [None] * rows.num_rows
    unread = set[int]()
    for of_part, decoded in parts:
        unread |= {int(of_part[row]) for row in decoded.unread}
        for row, reason in decoded.faults.items():
            reasons[int(of_part[row])] = reason
    columns = {}
    for index, name in enumerate(schema.field_names):
        column, faults = joined([decoded.columns[index] for _, decoded in parts])
        for row, reason in faults.items():
            at = int(order[row])
            reasons[at] = reasons[at] or f"{name}: {reason}"
        columns[field_column(index)] = column if back is None else column.take(back)
    raw = rows.column(RAW)
    shown = pa.nulls(rows.num_rows, pa.string())
    if unread:
        texts: list[str | None] = [None] * rows.num_rows
        for row in unread:
            message = raw[row].as_py()
            size = f"{len(message):,} bytes" if len(message) > _MOST_SHOWN else ""
            texts[row] = shortened(f"0x{message[:_MOST_SHOWN].hex()}", size)
        shown = pa.array(texts, pa.string())
    others = {name: rows.column(name) for name in rows.schema.names if name != RAW}
    return pa.record_batch(others | {RAW: shown, BROKEN: pa.array(reasons, pa.string())} | columns)
