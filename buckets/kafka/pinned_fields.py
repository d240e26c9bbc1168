"""The numbers of fields in Protobuf, as a start of a job finds them by their names, for when they are renamed."""

from buckets.checkpoint.pinned_schemas import newest_pinned
from buckets.checkpoint.writer_schemas import PROTOBUF
from buckets.config.job import Job
from buckets.events.debezium import AFTER
from buckets.events.message_fields import value_schema
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.protobuf.proto_schema import ProtobufText, read_schema
from buckets.events.protobuf.proto_tokens import ProtobufSchemaError
from buckets.kafka.registry import Registry, RegistryAway
from buckets.kafka.topics import topics_now


def pinned_fields(job: Job) -> PinnedProtobuf | None:
    """Return by what values in Protobuf are read from now on, beside their own schemas; None of other formats.

    The newest schemas of the topics add to what batches had so far. A registry that does not answer now is no reason to
    wait: it is asked again as soon as a message comes whose schema the checkpoint does not know.

    Raises:
        BucketsError: the registry answers something else, or refuses the login.
    """
    source, kafka = job.settings.source, job.settings.kafka
    if source.format != "protobuf" or source.schema_file is not None:
        return job.protobuf
    pinned = newest_pinned(job).protobuf or PinnedProtobuf()
    assert kafka is not None
    assert kafka.registry is not None
    registry, names = Registry(kafka.registry, pauses_s=()), fields_in_values(job)
    for topic in topics_now(job):
        try:
            newest = registry.newest(f"{topic}-value")
            if newest is not None and newest.schema.kind == PROTOBUF:
                schema = newest.schema
                file = read_schema(ProtobufText(schema.text, schema.references, schema.names))
                pinned = pinned.with_schema(file, list(names))
        except (RegistryAway, ProtobufSchemaError):
            continue
    return pinned


def fields_in_values(job: Job) -> dict[str, str]:
    """Return the declared fields that lie in values, by the name or path at which they lie there."""
    around = AFTER if job.settings.source.envelope == "debezium" else ""
    return {f"{around}{name}": name for name in value_schema(job.event_schema).field_names}
