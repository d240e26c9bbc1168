"""Whether the schema registry answers, and what the source's values are written with has the fields that are needed."""

from collections.abc import Sequence

from buckets.checkpoint.pinned_schemas import newest_pinned
from buckets.checkpoint.writer_schemas import AVRO, PROTOBUF, WriterSchema
from buckets.config.job import Job
from buckets.config.kafka import RegistrySettings
from buckets.errors import BucketsError
from buckets.events.arrivals import check_columns
from buckets.events.avro.avro_type import AvroSchemaError, read_fields
from buckets.events.avro.decoder import decoder_of
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.protobuf.proto_schema import ProtobufText, messages_of, read_schema
from buckets.events.protobuf.proto_tokens import ProtobufSchemaError
from buckets.kafka.output_schemas import check_compatible
from buckets.kafka.pinned_fields import fields_in_values
from buckets.kafka.registry import NO_SUBJECT, Registry
from buckets.kafka.topics import topics_now
from buckets.printable import counted
from buckets.rules.rule_set import first_rule_set


def check_registry(job: Job, settings: RegistrySettings) -> str:
    """Ask the registry for what the source's values are written with now, and look for the fields that are needed.

    Returns:
        What it says, in words.

    Raises:
        BucketsError: it does not answer as a registry, or what it has does not fit the job.
    """
    source = job.settings.source
    registry, output = Registry(settings, pauses_s=()), job.settings.output
    if output.format != "json":
        check_compatible(registry, output, output.format)
    if not source.needs_registry:
        registry.newest(NO_SUBJECT)
        return "answers"
    return "; ".join(_subject(job, registry, f"{topic}-value") for topic in topics_now(job))


def _subject(job: Job, registry: Registry, subject: str) -> str:
    """Look for the fields that are needed in the newest schema of a subject."""
    settings, source, newest = registry.settings, job.settings.source, registry.newest(subject)
    if newest is None:
        return f"answers; it has no subject {subject} yet"
    wanted_kind = AVRO if source.format == "avro" else PROTOBUF
    if newest.schema.kind != wanted_kind:
        message = f"registry {settings.url}: version {newest.version:,} of {subject} is of type {newest.schema.kind}"
        raise BucketsError(message)
    try:
        names, reachable = (_avro_names if source.format == "avro" else _protobuf_names)(job, newest.schema)
    except (AvroSchemaError, ProtobufSchemaError) as error:
        message = f"registry {settings.url}: version {newest.version:,} of {subject} {error}"
        raise BucketsError(message) from None
    # In an envelope the fields of the schema are the envelope's.
    there = [*reachable, *job.event_schema.beside_value, *([] if source.envelope == "debezium" else names)]
    there = list(dict.fromkeys(there))
    check_columns(there, job.event_schema, first_rule_set(job.rules).named_fields, f"of subject {subject}")
    return f"{subject} is at version {newest.version:,}, schema {newest.number:,}: {counted(len(names), 'field')}"


def _avro_names(job: Job, schema: WriterSchema) -> tuple[Sequence[str], Sequence[str]]:
    """Return the fields of a schema, and the declared ones that are reached in it, also in an envelope.

    Raises:
        AvroSchemaError: it is none, or a declared field is no single value in it, which no event has.
    """
    wanted = fields_in_values(job)
    names = read_fields(schema.text, schema.references)
    decoder = decoder_of(schema.text, schema.references, tuple(wanted))
    for slot, (at, name) in zip(decoder.slots, wanted.items(), strict=True):
        fault = "" if at in decoder.readers else decoder.fault_of(slot)
        if fault:
            message = f"has {name}, which {fault}; take it out of the event schema"
            raise AvroSchemaError(message)
    return names, [wanted[name] for name in decoder.reached(tuple(wanted))]


def _protobuf_names(job: Job, schema: WriterSchema) -> tuple[Sequence[str], Sequence[str]]:
    """Return the fields of the message of a schema that has most of those that are declared, and these, by any name.

    Raises:
        ProtobufSchemaError: it is none, or a declared field is a list or a map, or an array is none.
    """
    wanted, pinned = fields_in_values(job), newest_pinned(job).protobuf or PinnedProtobuf()
    messages = messages_of(read_schema(ProtobufText(schema.text, schema.references, schema.names)))
    found = [(message, pinned.fields_of(message, list(wanted))) for message in messages]
    if not found:
        message = "has no message"
        raise ProtobufSchemaError(message)
    best, fields = max(found, key=lambda each: len(each[1]))
    for name, field in fields.items():
        if field.fault:
            message = f"has {name}, which {field.fault}; take it out of the event schema"
            raise ProtobufSchemaError(message)
    names = [field.name for field in best.fields]
    return names, [wanted[name] for name in fields]
