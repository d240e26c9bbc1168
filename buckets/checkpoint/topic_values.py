"""Reads values and keys of a source topic as the configuration says they are written, from the topic or its audit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from buckets.checkpoint.topic_generations import topic_of
from buckets.checkpoint.writer_schemas import AVRO, PROTOBUF, WriterSchema, WriterSchemas, schemas_in
from buckets.config.source import KeyFormat, SourceSettings
from buckets.events.arrivals import JUDGED, RAW, SOURCE
from buckets.events.cloud_events import read_binary_events, read_json_events
from buckets.events.debezium import read_changes, read_json_changes
from buckets.events.decoded import SchemaError
from buckets.events.envelope import ReadFields
from buckets.events.json_events import read_events
from buckets.events.made_ids import with_made_ids
from buckets.events.message_fields import value_schema, with_message_fields, without_made_id
from buckets.events.message_keys import is_whole_key, read_json_keys, with_keys
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.schema import KEY, EventSchema
from buckets.events.text_lines import as_text
from buckets.events.wire_format import text_behind_prefix

Ask = Callable[[int], WriterSchema | None]
"""Asks a registry for the schema of a number; None if it does not know it."""


@dataclass(frozen=True)
class TopicValues:
    """What reads values, and keys where fields lie in them.

    Attributes:
        source: the topic.
        checkpoint: of the job; it has the schemas that are known.
        ask: asks the registry for others; without it only those that are known are, as for what was read before.
    """

    source: SourceSettings
    checkpoint: Path
    ask: Ask | None = None

    def read(
        self, rows: pa.RecordBatch, schema: EventSchema, batch_id: int | None, pinned: "PinnedSchemas"
    ) -> pa.RecordBatch:
        """Read messages into the declared fields.

        Args:
            rows: with `raw` (binary), and what the event schema needs of `message_fields.columns_beside_value`.
            schema: the event schema.
            batch_id: the batch that they are of; None where it is not known.
            pinned: how values of the batch are read, beside their own schemas: its terms, or the job.

        Raises:
            BucketsError: the registry cannot be asked.
        """
        readable = without_made_id(schema)
        read = self._values(rows, readable, partial(self._fields, batch_id, pinned))
        if pinned.key_format != "text":
            read = with_keys(read, readable, partial(self._keys, batch_id, pinned, is_whole_key(readable)))
        (read,) = with_made_ids([with_message_fields(read, readable)], schema)
        return _with_judged(read, pinned.unjudged) if pinned.unjudged else read

    def _values(self, rows: pa.RecordBatch, schema: EventSchema, read: ReadFields) -> pa.RecordBatch:
        """Read what lies in values, and in an envelope around them."""
        envelope = self.source.envelope
        if envelope is None:
            return read(rows, value_schema(schema))
        if self.source.format in _TEXT:
            is_null = rows.column(RAW).is_null().to_numpy(zero_copy_only=False)
            texts = _TEXT[self.source.format](_filled(rows))
            if envelope == "debezium":
                return read_json_changes(texts, is_null, schema, digits=self.source.decimals == "string")
            return read_json_events(texts, is_null, schema)
        return _OF_RECORDS[envelope](rows, schema, read)

    def _fields(
        self, batch_id: int | None, pinned: "PinnedSchemas", rows: pa.RecordBatch, schema: EventSchema
    ) -> pa.RecordBatch:
        """Read values into fields."""
        rows = _filled(rows)
        if self.source.format in _TEXT:
            return read_events(_TEXT[self.source.format](rows), schema)
        if pinned.avro_schema is not None:
            from buckets.events.avro import avro_events
            from buckets.events.avro.avro_events import AvroText

            return avro_events.read_plain(rows, schema, AvroText(pinned.avro_schema))
        if pinned.protobuf is not None and pinned.protobuf.text is not None:
            from buckets.events.protobuf import protobuf_events
            from buckets.events.protobuf.proto_schema import ProtobufText

            return protobuf_events.read_plain(rows, schema, ProtobufText(pinned.protobuf.text), pinned.protobuf.message)
        schemas = _Schemas(schemas_in(self.checkpoint), batch_id, self.ask)
        return _registered(rows, schema, self.source.format, schemas, pinned)

    def _keys(
        self,
        batch_id: int | None,
        pinned: "PinnedSchemas",
        is_whole: bool,
        rows: pa.RecordBatch,
        schema: EventSchema,
    ) -> pa.RecordBatch:
        """Read keys into fields."""
        if pinned.key_format in _TEXT:
            is_wrapped, digits = self.source.envelope == "debezium", self.source.decimals == "string"
            return read_json_keys(_TEXT[pinned.key_format](rows), schema, is_whole, is_wrapped, digits)
        schemas = _Schemas(schemas_in(self.checkpoint), batch_id, self.ask, KEY if is_whole else None)
        return _registered(rows, schema, pinned.key_format, schemas, pinned)


class PinnedSchemas(Protocol):
    """How values are read, beside their own schemas."""

    @property
    def avro_schema(self) -> str | None:
        """The schema of values in Avro without the prefix of a registry."""

    @property
    def protobuf(self) -> PinnedProtobuf | None:
        """What is pinned of values and keys in Protobuf."""

    @property
    def key_format(self) -> KeyFormat:
        """How keys are written."""

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The topics whose events only fill timelines."""


def _with_judged(rows: pa.RecordBatch, unjudged: Sequence[str]) -> pa.RecordBatch:
    """Say of each message whether its topic is judged."""
    sources = rows.column(SOURCE).dictionary_encode()
    judged = [topic_of(source) not in unjudged for source in sources.dictionary.to_pylist()]
    return rows.append_column(JUDGED, pa.array(judged, pa.bool_()).take(sources.indices))


def _filled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages with an empty value where they have none."""
    return rows.set_column(rows.schema.get_field_index(RAW), RAW, rows.column(RAW).fill_null(b""))


_TEXT = {"json": as_text, "json_sr": text_behind_prefix}
"""By format, what makes text of values."""
_OF_RECORDS = {"debezium": read_changes, "cloudevents": read_binary_events}
"""By envelope, what reads messages in formats that have records."""


@dataclass(frozen=True)
class _Schemas:
    """The schemas as a batch knows them; with `field` what is read by one of Avro is that field alone."""

    known: WriterSchemas
    batch_id: int | None
    ask: Ask | None
    field: str | None = None

    def of(self, number: int, kind: str) -> WriterSchema:
        """Return the schema of a number.

        Raises:
            SchemaError: nobody knows it, or it is of another kind.
        """
        schema = self.known.of(number, self.batch_id)
        if schema is None and self.ask is not None and not self.known.is_known(number):
            assert self.batch_id is not None
            schema = self.ask(number)
            if schema is not None:
                self.known.keep(number, schema, self.batch_id)
        if schema is None:
            message = "is not in the registry"
            raise SchemaError(message)
        if schema.kind != kind:
            message = f"is of type {schema.kind}, not {kind}"
            raise SchemaError(message)
        return schema


def _registered(
    rows: pa.RecordBatch, schema: EventSchema, written_in: str, schemas: _Schemas, pinned: PinnedSchemas
) -> pa.RecordBatch:
    """Read what has the number of its schema in its prefix."""
    if written_in == "protobuf":
        return _registered_protobuf(rows, schema, schemas, pinned.protobuf)
    from buckets.events.avro.avro_events import AvroText, read_registered

    def schema_of(number: int) -> AvroText:
        found = schemas.of(number, AVRO)
        return AvroText(found.text, found.references, schemas.field)

    return read_registered(rows, schema, schema_of)


def _registered_protobuf(
    rows: pa.RecordBatch, schema: EventSchema, schemas: _Schemas, pinned: PinnedProtobuf | None
) -> pa.RecordBatch:
    from buckets.events.protobuf.proto_schema import ProtobufText
    from buckets.events.protobuf.protobuf_events import read_registered

    def schema_of(number: int) -> ProtobufText:
        found = schemas.of(number, PROTOBUF)
        return ProtobufText(found.text, found.references, found.names)

    return read_registered(rows, schema, schema_of, () if pinned is None else pinned.pinned_numbers)
