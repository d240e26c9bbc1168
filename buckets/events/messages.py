"""Reads messages of topics into the declared fields: values, what is around them, keys, headers and timestamps."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from buckets.events.arrivals import JUDGED, RAW, SOURCE, replaced
from buckets.events.csv_events import as_text
from buckets.events.debezium import read_changes, read_json_changes
from buckets.events.decoded import AVRO, PROTOBUF, PinnedProtobuf, SchemaError, WriterSchema, text_behind_prefix
from buckets.events.json_events import read_events
from buckets.events.message_fields import as_declared, schema_to_read, value_schema, with_message_fields
from buckets.events.message_keys import ReadFields, is_whole_key, read_json_keys, with_keys
from buckets.events.schema import KEY, EventSchema

_TEXT = {"json": as_text, "json_sr": text_behind_prefix}  # By format, what makes text of values


class MessageFormat(Protocol):
    """How the messages of a topic are written, as the settings of a source say it."""

    @property
    def format(self) -> str:
        """How values are written."""

    @property
    def envelope(self) -> str | None:
        """What is around the event in a value."""

    @property
    def decimals(self) -> str | None:
        """What a text in a measure is where no schema says it."""


class PinnedSchemas(Protocol):
    """How a batch reads messages, beside their own schemas."""

    @property
    def avro_schema(self) -> str | None:
        """The schema of values in Avro without the prefix of a registry."""

    @property
    def protobuf(self) -> PinnedProtobuf | None:
        """What is pinned of values and keys in Protobuf."""

    @property
    def key_format(self) -> str:
        """How keys are written."""

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The topics whose events only fill timelines."""


SchemaOf = Callable[[int], WriterSchema | None]  # Returns the schema of a number, None where it is not known


@dataclass(frozen=True)
class TopicMessages:
    """The messages of a topic, read into events."""

    source: MessageFormat
    schema_of: SchemaOf

    def read(self, rows: pa.RecordBatch, schema: EventSchema, pinned: PinnedSchemas) -> pa.RecordBatch:
        """Read messages into the declared fields, as `pinned` says beside their own schemas.

        `rows` have `raw` (binary), and what the event schema needs of `message_fields.columns_beside_value`.
        """
        readable = schema_to_read(schema)
        read = self._values(rows, readable, partial(self._fields, pinned))
        if pinned.key_format != "text":
            read = with_keys(read, readable, partial(self._keys, pinned, is_whole_key(readable)))
        (read,) = as_declared([with_message_fields(read, readable)], schema)
        if pinned.unjudged:
            sources = read.column(SOURCE).dictionary_encode()
            judged = [topic_of(source) not in pinned.unjudged for source in sources.dictionary.to_pylist()]
            read = read.append_column(JUDGED, pa.array(judged, pa.bool_()).take(sources.indices))
        return read

    def _values(self, rows: pa.RecordBatch, schema: EventSchema, read: ReadFields) -> pa.RecordBatch:
        if self.source.envelope is None:
            return read(rows, value_schema(schema))
        if self.source.format not in _TEXT:
            return read_changes(rows, schema, read)
        is_null = rows.column(RAW).is_null().to_numpy(zero_copy_only=False)
        texts = _TEXT[self.source.format](_filled(rows))
        return read_json_changes(texts, is_null, schema, digits=self.source.decimals == "string")

    def _fields(self, pinned: PinnedSchemas, rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
        rows = _filled(rows)
        if self.source.format in _TEXT:
            return read_events(_TEXT[self.source.format](rows), schema)
        if pinned.avro_schema is not None:
            from buckets.events.avro import avro_events

            return avro_events.read_plain(rows, schema, WriterSchema(AVRO, pinned.avro_schema))
        if pinned.protobuf is not None and pinned.protobuf.text is not None:
            from buckets.events.protobuf import protobuf_events

            written = WriterSchema(PROTOBUF, pinned.protobuf.text)
            return protobuf_events.read_plain(rows, schema, written, pinned.protobuf.message)
        return self._registered(self.source.format, pinned, rows, schema)

    def _keys(self, pinned: PinnedSchemas, is_whole: bool, rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
        if pinned.key_format in _TEXT:
            is_wrapped, digits = self.source.envelope == "debezium", self.source.decimals == "string"
            return read_json_keys(_TEXT[pinned.key_format](rows), schema, is_whole, is_wrapped, digits)
        return self._registered(pinned.key_format, pinned, rows, schema, KEY if is_whole else None)

    def _registered(
        self,
        written_in: str,
        pinned: PinnedSchemas,
        rows: pa.RecordBatch,
        schema: EventSchema,
        field: str | None = None,
    ) -> pa.RecordBatch:
        """Read messages whose prefix has the number of their schema; with `field` those in Avro are that field."""
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
