"""Messages in Protobuf as events: each by the schema that it was written with.

Where a registry keeps the schemas, the prefix of a message has the number of its schema, and behind it lie indexes that
say which message of the schema it is:

    00 | 00 00 00 07 | 04 02 00        two indexes: of the second message of the file (1) the first one in it (0)
    00 | 00 00 00 07 | 00              the first message of the file, for short

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.events.arrivals import RAW
from buckets.events.decoded import Decoded, by_schema, nothing_of, with_fields
from buckets.events.protobuf.decoder import PinnedNumbers, decoder_at, decoder_named
from buckets.events.protobuf.proto_schema import ProtobufText
from buckets.events.protobuf.proto_tokens import ProtobufSchemaError
from buckets.events.protobuf.wire import read_indexes
from buckets.events.schema import EventSchema
from buckets.events.wire_format import PREFIX_BYTES, MessageBytes
from buckets.read_only import read_only

Int64s = npt.NDArray[np.int64]
SchemaOf = Callable[[int], ProtobufText]
"""Returns the schema of a number, or raises UnknownSchema."""
_NO_INDEXES = "has no indexes of a message behind its prefix"


def read_registered(
    rows: pa.RecordBatch, schema: EventSchema, schema_of: SchemaOf, pinned: PinnedNumbers = ()
) -> pa.RecordBatch:
    """Read messages with the prefix of a registry into the declared fields.

    Args:
        rows: with `raw` (binary).
        schema: the event schema.
        schema_of: returns the schema of a number.
        pinned: the numbers that declared fields had before.

    Returns:
        The rows as `with_fields` leaves them.
    """

    def decode(messages: MessageBytes, of_schema: Int64s, number: int) -> Iterable[tuple[Int64s, Decoded]]:
        return _of_schema(messages, of_schema, number, schema_of(number), schema, pinned)

    return by_schema(rows, schema, decode)


def _of_schema(
    messages: MessageBytes,
    of_schema: Int64s,
    number: int,
    written: ProtobufText,
    schema: EventSchema,
    pinned: PinnedNumbers,
) -> Iterator[tuple[Int64s, Decoded]]:
    """Yield what is decoded of the rows of each message of a schema."""
    indexed_at, end = messages.begin[of_schema] + PREFIX_BYTES, messages.end[of_schema]
    keys, begin = np.empty(len(of_schema), np.int64), np.zeros(len(of_schema), np.int64)
    read_indexes(read_only(messages.data), read_only(indexed_at), read_only(end), keys, begin)
    for key in np.unique(keys).tolist():
        chosen = np.flatnonzero(keys == key)
        of_message = of_schema[chosen]
        if key < 0:
            yield of_message, nothing_of(len(chosen), schema, _NO_INDEXES)
            continue
        first = int(chosen[0])
        indexes = _indexes(messages.data[indexed_at[first] : begin[first]].tobytes())
        try:
            decoder = decoder_at(written, indexes, tuple(schema.field_names), pinned)
            prefix = begin[chosen] - messages.begin[of_message]
            yield of_message, decoder.decode(messages.data, begin[chosen], end[chosen], prefix, schema)
        except ProtobufSchemaError as error:
            yield of_message, nothing_of(len(chosen), schema, f"schema {number} {error}")


def _indexes(content: bytes) -> tuple[int, ...]:
    """Return indexes that are known to be whole; the first number says how many there are."""
    numbers, number, shift = [], 0, 0
    for byte in content:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number >> 1 ^ -(number & 1))
            number = shift = 0
    return tuple(numbers[1:])


def read_plain(
    rows: pa.RecordBatch, schema: EventSchema, written: ProtobufText, message: str | None = None
) -> pa.RecordBatch:
    """Read messages without a prefix, all of one type, as `read_registered` does.

    Args:
        rows: with `raw` (binary).
        schema: the event schema.
        written: the schema of the messages.
        message: the name of their type; None where the schema has only one.

    Raises:
        ProtobufSchemaError: it is no schema, or has no such message.
    """
    messages = MessageBytes.of(rows.column(RAW))
    decoder = decoder_named(written, message, tuple(schema.field_names))
    none = np.zeros(rows.num_rows, np.int64)
    decoded = decoder.decode(messages.data, messages.begin, messages.end, none, schema)
    return with_fields(rows, schema, [(np.arange(rows.num_rows), decoded)])
