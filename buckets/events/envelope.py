"""Envelopes around the values of messages (CloudEvents in both modes), and keys that are written in a format.

The fields of an event lie in one part of an envelope, and others beside it. What an envelope says of its event may be
a field too, whose origin is `envelope.` and the path to it.
"""

import json
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, RAW, TOMBSTONE, field_column, replaced
from buckets.events.connect_schema import ConnectValues
from buckets.events.csv_events import BYTE_ORDER_MARK
from buckets.events.json_events import read_events, read_value
from buckets.events.json_records import kind_of, members
from buckets.events.message_fields import header_text, is_of_key, part_of_schema, value_schema
from buckets.events.schema import KEY, OF_ENVELOPE, OF_KEY, EventSchema
from buckets.printable import short_line


class Opened(NamedTuple):
    """An envelope: the JSON of the fields in it, its own JSON, and why it holds no event, if it holds none."""

    fields: bytes
    envelope: bytes
    reason: str | None = None


NOTHING = b"{}"
ReadFields = Callable[[pa.RecordBatch, EventSchema], pa.RecordBatch]
"""Reads the values of messages, or keys, into the fields of an event schema."""


def unopened(reason: str | None) -> Opened:
    """Return an envelope in which nothing is to be read."""
    return Opened(NOTHING, NOTHING, reason)


def paths_in_envelope(schema: EventSchema) -> dict[str, str]:
    """Return the paths of fields that lie in the envelope, by field."""
    return {
        name: origin.removeprefix(OF_ENVELOPE)
        for name, origin in schema.origins.items()
        if origin.startswith(OF_ENVELOPE)
    }


def read_opened(texts: pa.RecordBatch, opened: Sequence[Opened], schema: EventSchema) -> pa.RecordBatch:
    """Read the opened envelopes of messages: adds the fields of values, and the columns of what lies in envelopes."""
    reasons = [one.reason for one in opened]
    rows = read_events(_with_text(texts, [one.fields for one in opened], reasons), value_schema(schema))
    paths = paths_in_envelope(schema)
    if paths:
        of_envelope = part_of_schema(schema, paths)
        broken = rows.column(BROKEN).to_pylist()
        read = read_events(_with_text(texts, [one.envelope for one in opened], broken), of_envelope)
        for index, path in enumerate(of_envelope.field_names):
            rows = rows.append_column(f"{OF_ENVELOPE}{path}", read.column(field_column(index)))
        rows = replaced(rows, BROKEN, read.column(BROKEN))
    return replaced(rows, RAW, texts.column(RAW))


def _with_text(texts: pa.RecordBatch, written: Sequence[bytes], reasons: Sequence[str | None]) -> pa.RecordBatch:
    rows = replaced(texts, RAW, pa.array(written, pa.binary()).cast(pa.string()))
    return replaced(rows, BROKEN, pa.array(reasons, pa.string()))


_STRUCTURED = "application/cloudevents"
_JSON = "application/cloudevents+json"
_CONTENT_TYPE = "content-type"
_HEADERS = {"datacontenttype": _CONTENT_TYPE}  # Attributes whose header is called otherwise
Flags = np.ndarray


def read_json_events(texts: pa.RecordBatch, is_null: Flags, schema: EventSchema) -> pa.RecordBatch:
    """Read CloudEvents in JSON, as `read_opened` does; `is_null` says which messages have no value."""
    kinds, is_binary = _modes(texts)
    written = zip(
        texts.column(RAW).to_pylist(), texts.column(BROKEN).to_pylist(), kinds, is_binary, is_null, strict=True
    )
    opened = [_open(text.encode(), reason, kind, binary, null) for text, reason, kind, binary, null in written]
    return _with_headers(read_opened(texts, opened, schema), is_binary, schema)


def _modes(rows: pa.RecordBatch) -> tuple[list[str], Flags]:
    content, _ = header_text(rows, _CONTENT_TYPE)
    version, _ = header_text(rows, "ce_specversion")
    kinds = pc.utf8_lower(content.fill_null(""))
    is_structured = pc.starts_with(kinds, _STRUCTURED)
    binary = pc.and_(version.is_valid(), pc.invert(is_structured))
    return kinds.to_pylist(), binary.to_numpy(zero_copy_only=False)


def _open(text: bytes, reason: str | None, kind: str, is_binary: bool, is_null: bool) -> Opened:
    media = kind.partition(";")[0].strip()
    if reason is not None:
        return unopened(reason)
    if is_binary:
        if media and media != "application/json" and not media.endswith("+json"):
            return unopened(f"content-type: {short_line(repr(media))} is not read, only JSON is")
        return Opened(NOTHING if is_null else text, NOTHING)
    if is_null:
        return unopened(TOMBSTONE)
    if media.startswith(_STRUCTURED) and media not in (_STRUCTURED, _JSON):
        return unopened(f"content-type: {short_line(repr(media))} is not read, only {_JSON} is")
    try:
        version, data, encoded = members(text, ("specversion", "data", "data_base64"))
    except ValueError as error:
        return unopened(str(error))
    if version is None:
        return unopened("specversion: is missing or null, and a CloudEvent has it")
    if encoded is not None:
        return unopened("data_base64: bytes are not read, only data in JSON is")
    if data is not None and not data.startswith(b"{"):
        return unopened(f"data: is {kind_of(data)}, and must be an object")
    return Opened(NOTHING if data is None else data, text)


def read_binary_events(rows: pa.RecordBatch, schema: EventSchema, read: ReadFields) -> pa.RecordBatch:
    """Read CloudEvents in binary mode whose data, which `read` reads, are in another format than JSON."""
    is_null = rows.column(RAW).is_null().to_numpy(zero_copy_only=False)
    _, is_binary = _modes(rows)
    found = read(rows, value_schema(schema))
    why = "ce_specversion: is missing, and in structured mode only JSON is read"
    others = zip(found.column(BROKEN).to_pylist(), is_binary.tolist(), is_null.tolist(), strict=True)
    reasons = [TOMBSTONE if null else reason if binary else why for reason, binary, null in others]
    found = replaced(found, BROKEN, pa.array(reasons, pa.string()))
    for path in dict.fromkeys(paths_in_envelope(schema).values()):
        found = found.append_column(f"{OF_ENVELOPE}{path}", pa.nulls(len(found), pa.string()))
    return _with_headers(found, is_binary, schema)


def _with_headers(rows: pa.RecordBatch, is_binary: Flags, schema: EventSchema) -> pa.RecordBatch:
    if not is_binary.any():
        return rows
    reasons: list[str | None] = rows.column(BROKEN).to_pylist()
    for path in dict.fromkeys(paths_in_envelope(schema).values()):
        name = _HEADERS.get(path, f"ce_{path}")
        text, faulty = header_text(rows, name)
        for row, reason in faulty.items():
            if is_binary[row]:
                reasons[row] = reasons[row] or f"{name}: {reason}"
        column = f"{OF_ENVELOPE}{path}"
        there = rows.column(column).cast(pa.string())
        rows = replaced(rows, column, pc.if_else(pa.array(is_binary), text, there))
    return replaced(rows, BROKEN, pa.array(reasons, pa.string()))


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
