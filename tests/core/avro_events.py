"""Messages in Avro for tests: what is written by the vendor's encoder, and what the vendor's decoder reads of it."""

import io
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from buckets.events import conversion
from buckets.events.arrivals import BROKEN, POSITION, RAW, SOURCE, SOURCE_ORDER, field_column
from buckets.events.avro.avro_events import read_plain
from buckets.events.decoded import WriterSchema
from buckets.events.schema import EventSchema

FAULTY = object()
"""What a value is that has no text."""


def encoded(schema: Any, record: Mapping[str, Any]) -> bytes:
    """A record as the vendor's encoder writes it; `schema` is parsed by `fastavro.parse_schema`, or a mapping."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, dict(record))
    return out.getvalue()


def rows_of(messages: Sequence[bytes]) -> pa.RecordBatch:
    """Messages as a source delivers them."""
    count = len(messages)
    return pa.record_batch(
        {
            RAW: pa.array(messages, pa.binary()),
            SOURCE: pa.array(["payments[0]"] * count, pa.string()),
            SOURCE_ORDER: pa.array([0] * count, pa.int64()),
            POSITION: pa.array(range(count), pa.int64()),
        }
    )


def declared(names: Sequence[str]) -> EventSchema:
    """An event schema of text fields."""
    first, second, *others = names
    attributes = dict.fromkeys(others, "string")
    time = {"field": second, "unit": "iso8601"}
    return EventSchema.model_validate({"event_id": first, "event_time": time, "attributes": attributes})


def texts_of(schema: Mapping[str, Any], names: Sequence[str], messages: Sequence[bytes]) -> list[dict[str, Any] | None]:
    """The fields of each message as text; `FAULTY` for those without one, None for a message that is broken as such."""
    of_events = declared(names)
    read = read_plain(rows_of(messages), of_events, WriterSchema("AVRO", json.dumps(schema)))
    rows: list[dict[str, Any] | None] = [{} for _ in messages]
    for index, name in enumerate(of_events.field_names):
        text, faults = conversion.attributes(read.column(field_column(index)), "string")
        for row, value in enumerate(text.to_pylist()):
            rows[row][name] = FAULTY if row in faults else value
    for row, reason in enumerate(read.column(BROKEN).to_pylist()):
        if reason is not None:
            name = reason.partition(":")[0]
            if reason.startswith("broken Avro"):
                rows[row] = None
            else:
                rows[row][name] = faulty(reason)
    return rows


def faulty(reason: str) -> Any:
    """What a value with a fault is: floating point as text, as the reason shows it."""
    return reason.split()[1] if " is floating point " in reason else FAULTY


def vendor_reads(parsed: Any, message: bytes) -> tuple[dict[str, Any], int]:
    """What the vendor's decoder reads of a message, and how many bytes it leaves."""
    source = io.BytesIO(message)
    record = fastavro.schemaless_reader(source, parsed, None)
    return record, len(message) - source.tell()


def is_same(text: Any, value: Any) -> bool:
    """Whether a text says what the vendor's decoder has read."""
    match value:
        case None:
            return text is None
        case bool():
            return text in (FAULTY, None, str(value).lower())  # no text, but a time that is no time
        case list() | dict():
            return text in (FAULTY, None)  # None where another field was found faulty before
        case bytes():
            try:
                return text == value.decode()
            except UnicodeDecodeError:
                return text is FAULTY
        case int():
            return text == str(value)
        case float():
            # None where another field was found faulty before. The shortest text of 32 bits is another number in 64.
            return text is None or value != value or value == float(text) or value == np.float32(text)
        case Decimal():
            return Decimal(text) == value
        case datetime():
            return text == value.isoformat(sep=" ", timespec="microseconds").replace("+00:00", "Z")
        case date():
            return text == value.isoformat()
        case time():
            return text in (value.isoformat(timespec="microseconds"), value.isoformat(timespec="milliseconds"))
        case uuid.UUID():
            return uuid.UUID(text) == value
    return text == value
