"""Messages in Avro as events: each by the schema that it was written with.

Where a registry keeps the schemas, the prefix of a message (`wire_format`) has the number of its schema. All
messages of one schema are decoded together; then the rows are brought back into their order.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.events.arrivals import RAW
from buckets.events.avro.avro_type import AvroSchemaError
from buckets.events.avro.decoder import Decoder, decoder_of
from buckets.events.decoded import Decoded, UnknownSchema, by_schema, with_fields
from buckets.events.schema import EventSchema
from buckets.events.wire_format import PREFIX_BYTES, MessageBytes

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

    def decode(messages: MessageBytes, of_schema: Int64s, number: int) -> Iterable[tuple[Int64s, Decoded]]:
        start, end = messages.begin[of_schema] + PREFIX_BYTES, messages.end[of_schema]
        try:
            decoded = _decoder(schema_of(number), schema).decode(messages.data, start, end, schema, PREFIX_BYTES)
        except AvroSchemaError as error:
            raise UnknownSchema(str(error)) from error
        return [(of_schema, decoded)]

    return by_schema(rows, schema, decode)


def read_plain(rows: pa.RecordBatch, schema: EventSchema, written: AvroText) -> pa.RecordBatch:
    """Read messages without a prefix, all of one schema, as `read_registered` does.

    Raises:
        AvroSchemaError: it is no schema of a record.
    """
    messages = MessageBytes.of(rows.column(RAW))
    decoded = _decoder(written, schema).decode(messages.data, messages.begin, messages.end, schema)
    return with_fields(rows, schema, [(np.arange(rows.num_rows), decoded)])


def _decoder(written: AvroText, schema: EventSchema) -> Decoder:
    return decoder_of(written.text, written.references, tuple(schema.field_names), written.field)
