"""What the terms of a batch say of schemas, for tests."""

from dataclasses import dataclass

from buckets.config.source import KeyFormat
from buckets.events.decoded import PinnedProtobuf


@dataclass(frozen=True)
class Pinned:
    """How values are read, beside their own schemas."""

    avro_schema: str | None = None
    protobuf: PinnedProtobuf | None = None
    key_format: KeyFormat = "text"
    unjudged: tuple[str, ...] = ()


NOTHING_PINNED = Pinned()
