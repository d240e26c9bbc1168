"""Results into topics, all of a batch in one go.

What a batch produced is on the driver already, as few payloads. It is sent from there, and the batch counts as written
when the brokers have acknowledged all of it. A batch that is run again sends the same ids.
"""

import pyarrow as pa

from buckets import outputs, payload
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.job import OutputSettings
from buckets.kafka.faults import Broker
from buckets.kafka.sender import Sender
from buckets.kafka.settings import KafkaSettings
from buckets.ledger import epoch_ms
from buckets.messages import ID, Messages
from buckets.results import one_letter_an_event
from buckets.shard import evaluation_rows
from buckets.spark.query import ScoredBatch


class KafkaSink:
    """Writes the outputs of each batch to topics."""

    def __init__(
        self, kafka: KafkaSettings, output: OutputSettings, schema: EventSchema, engine: EngineSettings
    ) -> None:
        """Write to the topics of `output`.

        Args:
            kafka: how Kafka is reached.
            output: the topics.
            schema: the event schema.
            engine: the settings of the engine.
        """
        self._broker = Broker(kafka)
        self._topics = output.topics_in_use()
        self._schema = schema
        self._engine = engine
        self._sender = Sender(kafka)

    def prepare(self) -> None:
        """See that all topics are there.

        Raises:
            BucketsError: one is not.
        """
        self._broker.check_topics(self._topics.values())

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
        decided_ms, messages = epoch_ms(), Messages(batch.rule_set, self._schema)
        for output, topic in self._topics.items():
            if batch.rows.get(output):
                for message in messages.of(output, self._table(output, batch), decided_ms):
                    self._sender.send(topic, message.key, message.value, {ID: message.identity})
        self._sender.flush()

    def _table(self, output: str, batch: ScoredBatch) -> pa.Table:
        payloads = batch.payloads[output]
        if output == outputs.EVALUATIONS:
            decoded = [evaluation_rows(packed, batch.rule_set, self._schema, self._engine) for packed in payloads]
            return pa.concat_tables(decoded)
        tables = [payload.unpack(packed).replace_schema_metadata() for packed in payloads]
        table = pa.concat_tables(tables, promote_options="permissive")
        return one_letter_an_event(table) if output == outputs.DEAD_LETTERS else table
