"""Messages into topics, by one idempotent producer."""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from buckets.kafka.faults import client_settings, explain, unreachable
from buckets.kafka.settings import KafkaSettings

SENT_WITHIN_S = 30.0
ROOM_S = 0.05
_PRODUCER: dict[str, str | int | bool] = {
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

    def __init__(
        self, kafka: KafkaSettings, doing: str = "writing messages", room: Mapping[str, int] | None = None
    ) -> None:
        """Send to the brokers of `kafka`.

        Args:
            kafka: how Kafka is reached.
            doing: what it is for, which is said where a message does not arrive.
            room: settings of the client's queue, other than those here.
        """
        self._kafka = kafka
        self._doing = doing
        self._producer = Producer({**client_settings(kafka), **_PRODUCER, **(room or {})})
        self._failed: KafkaError | None = None

    def send(self, topic: str, key: str, value: str | bytes | None, headers: dict[str, str]) -> None:
        """Put a message on its way; `flush` says whether it has arrived. Without a value it deletes what has its key.

        Raises:
            BucketsError: it can never be sent.
        """
        written = value.encode() if isinstance(value, str) else value
        named: list[tuple[str, str | bytes | None]] = list(headers.items())
        while True:
            try:
                self._producer.produce(topic, written, key.encode(), headers=named, on_delivery=self._on_delivery)
            except BufferError:
                # The broker has been away for so long that there is no more room.
                self._producer.poll(ROOM_S)
            except KafkaException as error:
                raise explain(error.args[0], self._kafka, f"writing to topic {topic}") from None
            else:
                break
        self._producer.poll(0)

    def serve(self) -> None:
        """Take what the client has to say, without waiting.

        Raises:
            BucketsError: a message was refused.
            Outage: the brokers did not answer in time.
        """
        self._producer.poll(0)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise explain(failed, self._kafka, self._doing)

    def flush(self) -> None:
        """Wait until all messages have been acknowledged.

        Raises:
            BucketsError: one was refused.
            Outage: the brokers do not answer.
        """
        left = self._producer.flush(SENT_WITHIN_S)
        self.serve()
        if left:
            self._producer.purge()
            raise unreachable(self._kafka, f"{left:,} messages were not acknowledged")

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error
