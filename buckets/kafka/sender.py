"""Messages into topics, by one idempotent producer."""

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from buckets.kafka.faults import client_settings, explain, unreachable
from buckets.kafka.settings import KafkaSettings

SENT_WITHIN_S = 30.0
PRODUCER: dict[str, str | int | bool] = {
    # The client itself neither repeats nor reorders, and all replicas have a message before it counts.
    "enable.idempotence": True,
    "acks": "all",
    # What is sent goes at once: the next comes with the next batch.
    "linger.ms": 0,
    "delivery.timeout.ms": int(SENT_WITHIN_S * 1000),
    "queue.buffering.max.messages": 1_000_000,
    "compression.type": "lz4",
}


class Sender:
    """Sends messages, and says when they have arrived."""

    def __init__(self, kafka: KafkaSettings) -> None:
        """Send to the brokers of `kafka`."""
        self._kafka = kafka
        self._producer = Producer({**client_settings(kafka), **PRODUCER})
        self._failed: KafkaError | None = None

    def send(self, topic: str, key: str, value: str | None, headers: dict[str, str]) -> None:
        """Put a message on its way; `flush` says whether it has arrived. Without a value it deletes what has its key.

        Raises:
            BucketsError: it can never be sent.
        """
        written = None if value is None else value.encode()
        named: list[tuple[str, str | bytes | None]] = list(headers.items())
        while True:
            try:
                self._producer.produce(topic, written, key.encode(), headers=named, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise explain(error.args[0], self._kafka, f"writing to topic {topic}") from None
            else:
                break
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all messages have been acknowledged.

        Raises:
            BucketsError: one was refused.
            Outage: the brokers do not answer.
        """
        left = self._producer.flush(SENT_WITHIN_S)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise explain(failed, self._kafka, "writing messages")
        if left:
            self._producer.purge()
            raise unreachable(self._kafka, f"{left:,} messages were not acknowledged")

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error
