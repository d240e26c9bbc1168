"""MessageBytes in Avro as events: each by the schema that it was written with.

Where a registry keeps the schemas, the prefix of a message (`wire_format`) has the number of its schema. All
messages of one schema are decoded together; then the rows are brought back into their order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.events.arrivals import BROKEN, LONGEST_RAW, RAW, field_column, shortened
from buckets.events.avro.avro_type import AvroSchemaError
from buckets.events.avro.columns import joined
from buckets.events.avro.decoder import Decoded, Decoder, decoder_of, nothing_of
from buckets.events.schema import EventSchema
from buckets.events.wire_format import NO_PREFIX, PREFIX_BYTES, MessageBytes

Int64s = npt.NDArray[np.int64]


class UnknownSchema(ValueError):
    """A schema is not known, or is none that can be read; says why."""


@dataclass(frozen=True)
class AvroText:
    """A schema as it is written, with those whose types it names, each after those that it names itself."""

    text: str
    references: tuple[str, ...] = ()


SchemaOf = Callable[[int], AvroText]
"""Returns the schema of a number, or raises UnknownSchema."""


def read_registered(rows: pa.RecordBatch, schema: EventSchema, schema_of: SchemaOf) -> pa.RecordBatch:
    """Read messages with the prefix of a registry into the declared fields.

    Args:
        rows: with `raw` (binary).
        schema: the event schema.
        schema_of: returns the schema of a number.

    Returns:
        The rows with the declared fields, `broken` for each message that is no event, and in `raw` the bytes of those
        that cannot be read, as hexadecimal digits.
    """
    messages = MessageBytes.of(rows.column(RAW))
    numbers, is_prefixed = messages.schema_numbers()
    parts: list[tuple[Int64s, Decoded]] = []
    without = np.flatnonzero(~is_prefixed)
    if len(without):
        parts.append((without, nothing_of(len(without), schema, NO_PREFIX)))
    for number in np.unique(numbers[is_prefixed]).tolist():
        of_schema = np.flatnonzero(is_prefixed & (numbers == number))
        try:
            decoder = _decoder(schema_of(number), schema)
            start = messages.begin[of_schema] + PREFIX_BYTES
            decoded = decoder.decode(messages.data, start, messages.end[of_schema], schema, PREFIX_BYTES)
        except (UnknownSchema, AvroSchemaError) as error:
            decoded = nothing_of(len(of_schema), schema, f"schema {number} {error}")
        parts.append((of_schema, decoded))
    return _with_fields(rows, schema, parts)


def read_plain(rows: pa.RecordBatch, schema: EventSchema, written: AvroText) -> pa.RecordBatch:
    """Read messages without a prefix, all of one schema, as `read_registered` does.

    Raises:
        AvroSchemaError: it is no schema of a record.
    """
    messages = MessageBytes.of(rows.column(RAW))
    decoded = _decoder(written, schema).decode(messages.data, messages.begin, messages.end, schema)
    return _with_fields(rows, schema, [(np.arange(rows.num_rows), decoded)])


def _decoder(written: AvroText, schema: EventSchema) -> Decoder:
    return decoder_of(written.text, written.references, tuple(schema.field_names))


def _with_fields(rows: pa.RecordBatch, schema: EventSchema, parts: list[tuple[Int64s, Decoded]]) -> pa.RecordBatch:
    """Join what was decoded of the rows of each schema, in the order of the rows."""
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
        texts = [_as_digits(raw[row].as_py()) if row in unread else None for row in range(rows.num_rows)]
        shown = pa.array(texts, pa.string())
    others = {name: rows.column(name) for name in rows.schema.names if name != RAW}
    return pa.record_batch(others | {RAW: shown, BROKEN: pa.array(reasons, pa.string())} | columns)


def _as_digits(message: bytes) -> str:
    """Return bytes as hexadecimal digits; of a long message the beginning, as a dead letter keeps it."""
    most = LONGEST_RAW // 2
    begin = f"0x{message[:most].hex()}"
    return shortened(begin, f"{len(message):,} bytes") if len(message) > most else shortened(begin)
