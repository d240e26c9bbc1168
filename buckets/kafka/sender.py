"""Messages into topics, by one idempotent producer as long as all goes well, and a new one after a failure."""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from buckets.kafka.faults import client_settings, explain, may_pass, unreachable
from buckets.kafka.settings import KafkaSettings

ROOM_S = 0.05
GIVEN_UP_WITHIN_S = 1.0
_PRODUCER: dict[str, str | int | bool] = {
    # The client itself neither repeats nor reorders, and all replicas have a message before it counts.
    "enable.idempotence": True,
    "acks": "all",
    # What is sent goes at once: the next comes with the next batch.
    "linger.ms": 0,
    "queue.buffering.max.messages": 1_000_000,
    "compression.type": "lz4",
}


class Sender:
    """Sends messages, and says when they have arrived.

    What is sent until `flush` returns is one attempt. Where it fails, its messages are given up, those that still wait
    too, and whoever sends begins the attempt again: with another client, because the one that failed may still report
    what became of its messages, and may have lost its number with the brokers for good.
    """

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
        timeout = {"delivery.timeout.ms": kafka.delivery_timeout}
        self._settings = {**client_settings(kafka), **_PRODUCER, **timeout, **(room or {})}
        self._client = _Client(self._settings)

    def send(self, topic: str, key: str, value: str | bytes | None, headers: dict[str, str]) -> None:
        """Put a message on its way; `flush` says whether it has arrived. Without a value it deletes what has its key.

        Raises:
            BucketsError: it can never be sent, or one before it was refused.
            Outage: the brokers did not answer in time.
        """
        written = value.encode() if isinstance(value, str) else value
        while True:
            try:
                self._client.produce(topic, key.encode(), written, headers)
            except BufferError:
                # The broker has been away for so long that there is no more room.
                self.serve(ROOM_S)
            except KafkaException as error:
                self._give_up()
                raise explain(error.args[0], self._kafka, f"writing to topic {topic}") from None
            else:
                break
        self.serve()

    def serve(self, wait_s: float = 0) -> None:
        """Take what the client has to say.

        Args:
            wait_s: how long to wait until it has something to say.

        Raises:
            BucketsError: a message was refused.
            Outage: the brokers did not answer in time.
        """
        self._client.producer.poll(wait_s)
        failed = self._client.failed
        if failed is not None:
            self._give_up()
            raise explain(failed, self._kafka, self._doing)

    def flush(self) -> None:
        """Wait until all messages have been acknowledged.

        Raises:
            BucketsError: one was refused.
            Outage: the brokers do not answer.
        """
        left = self._client.producer.flush(self._kafka.delivery_timeout / 1000)
        self.serve()
        if left:
            self._give_up()
            raise unreachable(self._kafka, f"{self._doing}: {left:,} were not acknowledged in time")

    def _give_up(self) -> None:
        """Send no more of this attempt; the next has a client of its own."""
        self._client.producer.purge()
        # A client goes, with its threads, when it has said of every message what became of it.
        self._client.producer.flush(GIVEN_UP_WITHIN_S)
        self._client = _Client(self._settings)


class _Client:
    """A producer, and the first thing that went wrong with its messages."""

    def __init__(self, settings: Mapping[str, str | int | bool]) -> None:
        self.producer = Producer(dict(settings))
        self.failed: KafkaError | None = None

    def produce(self, topic: str, key: bytes, value: bytes | None, headers: Mapping[str, str]) -> None:
        named: list[tuple[str, str | bytes | None]] = list(headers.items())
        self.producer.produce(topic, value, key, headers=named, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        # What does not pass of itself says more than what may, such as a message that waited behind it.
        if error is not None and (self.failed is None or (may_pass(self.failed) and not may_pass(error))):
            self.failed = error
