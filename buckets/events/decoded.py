"""Messages in a binary format: the schemas they are read by, and their declared fields, in the order of messages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from buckets.events.arrivals import BROKEN, LONGEST_RAW, RAW, field_column, replaced, shortened
from buckets.events.clock_times import Faults
from buckets.events.csv_events import as_text
from buckets.events.schema import EventSchema
from buckets.events.written_values import joined, without_faulty

Int64s = npt.NDArray[np.int64]
PREFIX_BYTES = 5
NO_NUMBER = -1
_MOST_SHOWN = LONGEST_RAW // 2  # Bytes of a message that a dead letter keeps as hexadecimal digits
NO_PREFIX = "does not begin with the prefix of a schema registry, five bytes of which the first is 0"


def schema_numbers(raw: pa.Array) -> Int64s:
    """Return the number in the prefix of each message, `NO_NUMBER` of one without a prefix."""
    prefixes = pc.binary_slice(raw, 0, PREFIX_BYTES).to_pylist()
    numbers = (
        int.from_bytes(prefix) if len(prefix) == PREFIX_BYTES and prefix[0] == 0 else NO_NUMBER for prefix in prefixes
    )
    return np.fromiter(numbers, np.int64, len(prefixes))


def text_behind_prefix(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Take the prefix off `raw` and make text of it, as `as_text` does; in `broken` also for messages without one."""
    raw = rows.column(RAW)
    has_prefix = pa.array(schema_numbers(raw) != NO_NUMBER)
    text = pc.if_else(has_prefix, pc.binary_replace_slice(raw, 0, PREFIX_BYTES, b""), raw)
    rows = as_text(replaced(rows, RAW, text))
    reasons = pc.if_else(has_prefix, rows.column(BROKEN), NO_PREFIX)
    return replaced(rows, BROKEN, reasons)


AVRO, PROTOBUF = "AVRO", "PROTOBUF"


@dataclass(frozen=True)
class WriterSchema:
    """A schema that messages are written with, as a registry or a file has it."""

    kind: str  # as registries name it: AVRO, JSON or PROTOBUF
    text: str  # JSON of Avro, a `.proto` file, or a descriptor in base64
    references: tuple[str, ...] = ()  # schemas whose types it names, each after those that it names itself
    names: tuple[str, ...] = ()  # the names by which they are imported


Numbers = tuple[int, ...]
PinnedNumbers = tuple[tuple[str, tuple[tuple[str, Numbers], ...]], ...]
"""By full name of a message the numbers that its declared fields had, as one value that can be a key."""


class PinnedProtobuf(BaseModel):
    """By what values in Protobuf are read, beside what their own prefix says.

    Attributes:
        text: the schema of values without a prefix: a set of descriptors in base64.
        message: their type in it; None where it has only one.
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
    unread: frozenset[int] = frozenset()  # the rows of which nothing could be read


def nothing_of(rows: int, schema: EventSchema, reason: str) -> Decoded:
    """Return messages of which nothing can be read."""
    columns = [pa.nulls(rows) for _ in schema.field_names]
    return Decoded(columns, dict.fromkeys(range(rows), reason), frozenset(range(rows)))


def decoded_fields(
    schema: EventSchema,
    broken: Mapping[int, str],
    read: Callable[[str], tuple[pa.Array, Faults]],
    faults: Mapping[int, str] = MappingProxyType({}),
) -> Decoded:
    """Return the declared fields of messages; `read` returns the column of one, and what is wrong with its values.

    `broken` says by row why a message cannot be read, `faults` why a readable one is no event.
    """
    columns, found = [], dict(broken) | dict(faults)
    for name in schema.field_names:
        column, of_field = read(name)
        columns.append(without_faulty(column, of_field))
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
    """Read messages (binary) with the prefix of a registry into the declared fields, those of each schema together.

    `decode` is given messages without their prefixes and the number of their schema; it returns parts, each with the
    places of its messages, or raises SchemaError.
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
    """Join what was decoded of the rows of each schema, in the order of the rows.

    Messages that are no events get their reason as `broken`, and those that cannot be read their bytes as hexadecimal
    digits in `raw`.
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
