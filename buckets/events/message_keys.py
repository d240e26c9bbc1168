"""Keys of messages that are written in a format: they are read as values are, into a part of the event schema."""

import json
from collections.abc import Callable, Collection

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, RAW, field_column
from buckets.events.connect_schema import ConnectValues
from buckets.events.csv_events import BYTE_ORDER_MARK
from buckets.events.json_events import read_events, read_value
from buckets.events.json_records import members
from buckets.events.message_fields import is_of_key, part_of_schema
from buckets.events.schema import KEY, OF_KEY, EventSchema

ReadFields = Callable[[pa.RecordBatch, EventSchema], pa.RecordBatch]
"""Reads the values of messages, or keys, into the fields of an event schema."""
_SCHEMA, _PAYLOAD = "schema", "payload"


def paths_in_keys(schema: EventSchema) -> dict[str, str]:
    """Return the paths of fields that lie in keys, by field; that of a whole key is `key`."""
    return {name: origin.removeprefix(OF_KEY) for name, origin in schema.origins.items() if is_of_key(origin)}


def is_whole_key(schema: EventSchema) -> bool:
    """Return whether keys are one value."""
    return KEY in schema.origins.values()


def with_keys(rows: pa.RecordBatch, schema: EventSchema, read: ReadFields) -> pa.RecordBatch:
    """Read keys into columns that are called like the origins of their fields; `key` itself is left out.

    `read` reads keys, given as `raw` (binary), into the fields of a part of the event schema; their faults go to
    `broken`.
    """
    paths = paths_in_keys(schema)
    if not paths:
        return rows
    keys, is_whole = rows.column(KEY), is_whole_key(schema)
    at = np.cumsum(keys.is_valid().to_numpy(zero_copy_only=False)) - 1
    back = pa.array(at, mask=keys.is_null().to_numpy(zero_copy_only=False))
    part = part_of_schema(schema, paths)
    columns = {name: rows.column(name) for name in rows.schema.names if name != KEY}
    if keys.null_count == len(keys):
        return pa.record_batch(columns | {schema.origins[name]: pa.nulls(len(keys)) for name in paths})
    found = read(pa.record_batch({RAW: keys.drop_null()}), part)
    reasons = found.column(BROKEN).to_pylist()
    said = pa.array([reason and _of_key(reason, part.field_names, is_whole) for reason in reasons], pa.string())
    columns[BROKEN] = pc.coalesce(columns[BROKEN], said.take(back))
    for index, path in enumerate(part.field_names):
        columns[KEY if is_whole else f"{OF_KEY}{path}"] = found.column(field_column(index)).take(back)
    return pa.record_batch(columns)


def _of_key(reason: str, names: Collection[str], is_whole: bool) -> str:
    """Say of a reason that it is one of a key; one of a field begins with its path, or that of an object around it."""
    path, colon, _ = reason.partition(": ")
    if not colon or not any(f"{name}.".startswith(f"{path}.") for name in names):
        return f"{KEY}: {reason}"
    return reason if is_whole else f"{OF_KEY}{reason}"


def read_json_keys(
    texts: pa.RecordBatch, schema: EventSchema, is_whole: bool, is_wrapped: bool, digits: bool = False
) -> pa.RecordBatch:
    """Read keys in JSON: one value if `is_whole`, else objects.

    If `is_wrapped`, an object may be the `payload` beside a `schema`, as Kafka Connect writes it; `digits` is as in
    `ConnectValues`.
    """
    if not is_whole and not is_wrapped:
        return read_events(texts, schema)
    values = ConnectValues((), {name: name for name in schema.field_names if name}, schema, digits)
    written: list[str] = []
    reasons: list[str | None] = texts.column(BROKEN).to_pylist()
    for row, text in enumerate(texts.column(RAW).to_pylist()):
        try:
            written.append(text if reasons[row] else _as_field(text) if is_whole else _payload(text, values))
        except ValueError as error:
            written.append(text)
            reasons[row] = str(error)
    return read_events(
        pa.record_batch({RAW: pa.array(written, pa.string()), BROKEN: pa.array(reasons, pa.string())}), schema
    )


def _as_field(text: str) -> str:
    """Return an object with a value as its only field."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        read_value(text)
    return f'{{"{KEY}":{text}}}'


def _payload(text: str, values: ConnectValues) -> str:
    """Return the payload beside a schema, or the object itself where there is none, with its fields written out."""
    if f'"{_PAYLOAD}"' in text:
        described, payload = members(text.encode(), (_SCHEMA, _PAYLOAD))
        if described is not None and payload is not None:
            return values.written(payload, described).decode()
    try:
        return values.written(text.encode(), None).decode()
    except (json.JSONDecodeError, RecursionError):  # what reads fields says what is wrong
        return text
