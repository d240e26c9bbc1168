"""Messages in Avro as events: each by the schema that it was written with.

Where a registry keeps the schemas, the prefix of a message (`wire_format`) has the number of its schema. All
messages of one schema are decoded together; then the rows are brought back into their order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.events.arrivals import RAW
from buckets.events.avro.avro_type import AvroType, BrokenMessage, RecordField, read_schema, record_reader
from buckets.events.avro.columns import field_values
from buckets.events.decoded import Decoded, SchemaError, by_schema, decoded_fields, with_fields
from buckets.events.schema import EventSchema
from buckets.events.wire_format import PREFIX_BYTES

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AvroText:
    """A schema as it is written, with those whose types it names, each after those that it names itself.

    With `field` a message is not the fields of a record but that one field, which may be of any type.
    """

    text: str
    references: tuple[str, ...] = ()
    field: str | None = None


SchemaOf = Callable[[int], AvroText]
"""Returns the schema of a number, or raises SchemaError."""


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

    def decode(contents: Sequence[bytes], number: int) -> Iterable[tuple[Int64s, Decoded]]:
        return [(np.arange(len(contents)), _decoded(contents, schema_of(number), schema, PREFIX_BYTES))]

    return by_schema(rows, schema, decode)


def read_plain(rows: pa.RecordBatch, schema: EventSchema, written: AvroText) -> pa.RecordBatch:
    """Read messages without a prefix, all of one schema, as `read_registered` does.

    Raises:
        SchemaError: it is no schema of a record.
    """
    decoded = _decoded(rows.column(RAW).to_pylist(), written, schema)
    return with_fields(rows, schema, [(np.arange(rows.num_rows), decoded)])


def _decoded(contents: Sequence[bytes], written: AvroText, schema: EventSchema, prefix: int = 0) -> Decoded:
    """Decode messages; `prefix` bytes lie before each, for positions that people read."""
    root, read = _reader(written)
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
def _reader(written: AvroText) -> tuple[AvroType, Callable[[bytes], dict[str, Any]]]:
    """Return the type of messages, and what reads them; of a union it reads a record around each."""
    root = record_type(written)
    return root, record_reader(AvroType("record", fields=(RecordField("", root),)) if root.kind == "union" else root)


def record_type(written: AvroText) -> AvroType:
    """Return the type of messages of a schema: a record, or a union of records.

    Raises:
        SchemaError: it is no schema, or none of a record where it must be one.
    """
    root = read_schema(written.text, written.references)
    if written.field is not None:  # A record is written as its fields are, and nothing else.
        return AvroType("record", fields=(RecordField(written.field, root),))
    for each in root.branches if root.kind == "union" else (root,):
        if each.kind != "record":
            message = f"is no record but of type {each.kind}"
            raise SchemaError(message)
    return root
