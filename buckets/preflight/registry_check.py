"""Whether the schema registry answers, and what values and keys are written with has the fields that are needed."""

from collections.abc import Sequence

from buckets.checkpoint.topic_values import AVRO, PROTOBUF, WriterSchema, newest_pinned
from buckets.config.job import Job
from buckets.config.kafka import RegistrySettings
from buckets.config.source import PartOfMessage
from buckets.errors import BucketsError
from buckets.events.arrivals import check_columns, without_column
from buckets.events.debezium import fields_of_rows
from buckets.events.decoded import SchemaError
from buckets.events.envelope import is_whole_key
from buckets.events.field_paths import array_path
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.schema import KEY, OF_KEY
from buckets.kafka.registry import NO_SUBJECT, Registry, check_compatible
from buckets.kafka.topics import fields_in, topics_now
from buckets.printable import counted
from buckets.rules.rule_set import first_rule_set


def check_registry(job: Job, settings: RegistrySettings) -> str:
    """Ask the registry for what values and keys are written with now, and look for the fields that are needed.

    Returns:
        What it says, in words.

    Raises:
        BucketsError: it does not answer as a registry, or what it has does not fit the job.
    """
    source = job.settings.source
    registry, output = Registry(settings, pauses_s=()), job.settings.output
    if output.format != "json":
        check_compatible(registry, output, output.format)
    parts = [part for part in source.registered if fields_in(job, part)]
    if not parts:
        registry.newest(NO_SUBJECT)
        return "answers"
    return "; ".join(_subject(job, registry, topic, part) for topic in topics_now(job) for part in parts)


def _subject(job: Job, registry: Registry, topic: str, part: PartOfMessage) -> str:
    """Look for the fields that are needed in the newest schema of the values or keys of a topic."""
    settings, source, subject = registry.settings, job.settings.source, f"{topic}-{part}"
    newest = registry.newest(subject)
    if newest is None:
        return f"answers; it has no subject {subject} yet"
    is_avro = source.registered[part] == "avro"
    if newest.schema.kind != (AVRO if is_avro else PROTOBUF):
        message = f"registry {settings.url}: version {newest.version:,} of {subject} is of type {newest.schema.kind}"
        raise BucketsError(message)
    try:
        names, reachable = (_avro_names if is_avro else _protobuf_names)(job, newest.schema, part)
        there = list(names)
        if part == "key":
            there = [f"{OF_KEY}{name}" for name in names]
        elif source.envelope == "debezium":
            there = _names_in_rows(newest.schema)
    except SchemaError as error:
        message = f"registry {settings.url}: version {newest.version:,} of {subject} {error}"
        raise BucketsError(message) from None
    if not there and source.envelope == "debezium":
        message = (
            f"registry {settings.url}: version {newest.version:,} of {subject} has no field `after`, in which Debezium "
            "has the row; leave out source.envelope, or let a connector write the topic"
        )
        raise BucketsError(message)
    own = {name for declared in fields_in(job, part).values() for name in declared}
    elsewhere = [name for name in job.event_schema.field_names if name not in own]
    there = list(dict.fromkeys([*reachable, *elsewhere, *there]))
    check_columns(there, job.event_schema, f"of subject {subject}")
    gone = without_column(there, job.event_schema, first_rule_set(job.rules).named_fields)
    found = f"{subject} is at version {newest.version:,}, schema {newest.number:,}: {counted(len(names), 'field')}"
    return f"{found}; {gone}" if gone else found


def _avro_names(job: Job, schema: WriterSchema, part: PartOfMessage) -> tuple[Sequence[str], Sequence[str]]:
    """Return the fields of a schema, and the declared ones that are reached in it, also in an envelope.

    Raises:
        SchemaError: it is none, or a declared field is no single value in it, which no event has.
    """
    from buckets.events.avro.avro_events import NO_VALUES, AvroText, leaves, record_type
    from buckets.events.avro.avro_type import record_fields

    wanted = fields_in(job, part)
    field = KEY if part == "key" and is_whole_key(job.event_schema) else None
    root = record_type(AvroText(schema.text, schema.references, field))
    kinds = {at: leaves(root, at) for at in wanted}
    for at, (name, *_) in wanted.items():
        faults = [NO_VALUES.get(leaf.kind) for leaf in kinds[at]]
        if array_path(at) is None and faults and all(faults):
            message = f"has {name}, which {faults[0]}; take it out of the event schema"
            raise SchemaError(message)
    fields = record_fields(root) if field is None else []
    names = dict.fromkeys(name for each in fields for name in (each.name, *each.aliases))
    return list(names), [name for at, found in kinds.items() if found for name in wanted[at]]


def _protobuf_names(job: Job, schema: WriterSchema, part: PartOfMessage) -> tuple[Sequence[str], Sequence[str]]:
    """Return the fields of the message of a schema that has most of those that are declared, and these, by any name.

    Raises:
        SchemaError: it is none, or a declared field is a list or a map, or an array is none.
    """
    from buckets.events.protobuf.proto_schema import ProtobufText, messages_of, read_schema
    from buckets.events.protobuf.wanted import wanted_fields

    wanted, pinned = fields_in(job, part), newest_pinned(job).protobuf or PinnedProtobuf()
    found = []
    for message in messages_of(read_schema(ProtobufText(schema.text, schema.references, schema.names))):
        fields = wanted_fields(message, list(wanted), pinned.numbers.get(message.full_name, {}))
        found.append((message, {at: field for at, field in fields.items() if field.way or field.fault}))
    if not found:
        fault = "has no message"
        raise SchemaError(fault)
    best, fields = max(found, key=lambda each: len(each[1]))
    for at, field in fields.items():
        if field.fault:
            fault = f"has {wanted[at][0]}, which {field.fault}; take it out of the event schema"
            raise SchemaError(fault)
    names = [field.name for field in best.fields]
    return names, [name for at in fields for name in wanted[at]]


def _names_in_rows(schema: WriterSchema) -> list[str]:
    """Return the fields of the rows of a database, of whose changes a schema is; none where it has no rows."""
    if schema.kind == AVRO:
        from buckets.events.avro.avro_events import imported_fields as avro_fields
        from buckets.events.avro.avro_type import read_schema as read_avro

        root = read_avro(schema.text, schema.references)
        records = root.branches if root.kind == "union" else (root,)
        fields = [field for record in records for field in avro_fields(record, "")]
    else:
        from buckets.events.protobuf.proto_schema import ProtobufText, messages_of, read_schema
        from buckets.events.protobuf.wanted import imported_fields as protobuf_fields

        file = read_schema(ProtobufText(schema.text, schema.references, schema.names))
        names = [message.full_name for message in messages_of(file)]
        fields = [field for name in names for field in protobuf_fields(file, name, ("", ""))]
    return [field.name for field in fields_of_rows(fields)]
