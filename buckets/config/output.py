"""Where results go: tables and how they are kept, topics, and a webhook for alerts."""

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from buckets.config.environment import Settings
from buckets.config.kafka import TopicName, authority_faults, visible
from buckets.duration import DAY_MS, HOUR_MS, DurationMs, format_duration
from buckets.outputs.columns import EVALUATIONS, TOPICS
from buckets.stores.location import location
from buckets.web_address import is_address

SECRET_PREFIX = "whsec_"
_LEAST_BYTES = 24
_LEAST_TIMEOUT_MS, _MOST_TIMEOUT_MS = 100, HOUR_MS


def _address(value: str) -> str:
    if not is_address(value, may_have_query=True):
        message = "is not an address, as in https://cases.example.com/alerts; a login does not go into it"
        raise ValueError(message)
    return value


def _timeout_ms(value: int) -> int:
    if not _LEAST_TIMEOUT_MS <= value <= _MOST_TIMEOUT_MS:
        limits = f"{format_duration(_LEAST_TIMEOUT_MS)} to {format_duration(_MOST_TIMEOUT_MS)}"
        message = f"{format_duration(value)} is not within the limits of {limits}"
        raise ValueError(message)
    return value


class WebhookSettings(Settings):
    """Where alerts go over HTTP, one request each, signed as Standard Webhooks specifies.

    Attributes:
        url: where they are posted.
        secret: what they are signed with: `whsec_` and at least 24 bytes in base64; never shown. Left out: they are
            not signed.
        timeout: how long an alert may take in all, from connecting to the status code; at least 100ms, and 1h at most.
        connections: how many alerts are sent at once, each over a connection of its own; alerts of one key stay in
            order.
        give_up_after: the age at which an alert is given up, and written to the file of undelivered alerts.
        ca_file: PEM file of the authorities that may sign the receiver's certificate; the system's if it is left out.
    """

    url: str
    secret: SecretStr | None = None
    timeout: DurationMs = 10_000
    connections: int = Field(default=1, ge=1, le=64)
    give_up_after: DurationMs = DAY_MS
    ca_file: str | None = None

    _url = field_validator("url")(_address)
    _limits = field_validator("timeout")(_timeout_ms)
    _visible = field_validator("secret", "ca_file")(visible)

    def _faults(self) -> Iterator[str]:
        if self.secret is not None and len(self.key or b"") < _LEAST_BYTES:
            yield f"secret: is not {SECRET_PREFIX} followed by at least {_LEAST_BYTES} bytes in base64"
        yield from authority_faults(self.ca_file)

    @property
    def place(self) -> str:
        """Where alerts are posted, without what a query may hold."""
        return self.url.partition("?")[0]

    @property
    def key(self) -> bytes | None:
        """The bytes of the secret; None if there is none, or it is no secret."""
        written = "" if self.secret is None else self.secret.get_secret_value()
        if not written.startswith(SECRET_PREFIX):
            return None
        try:
            return base64.b64decode(written.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            return None


LEAST_KEPT_MS = 600_000  # For how long versions of the tables of results are kept at least


class TableSettings(Settings):
    """How tables are kept short while they are appended to.

    Attributes:
        compact: whether small files of the tables are joined and old ones removed.
        keep_versions: how long earlier versions of a table can be read, at least 10m; left out: as the table says,
            or a day.
    """

    compact: bool = True
    keep_versions: DurationMs | None = None

    def _faults(self) -> Iterator[str]:
        if self.keep_versions is not None and self.keep_versions < LEAST_KEPT_MS:
            given, least = format_duration(self.keep_versions), format_duration(LEAST_KEPT_MS)
            yield f"keep_versions: {given} is less than {least}, which a large write can take; keep them longer"
        if not self.compact and self.keep_versions is not None:
            yield "keep_versions: goes with `compact: true`; leave one of them out"


class OutputSettings(TableSettings):
    """Where results go: a folder of Delta tables, or topics of Kafka.

    Attributes:
        kind: delta or kafka.
        path: the folder of the tables.
        topics: the topic of each output; one that is left out goes to the topic of its own name.
        evaluations: whether there is a row for every event and rule, fired or not.
        format: how messages in topics are written: `json`, or `avro` or `protobuf` with their schemas in a registry.
        webhook: where alerts go over HTTP besides; left out: nowhere.
    """

    kind: Literal["delta", "kafka"] = "delta"
    path: str = ""
    topics: dict[str, TopicName] = Field(default_factory=dict)
    evaluations: bool = False
    format: Literal["json", "avro", "protobuf"] = "json"
    webhook: WebhookSettings | None = None

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        if self.kind == "kafka" and self.model_fields_set & set(TableSettings.model_fields):
            yield "outputs in Kafka have no tables, so no `compact` and `keep_versions`; `audit` has its own"
        if self.format != "json" and self.kind != "kafka":
            yield f"format: {self.format} is one of messages, and goes with `kind: kafka`; leave it out"
        if self.kind == "delta" and (not self.path or self.topics):
            yield "outputs in Delta need `path`, a folder, and no `topics`; for topics write `kind: kafka`"
        if self.kind == "kafka" and self.path:
            yield "outputs in Kafka have `topics`, and no `path`; tables of them are written by `buckets audit`"
        for unknown in sorted(set(self.topics) - set(TOPICS)):
            yield f"topics.{unknown}: no such output; there are {', '.join(TOPICS)}"

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
