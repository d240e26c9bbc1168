"""Reads values and keys of a source topic as the configuration says they are written, from the topic or its audit.

The schemas that messages were written with are kept, so that a registry is asked for each only once.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from buckets.checkpoint.batch_records import BatchRecords, NumberedRecords
from buckets.checkpoint.record_files import RecordFiles
from buckets.checkpoint.topic_generations import topic_of
from buckets.config.job import Job
from buckets.config.source import KeyFormat, SourceSettings
from buckets.events.arrivals import JUDGED, RAW, SOURCE
from buckets.events.csv_events import as_text
from buckets.events.debezium import read_changes, read_json_changes
from buckets.events.decoded import SchemaError, text_behind_prefix
from buckets.events.envelope import (
    ReadFields,
    is_whole_key,
    read_binary_events,
    read_json_events,
    read_json_keys,
    with_keys,
)
from buckets.events.json_events import read_events
from buckets.events.message_fields import value_schema, with_made_ids, with_message_fields, without_made_id
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.schema import KEY, EventSchema
from buckets.files import write_first

AVRO, PROTOBUF = "AVRO", "PROTOBUF"


@dataclass(frozen=True)
class WriterSchema:
    """A schema of a registry."""

    kind: str  # as registries name it: AVRO, JSON or PROTOBUF
    text: str  # as it is written
    references: tuple[str, ...] = ()  # schemas whose types it names, each after those that it names itself
    names: tuple[str, ...] = ()  # the names by which they are imported


class WriterSchemas:
    """The schemas that a checkpoint knows; workers of a job write them too, each whole or not at all."""

    def __init__(self, checkpoint: Path) -> None:
        """Write nothing yet."""
        self._files = RecordFiles(checkpoint)
        self._records = NumberedRecords(self._files, self._files.folder / "schemas")
        self._known: dict[int, tuple[WriterSchema, int]] = {}

    def of(self, number: int, batch_id: int | None) -> WriterSchema | None:
        """Return a schema as a batch has known it; None if it has not.

        Args:
            number: of the schema.
            batch_id: the batch; None for the newest.

        Raises:
            BucketsError: its record is damaged.
        """
        if number not in self._known:
            written = self._records.read_if_there(number, _schema_of)
            if written is None:
                return None
            self._known[number] = written
        schema, first_batch = self._known[number]
        return schema if batch_id is None or batch_id >= first_batch else None

    def numbers(self) -> list[int]:
        """Return the numbers of those that some batch has known. Cost: of a listing."""
        return self._records.numbers()

    def is_known(self, number: int) -> bool:
        """Return whether some batch has known a schema."""
        return self.of(number, None) is not None

    def keep(self, number: int, schema: WriterSchema, batch_id: int) -> None:
        """Write a schema that a batch is the first to know; what is written already stays."""
        file = self._records.file(number)
        write_first(file, self._files.sealed(file, asdict(schema) | {"first_batch": batch_id}))


def _schema_of(record: Mapping[str, Any]) -> tuple[WriterSchema, int]:
    names = tuple(record.get("names", ()))
    return WriterSchema(record["kind"], record["text"], tuple(record["references"]), names), int(record["first_batch"])


@lru_cache(maxsize=8)
def schemas_in(checkpoint: Path) -> WriterSchemas:
    """Return the schemas of a checkpoint, as this process has read them so far."""
    return WriterSchemas(checkpoint)


Ask = Callable[[int], WriterSchema | None]  # Asks a registry for the schema of a number; None if it does not know it


@dataclass(frozen=True)
class TopicValues:
    """What reads values, and keys where fields lie in them."""

    source: SourceSettings  # the topic
    checkpoint: Path  # of the job; it has the schemas that are known
    # asks the registry for others; without it only those that are known are, as for what was read before
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


_TEXT = {"json": as_text, "json_sr": text_behind_prefix}  # By format, what makes text of values
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


def pinned_schemas(job: Job) -> Callable[[int], PinnedSchemas]:
    """Return what gives the pinned schemas of a batch, and which topics were not judged.

    Raises:
        BucketsError: terms of the checkpoint are gone, or damaged.
    """
    terms = BatchRecords(job.checkpoint).all_terms()
    first = list(terms)
    return lambda batch_id: terms[first[bisect_right(first, batch_id) - 1]]


def newest_pinned(job: Job) -> PinnedSchemas:
    """Return the pinned schemas of the newest batch; those of the job where there is none yet. Raises likewise."""
    source = job.settings.source
    if "protobuf" not in (source.format, source.key_format):
        return job
    terms = BatchRecords(job.checkpoint).all_terms()
    return terms[max(terms)] if terms else job
