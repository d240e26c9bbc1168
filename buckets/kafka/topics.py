"""The topics of a configuration, created if missing, and their sizes; and Protobuf fields by number."""

import contextlib
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError as TookTooLong
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from buckets.checkpoint.writer_schemas import WriterSchemas, newest_protobuf
from buckets.config.job import Job
from buckets.config.kafka import KafkaSettings
from buckets.config.source import PartOfMessage
from buckets.events.debezium import AFTER
from buckets.events.decoded import PROTOBUF, PinnedProtobuf, SchemaError, WriterSchema
from buckets.events.message_fields import value_schema
from buckets.events.messages import paths_in_keys
from buckets.kafka.faults import (
    ANSWER_WITHIN_S,
    Broker,
    client_settings,
    explain,
    opened,
    unreachable,
)
from buckets.kafka.registry import Registry, RegistryAway

MADE_WITHIN_S = 60.0
POLL_S = 0.02
_BROKERS_DEFAULT = -1


def topics_now(job: Job) -> list[str]:
    """Return the topics of a job's source: the named ones, and existing ones that match its pattern."""
    selection, kafka = job.settings.source.selection, job.settings.kafka
    return selection.of({} if selection.pattern is None or kafka is None else Broker(kafka).partitions())


def wanted_topics(job: Job, partitions: int) -> list[NewTopic]:
    """Return the topics that a configuration names; topics of rules and lists have one partition."""
    settings = job.settings
    rules = settings.rules
    partitioned = [*settings.source.all_topics, *settings.output.topics_in_use().values()]
    if settings.verdicts.topic is not None:
        partitioned.append(settings.verdicts.topic)
    wanted = [NewTopic(topic, partitions, _BROKERS_DEFAULT) for topic in partitioned]
    if rules.topic is not None:
        # Rule changes need one order, and the last change of each rule is kept forever.
        wanted.append(NewTopic(rules.topic, 1, _BROKERS_DEFAULT, config={"cleanup.policy": "compact"}))
        wanted += [NewTopic(topic, 1, _BROKERS_DEFAULT) for topic in (rules.rejected, rules.exported)]
    lists = [of_list.topic for of_list in settings.lists.values() if of_list.topic is not None]
    wanted += [NewTopic(topic, 1, _BROKERS_DEFAULT, config={"cleanup.policy": "compact"}) for topic in lists]
    return wanted


def create_topics(kafka: KafkaSettings, job: Job, partitions: int) -> list[str]:
    """Create the topics of a configuration that do not exist, and return them; others are left unchanged."""
    broker = Broker(kafka)
    there = broker.partitions()
    missing = [topic for topic in wanted_topics(job, partitions) if topic.topic not in there]
    if not missing:
        return []
    admin = opened(AdminClient, kafka, client_settings(kafka))
    futures = admin.create_topics(missing, operation_timeout=MADE_WITHIN_S, request_timeout=MADE_WITHIN_S)
    made = []
    for topic, future in futures.items():
        try:
            future.result(MADE_WITHIN_S + ANSWER_WITHIN_S)
        except TookTooLong:
            raise unreachable(kafka, f"making topic {topic}") from None
        except KafkaException as error:
            # Another process may have created it meanwhile.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise explain(error.args[0], kafka, f"making topic {topic}") from None
        else:
            made.append(topic)
    # Brokers learn of a new topic after a moment.
    deadline_s = time.monotonic() + MADE_WITHIN_S
    while not {topic.topic for topic in missing} <= broker.partitions().keys():
        if time.monotonic() > deadline_s:
            raise unreachable(kafka, "topics were made, and are not shown")
        time.sleep(POLL_S)
    return made


def topic_sizes(kafka: KafkaSettings) -> list[tuple[str, int, int]]:
    """Return each topic with its partitions and the number of offsets they span, by name, without Kafka's own.

    A compacted topic may hold fewer messages.
    """
    broker = Broker(kafka)
    return [
        (topic, count, sum(end - begin for begin, end in broker.offsets(topic, count)))
        for topic, count in sorted(broker.partitions().items())
        if not topic.startswith("__")
    ]


def pinned_fields(job: Job) -> PinnedProtobuf | None:
    """Return the schemas that decode Protobuf values and keys from now on, besides their own; None for other formats.

    The topics' newest schemas extend those of earlier batches. If a registry does not answer now, nothing waits: it is
    asked again as soon as a message has a schema that the checkpoint does not know.
    """
    source, kafka = job.settings.source, job.settings.kafka
    parts = [part for part, written_in in source.registered.items() if written_in == "protobuf"]
    if not parts:
        return job.protobuf
    so_far = newest_protobuf(job)
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
    """The Protobuf schemas of a job's messages so far; their fields are known by number too."""

    def __init__(self, checkpoint: Path) -> None:
        self._schemas = WriterSchemas(checkpoint)
        self._taken = set[int]()

    def add_to(self, pinned: PinnedProtobuf, job: Job) -> PinnedProtobuf:
        """Return the pinned schemas, extended by fields of schemas new since the last call. Cost: one listing."""
        names = [*fields_in(job, "value"), *fields_in(job, "key")]
        for number in self._schemas.numbers():
            schema = None if number in self._taken else self._schemas.of(number)
            self._taken.add(number)
            if schema is not None and schema.kind == PROTOBUF:
                with contextlib.suppress(SchemaError):
                    pinned = _with_schema(pinned, schema, names)
        return pinned

    def forget(self) -> None:
        """Start again, because other fields are declared."""
        self._taken.clear()


def _with_schema(pinned: PinnedProtobuf, schema: WriterSchema, names: Sequence[str]) -> PinnedProtobuf:
    from buckets.events.protobuf.proto_schema import read_schema
    from buckets.events.protobuf.wanted import pinned_with

    return pinned_with(pinned, read_schema(schema), names)


def fields_in(job: Job, part: PartOfMessage) -> dict[str, list[str]]:
    """Return the declared fields found in values or in keys, by their names or paths there."""
    schema, found = job.event_schema, dict[str, list[str]]()
    around = AFTER if job.settings.source.envelope == "debezium" else ""
    of_values = {name: f"{around}{name}" for name in value_schema(schema).field_names}
    for name, path in (of_values if part == "value" else paths_in_keys(schema)).items():
        found.setdefault(path, []).append(name)
    return found
