"""Events as CloudEvents describes them, in both of its modes.

In structured mode one JSON object has attributes and `data`; in binary mode the value is the data, and the attributes
are headers whose names begin with `ce_`. Both modes may be in one topic: a message is in binary mode if it has the
header `ce_specversion`, and its `content-type` does not begin with application/cloudevents.

Source: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, RAW, TOMBSTONE
from buckets.events.envelope import NOTHING, Opened, ReadFields, paths_in_envelope, read_opened, unopened
from buckets.events.json_members import kind_of, members
from buckets.events.message_fields import header_text, value_schema
from buckets.events.schema import OF_ENVELOPE, EventSchema
from buckets.printable import short_line

_STRUCTURED = "application/cloudevents"
_JSON = "application/cloudevents+json"
_CONTENT_TYPE = "content-type"
_HEADERS = {"datacontenttype": _CONTENT_TYPE}
"""Attributes whose header is called otherwise."""
Flags = np.ndarray


def read_json_events(texts: pa.RecordBatch, is_null: Flags, schema: EventSchema) -> pa.RecordBatch:
    """Read events in JSON, as `envelope.read_opened` does.

    Args:
        texts: messages with `raw` (text), `broken` where it cannot be read, and headers.
        is_null: bool `(rows,)`, which have no value.
        schema: the event schema.
    """
    kinds, is_binary = _modes(texts)
    written = zip(
        texts.column(RAW).to_pylist(), texts.column(BROKEN).to_pylist(), kinds, is_binary, is_null, strict=True
    )
    opened = [_open(text.encode(), reason, kind, binary, null) for text, reason, kind, binary, null in written]
    return _with_headers(read_opened(texts, opened, schema), is_binary, schema)


def _modes(rows: pa.RecordBatch) -> tuple[list[str], Flags]:
    """Return the content type of each message, in lower case, and which are in binary mode."""
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
    """Read events in binary mode whose data are in another format than JSON, as `read_json_events` does.

    Args:
        rows: messages with `raw` (binary) and headers.
        schema: the event schema.
        read: reads values.
    """
    is_null = rows.column(RAW).is_null().to_numpy(zero_copy_only=False)
    _, is_binary = _modes(rows)
    found = read(rows, value_schema(schema))
    why = "ce_specversion: is missing, and in structured mode only JSON is read"
    others = zip(found.column(BROKEN).to_pylist(), is_binary.tolist(), is_null.tolist(), strict=True)
    reasons = [TOMBSTONE if null else reason if binary else why for reason, binary, null in others]
    found = found.set_column(found.schema.get_field_index(BROKEN), BROKEN, pa.array(reasons, pa.string()))
    for path in dict.fromkeys(paths_in_envelope(schema).values()):
        found = found.append_column(f"{OF_ENVELOPE}{path}", pa.nulls(len(found), pa.string()))
    return _with_headers(found, is_binary, schema)


def _with_headers(rows: pa.RecordBatch, is_binary: Flags, schema: EventSchema) -> pa.RecordBatch:
    """Take the attributes of events in binary mode from headers."""
    paths: Iterable[str] = dict.fromkeys(paths_in_envelope(schema).values())
    if not is_binary.any():
        return rows
    reasons: list[str | None] = rows.column(BROKEN).to_pylist()
    for path in paths:
        name = _HEADERS.get(path, f"ce_{path}")
        text, faulty = header_text(rows, name)
        for row, reason in faulty.items():
            if is_binary[row]:
                reasons[row] = reasons[row] or f"{name}: {reason}"
        column = f"{OF_ENVELOPE}{path}"
        there = rows.column(column).cast(pa.string())
        rows = rows.set_column(
            rows.schema.get_field_index(column), column, pc.if_else(pa.array(is_binary), text, there)
        )
    return rows.set_column(rows.schema.get_field_index(BROKEN), BROKEN, pa.array(reasons, pa.string()))
