"""The numbers of fields in Protobuf, as a start of a job finds them by their names, for when they are renamed."""

from buckets.checkpoint.pinned_schemas import newest_pinned
from buckets.checkpoint.writer_schemas import PROTOBUF
from buckets.config.job import Job
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.protobuf.proto_schema import ProtobufText, read_schema
from buckets.events.protobuf.proto_tokens import ProtobufSchemaError
from buckets.kafka.registry import Registry, RegistryAway


def pinned_fields(job: Job) -> PinnedProtobuf | None:
    """Return by what values in Protobuf are read from now on, beside their own schemas; None of other formats.

    The newest schema of the topic adds to what batches had so far. A registry that does not answer now is no reason to
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
    try:
        newest = Registry(kafka.registry, pauses_s=()).newest(f"{source.topic}-value")
        if newest is None or newest.schema.kind != PROTOBUF:
            return pinned
        schema = newest.schema
        file = read_schema(ProtobufText(schema.text, schema.references, schema.names))
    except (RegistryAway, ProtobufSchemaError):
        return pinned
    return pinned.with_schema(file, job.event_schema.field_names)
