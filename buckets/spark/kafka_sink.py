"""Results into topics, all of a batch in one go.

What a batch produced is on the driver already, as few payloads. It is sent from there, and the batch counts as written
when the brokers have acknowledged all of it. A batch that is run again sends the same ids.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from buckets.clock import epoch_ms
from buckets.config.kafka import KafkaSettings
from buckets.config.output import OutputSettings
from buckets.kafka.faults import Broker, Outage
from buckets.kafka.output_schemas import OutputSchemas
from buckets.kafka.registry import Registry
from buckets.kafka.sender import Sender
from buckets.outputs import columns
from buckets.outputs.binary_messages import BinaryFormat, binary_message
from buckets.outputs.messages import ID, Messages
from buckets.spark.scored_batch import ScoredBatch


class BinaryOutput(NamedTuple):
    """How messages are written that are no JSON, and the numbers of their schemas."""

    written_in: BinaryFormat
    schemas: OutputSchemas


class KafkaSink:
    """Writes the outputs of each batch to topics."""

    def __init__(self, kafka: KafkaSettings, output: OutputSettings) -> None:
        """Write to the topics of `output`.

        Args:
            kafka: how Kafka is reached.
            output: the topics.
        """
        self._broker = Broker(kafka)
        self._output = output
        self._sender = Sender(kafka)
        self._binary = None
        if output.format != "json":
            assert kafka.registry is not None
            self._binary = BinaryOutput(output.format, OutputSchemas(Registry(kafka.registry), output, output.format))

    def prepare(self) -> None:
        """See that all topics are there, and that the registry takes the schemas of messages.

        Raises:
            BucketsError: one is not, or it refuses one.
        """
        self._broker.check_topics(self._output.topics_in_use().values())
        if self._binary is not None:
            # Away, the registry is asked again when there is something to write, which is then waited for.
            with contextlib.suppress(Outage):
                self._binary.schemas.register()

    @property
    def on_driver(self) -> bool:
        """It sends from the driver."""
        return True

    def write(self, batch: ScoredBatch) -> None:
        """Send what a batch produced, and wait until it is there.

        Raises:
            BucketsError: it cannot be sent.
            Outage: the brokers or the registry do not answer.
        """
        decided_ms, version = epoch_ms(), self._output.message_version
        messages = Messages(batch.rule_set, batch.terms.event_schema, version)
        for output in columns.TOPICS:
            if batch.has(output):
                topic = self._output.topic(output)
                for key, value, identity in self._values(messages, output, batch.table(output), decided_ms):
                    self._sender.send(topic, key, value, {ID: identity})
        self._sender.flush()

    def _values(
        self, messages: Messages, output: str, table: pa.Table, decided_ms: int
    ) -> Iterator[tuple[str, str | bytes, str]]:
        """Yield key, value and identity of each message."""
        if self._binary is None:
            for message in messages.of(output, table, decided_ms):
                yield message.key, message.value, message.identity
            return
        prefix = self._binary.schemas.prefix(output)
        for row in messages.shown(output, table, decided_ms):
            yield row.key, prefix + binary_message(output, self._binary.written_in, row.fields), row.identity
