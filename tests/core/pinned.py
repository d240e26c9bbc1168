"""What a source and the terms of a batch say of messages and their schemas, for tests."""

from dataclasses import dataclass

from buckets.config.source import SourceSettings
from buckets.events.decoded import PinnedProtobuf
from buckets.events.messages import TopicMessages
from buckets.events.schema import KeyFormat


@dataclass(frozen=True)
class Pinned:
    """How values are read, beside their own schemas."""

    avro_schema: str | None = None
    protobuf: PinnedProtobuf | None = None
    key_format: KeyFormat = "text"
    unjudged: tuple[str, ...] = ()


NOTHING_PINNED = Pinned()


def topic_messages(source: SourceSettings, schema_of) -> TopicMessages:
    """Return the messages of the topic of a source, whose schemas a function returns by their numbers."""
    return TopicMessages(source.format, source.envelope, source.decimals, schema_of)
