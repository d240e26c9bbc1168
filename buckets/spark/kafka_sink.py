"""Results into topics, all of a batch in one go.

What a batch produced is on the driver already, as few payloads. It is sent from there, and the batch counts as written
when the brokers have acknowledged all of it. A batch that is run again sends the same ids.
"""

from buckets.clock import epoch_ms
from buckets.config.kafka import KafkaSettings
from buckets.config.output import OutputSettings
from buckets.kafka.faults import Broker
from buckets.kafka.sender import Sender
from buckets.outputs import columns
from buckets.outputs.messages import ID, Messages
from buckets.spark.scored_batch import ScoredBatch


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

    def prepare(self) -> None:
        """See that all topics are there.

        Raises:
            BucketsError: one is not.
        """
        self._broker.check_topics(self._output.topics_in_use().values())

    @property
    def on_driver(self) -> bool:
        """It sends from the driver."""
        return True

    def write(self, batch: ScoredBatch) -> None:
        """Send what a batch produced, and wait until it is there.

        Raises:
            BucketsError: it cannot be sent.
            Outage: the brokers do not answer.
        """
        decided_ms, version = epoch_ms(), self._output.message_version
        messages = Messages(batch.rule_set, batch.terms.event_schema, version)
        for output in columns.TOPICS:
            if batch.has(output):
                topic = self._output.topic(output)
                for message in messages.of(output, batch.table(output), decided_ms):
                    self._sender.send(topic, message.key, message.value, {ID: message.identity})
        self._sender.flush()
