"""Where results go, and how tables are kept."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from buckets.config.environment import Settings
from buckets.config.kafka import TopicName
from buckets.config.webhook import WebhookSettings
from buckets.duration import DurationMs, format_duration
from buckets.outputs.columns import EVALUATIONS, TOPICS
from buckets.stores.location import location

LEAST_KEPT_MS = 600_000
"""For how long versions of the tables of results are kept at least."""


class TableSettings(Settings):
    """How tables are kept short while they are appended to.

    Attributes:
        compact: whether small files of the tables are joined and old ones removed.
        keep_versions: how long earlier versions of a table can be read, at least 10m; left out: as the table says,
            or a day.
    """

    compact: bool = True
    keep_versions: DurationMs | None = None

    @model_validator(mode="after")
    def _kept_for_long_enough(self) -> Self:
        if self.keep_versions is not None and self.keep_versions < LEAST_KEPT_MS:
            given, least = format_duration(self.keep_versions), format_duration(LEAST_KEPT_MS)
            message = f"keep_versions: {given} is less than {least}, which a large write can take; keep them longer"
            raise ValueError(message)
        if not self.compact and self.keep_versions is not None:
            message = "keep_versions: goes with `compact: true`; leave one of them out"
            raise ValueError(message)
        return self


class OutputSettings(TableSettings):
    """Where results go: a folder of Delta tables, or topics of Kafka.

    Attributes:
        kind: delta or kafka.
        path: the folder of the tables.
        topics: the topic of each output; one that is left out goes to the topic of its own name.
        evaluations: whether there is a row for every event and rule, fired or not.
        format: how messages in topics are written: `json`, or `avro` or `protobuf` with their schemas in a registry.
        webhook: where alerts go over HTTP besides; left out: nowhere.
        message_version: of the schemas of alerts and evaluations in topics; 1 for consumers that do not know `terms`.
    """

    kind: Literal["delta", "kafka"] = "delta"
    path: str = ""
    topics: dict[str, TopicName] = Field(default_factory=dict)
    evaluations: bool = False
    format: Literal["json", "avro", "protobuf"] = "json"
    webhook: WebhookSettings | None = None
    message_version: int = Field(default=2, ge=1, le=2)

    @model_validator(mode="after")
    def _tables_are_kept(self) -> "OutputSettings":
        if self.kind == "kafka" and self.model_fields_set & set(TableSettings.model_fields):
            message = "outputs in Kafka have no tables, so no `compact` and `keep_versions`; `audit` has its own"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _format_of_messages(self) -> "OutputSettings":
        if self.format != "json" and self.kind != "kafka":
            message = f"format: {self.format} is one of messages, and goes with `kind: kafka`; leave it out"
            raise ValueError(message)
        if self.format != "json" and self.message_version == 1:
            message = f"message_version: 1 is one of JSON, and not of {self.format}; leave it out"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _path_or_topics(self) -> "OutputSettings":
        if self.kind == "delta" and (not self.path or self.topics):
            message = "outputs in Delta need `path`, a folder, and no `topics`; for topics write `kind: kafka`"
            raise ValueError(message)
        if self.kind == "kafka" and self.path:
            message = "outputs in Kafka have `topics`, and no `path`; tables of them are written by `buckets audit`"
            raise ValueError(message)
        unknown = sorted(set(self.topics) - set(TOPICS))
        if unknown:
            message = f"topics.{unknown[0]}: no such output; there are {', '.join(TOPICS)}"
            raise ValueError(message)
        return self

    @property
    def folder(self) -> Path | None:
        """The folder of the tables; None where results go to topics."""
        return location(self.path) if self.path else None

    def topic(self, output: str) -> str:
        """Return the topic of an output."""
        return self.topics.get(output, output)

    def topics_in_use(self) -> dict[str, str]:
        """Return the topics of all outputs in use, by output; none where results go to tables."""
        if self.path:
            return {}
        return {name: self.topic(name) for name in TOPICS if name != EVALUATIONS or self.evaluations}
