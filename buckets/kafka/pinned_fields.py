"""The numbers of fields in Protobuf, as a start of a job finds them by their names, for when they are renamed."""

import itertools

from buckets.checkpoint.pinned_schemas import newest_pinned
from buckets.checkpoint.writer_schemas import PROTOBUF
from buckets.config.job import Job
from buckets.config.source import PartOfMessage
from buckets.events.debezium import AFTER
from buckets.events.message_fields import value_schema
from buckets.events.message_keys import paths_in_keys
from buckets.events.protobuf.pinned import PinnedProtobuf
from buckets.events.protobuf.proto_schema import ProtobufText, read_schema
from buckets.events.protobuf.proto_tokens import ProtobufSchemaError
from buckets.kafka.registry import Registry, RegistryAway
from buckets.kafka.topics import topics_now


def pinned_fields(job: Job) -> PinnedProtobuf | None:
    """Return by what values and keys in Protobuf are read from now on, beside their own schemas; None of other formats.

    The newest schemas of the topics add to what batches had so far. A registry that does not answer now is no reason to
    wait: it is asked again as soon as a message comes whose schema the checkpoint does not know.

    Raises:
        BucketsError: the registry answers something else, or refuses the login.
    """
    source, kafka = job.settings.source, job.settings.kafka
    parts = [part for part, written_in in source.registered.items() if written_in == "protobuf"]
    if not parts:
        return job.protobuf
    so_far = newest_pinned(job).protobuf or PinnedProtobuf()
    pinned = (job.protobuf or PinnedProtobuf()).model_copy(update={"numbers": so_far.numbers})
    assert kafka is not None
    assert kafka.registry is not None
    registry = Registry(kafka.registry, pauses_s=())
    for topic, part in itertools.product(topics_now(job), parts):
        try:
            newest = registry.newest(f"{topic}-{part}")
            if newest is not None and newest.schema.kind == PROTOBUF:
                schema = newest.schema
                file = read_schema(ProtobufText(schema.text, schema.references, schema.names))
                pinned = pinned.with_schema(file, list(fields_in(job, part)))
        except (RegistryAway, ProtobufSchemaError):
            continue
    return pinned


def fields_in(job: Job, part: PartOfMessage) -> dict[str, list[str]]:
    """Return the declared fields that lie in values or in keys, by the name or path at which they lie there."""
    schema, found = job.event_schema, dict[str, list[str]]()
    around = AFTER if job.settings.source.envelope == "debezium" else ""
    of_values = {name: f"{around}{name}" for name in value_schema(schema).field_names}
    for name, path in (of_values if part == "value" else paths_in_keys(schema)).items():
        found.setdefault(path, []).append(name)
    return found
