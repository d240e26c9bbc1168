"""The numbers of fields in Protobuf, as a start of a job finds them by their names, for when they are renamed."""

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from buckets.checkpoint.pinned_schemas import newest_pinned
from buckets.checkpoint.writer_schemas import PROTOBUF, WriterSchema, WriterSchemas
from buckets.config.job import Job
from buckets.config.source import PartOfMessage
from buckets.events.debezium import AFTER
from buckets.events.decoded import SchemaError
from buckets.events.message_fields import value_schema
from buckets.events.message_keys import paths_in_keys
from buckets.events.protobuf.pinned import PinnedProtobuf
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
                pinned = _with_schema(pinned, newest.schema, list(fields_in(job, part)))
        except (RegistryAway, SchemaError):
            continue
    return pinned


class KnownSchemas:
    """The schemas in Protobuf that messages of a job were written with so far: their fields are known by number too."""

    def __init__(self, checkpoint: Path) -> None:
        """Begin with none of them."""
        self._schemas = WriterSchemas(checkpoint)
        self._taken = set[int]()

    def add_to(self, pinned: PinnedProtobuf, job: Job) -> PinnedProtobuf:
        """Return what is pinned, with the fields of schemas that are new since this was asked last. Cost: a listing."""
        names = [*fields_in(job, "value"), *fields_in(job, "key")]
        for number in self._schemas.numbers():
            schema = None if number in self._taken else self._schemas.of(number, None)
            self._taken.add(number)
            if schema is not None and schema.kind == PROTOBUF:
                with contextlib.suppress(SchemaError):
                    pinned = _with_schema(pinned, schema, names)
        return pinned

    def forget(self) -> None:
        """Begin again, as other fields are declared."""
        self._taken.clear()


def _with_schema(pinned: PinnedProtobuf, schema: WriterSchema, names: Sequence[str]) -> PinnedProtobuf:
    """Return what is pinned with the numbers that fields have in a schema; raises SchemaError where it is none."""
    from buckets.events.protobuf.proto_schema import ProtobufText, read_schema
    from buckets.events.protobuf.wanted import pinned_with

    return pinned_with(pinned, read_schema(ProtobufText(schema.text, schema.references, schema.names)), names)


def fields_in(job: Job, part: PartOfMessage) -> dict[str, list[str]]:
    """Return the declared fields that lie in values or in keys, by the name or path at which they lie there."""
    schema, found = job.event_schema, dict[str, list[str]]()
    around = AFTER if job.settings.source.envelope == "debezium" else ""
    of_values = {name: f"{around}{name}" for name in value_schema(schema).field_names}
    for name, path in (of_values if part == "value" else paths_in_keys(schema)).items():
        found.setdefault(path, []).append(name)
    return found
