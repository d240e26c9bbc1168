"""Reads messages of topics into the declared fields: values, their envelopes, keys, headers and timestamps.

Keys with a declared format are read like values, into a part of the event schema.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, JUDGED, RAW, SOURCE, field_column, replaced
from buckets.events.connect_schema import ConnectValues
from buckets.events.csv_events import BYTE_ORDER_MARK, as_text
from buckets.events.debezium import ReadFields, read_changes, read_json_changes
from buckets.events.decoded import AVRO, PROTOBUF, PinnedProtobuf, SchemaError, WriterSchema, text_behind_prefix
from buckets.events.json_events import read_events, read_value
from buckets.events.json_records import members
from buckets.events.message_fields import (
    as_declared,
    is_of_key,
    part_of_schema,
    schema_to_read,
    value_schema,
    with_message_fields,
)
from buckets.events.schema import KEY, OF_KEY, EventSchema, KeyFormat

_TEXT = {"json": as_text, "json_sr": text_behind_prefix}  # By format, the function that turns values into text


class PinnedSchemas(Protocol):
    """The schemas that a batch uses besides those of its messages."""

    avro_schema: str | None  # the schema of values in Avro without the prefix of a registry
    protobuf: PinnedProtobuf | None  # the pinned schemas of values and keys in Protobuf
    key_format: KeyFormat  # how keys are written
    unjudged: tuple[str, ...]  # the topics whose events only fill timelines


SchemaOf = Callable[[int], WriterSchema | None]  # Returns the schema with a number, None if unknown


@dataclass(frozen=True)
class TopicMessages:
    """Reads the messages of a topic into events, by the formats in the settings of a source."""

    format: str  # how values are written
    envelope: str | None  # the kind of envelope around the event in a value
    decimals: str | None  # how to read a text in a measure without a schema
    schema_of: SchemaOf

    def read(self, rows: pa.RecordBatch, schema: EventSchema, pinned: PinnedSchemas) -> pa.RecordBatch:
        """Read messages into the declared fields, with `pinned` for what their own schemas do not say.

        `rows` have `raw` (binary), and those of `message_fields.columns_beside_value` that the event schema needs.
        """
        readable = schema_to_read(schema)
        read = self._values(rows, readable, partial(self._fields, pinned))
        if pinned.key_format != "text":
            read = _with_keys(read, readable, partial(self._keys, pinned, is_whole_key(readable)))
        (read,) = as_declared([with_message_fields(read, readable)], schema)
        if pinned.unjudged:
            sources = read.column(SOURCE).dictionary_encode()
            judged = [topic_of(source) not in pinned.unjudged for source in sources.dictionary.to_pylist()]
            read = read.append_column(JUDGED, pa.array(judged, pa.bool_()).take(sources.indices))
        return read

    def _values(self, rows: pa.RecordBatch, schema: EventSchema, read: ReadFields) -> pa.RecordBatch:
        if self.envelope is None:
            return read(rows, value_schema(schema))
        if self.format not in _TEXT:
            return read_changes(rows, schema, read)
        is_null = rows.column(RAW).is_null().to_numpy(zero_copy_only=False)
        texts = _TEXT[self.format](_filled(rows))
        return read_json_changes(texts, is_null, schema, digits=self.decimals == "string")

    def _fields(self, pinned: PinnedSchemas, rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
        rows = _filled(rows)
        if self.format in _TEXT:
            return read_events(_TEXT[self.format](rows), schema)
        if pinned.avro_schema is not None:
            from buckets.events.avro import avro_events

            return avro_events.read_plain(rows, schema, WriterSchema(AVRO, pinned.avro_schema))
        if pinned.protobuf is not None and pinned.protobuf.text is not None:
            from buckets.events.protobuf import protobuf_events

            written = WriterSchema(PROTOBUF, pinned.protobuf.text)
            return protobuf_events.read_plain(rows, schema, written, pinned.protobuf.message)
        return self._registered(self.format, pinned, rows, schema)

    def _keys(self, pinned: PinnedSchemas, is_whole: bool, rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
        if pinned.key_format in _TEXT:
            is_wrapped, digits = self.envelope == "debezium", self.decimals == "string"
            return _read_json_keys(_TEXT[pinned.key_format](rows), schema, is_whole, is_wrapped, digits)
        return self._registered(pinned.key_format, pinned, rows, schema, KEY if is_whole else None)

    def _registered(
        self,
        written_in: str,
        pinned: PinnedSchemas,
        rows: pa.RecordBatch,
        schema: EventSchema,
        field: str | None = None,
    ) -> pa.RecordBatch:
        """Read messages with a schema number in the prefix; with `field`, a value in Avro is that field itself."""
        if written_in == "protobuf":
            from buckets.events.protobuf import protobuf_events

            numbers = () if pinned.protobuf is None else pinned.protobuf.pinned_numbers
            return protobuf_events.read_registered(rows, schema, partial(self._schema, PROTOBUF), numbers)
        from buckets.events.avro import avro_events

        return avro_events.read_registered(rows, schema, partial(self._schema, AVRO), field)

    def _schema(self, kind: str, number: int) -> WriterSchema:
        schema = self.schema_of(number)
        if schema is None or schema.kind != kind:
            message = "is not in the registry" if schema is None else f"is of type {schema.kind}, not {kind}"
            raise SchemaError(message)
        return schema


def topic_of(source: str) -> str:
    """Return the topic of a value of the source column, such as `payments#2[0]`."""
    return source.rpartition("[")[0].partition("#")[0]


def _filled(rows: pa.RecordBatch) -> pa.RecordBatch:
    return replaced(rows, RAW, rows.column(RAW).fill_null(b""))


def paths_in_keys(schema: EventSchema) -> dict[str, str]:
    """Return the paths of fields inside keys, by field; a whole key has the path `key`."""
    return {name: origin.removeprefix(OF_KEY) for name, origin in schema.origins.items() if is_of_key(origin)}


def is_whole_key(schema: EventSchema) -> bool:
    """Return whether keys are single values."""
    return KEY in schema.origins.values()


def _with_keys(rows: pa.RecordBatch, schema: EventSchema, read: ReadFields) -> pa.RecordBatch:
    """Read keys into columns named like the origins of their fields, and drop `key` itself.

    `read` reads keys, passed as `raw` (binary), into a part of the event schema; their faults go to `broken`.
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
    """Prefix a reason with `key`; one that begins with a field's path with `key.`, or not if keys are one value."""
    path, colon, _ = reason.partition(": ")
    if not colon or not any(f"{name}.".startswith(f"{path}.") for name in names):
        return f"{KEY}: {reason}"
    return reason if is_whole else f"{OF_KEY}{reason}"


def _read_json_keys(
    texts: pa.RecordBatch, schema: EventSchema, is_whole: bool, is_wrapped: bool, digits: bool
) -> pa.RecordBatch:
    """Read keys in JSON: single values if `is_whole`, else objects.

    If `is_wrapped`, an object may be the `payload` beside a `schema`, as Kafka Connect writes it; for `digits` see
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
    rows = pa.record_batch({RAW: pa.array(written, pa.string()), BROKEN: pa.array(reasons, pa.string())})
    return read_events(rows, schema)


def _as_field(text: str) -> str:
    """Return an object with the value as its only field."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        read_value(text)
    return f'{{"{KEY}":{text}}}'


def _payload(text: str, values: ConnectValues) -> str:
    """Return the payload beside a schema, or the object itself if it has none, with its fields converted to text."""
    if '"payload"' in text:
        described, payload = members(text.encode(), ("schema", "payload"))
        if described is not None and payload is not None:
            return values.written(payload, described).decode()
    try:
        return values.written(text.encode(), None).decode()
    except (json.JSONDecodeError, RecursionError):  # what reads fields says what is wrong
        return text
