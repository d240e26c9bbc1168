"""Reads messages from topics as they come, without taking part: no consumer group, no commits."""

import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.kafka.faults import Broker, consumer_settings, explain, opened, read_offsets

AT_ONCE = 10_000
_CONSUMER: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    # The broker answers as soon as there is a message, and a reader that was idle does not wait to ask again.
    "fetch.min.bytes": 1,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
_PASSING = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
)
"""What librdkafka waits out itself."""


class TopicReader:
    """Reads all partitions of some topics; also a context manager."""

    def __init__(self, kafka: KafkaSettings, topics: Sequence[str], from_end: bool) -> None:
        """Begin to read.

        Args:
            kafka: how Kafka is reached.
            topics: the topics, which must exist.
            from_end: only what is written from now on; otherwise from the beginning.

        Raises:
            BucketsError: a topic does not exist, or may not be read.
            Outage: no broker answers.
        """
        self._kafka = kafka
        self._topics = ", ".join(topics)
        settings = {**consumer_settings(kafka), **_CONSUMER, "group.id": f"buckets-reader-{uuid.uuid4()}"}
        self._consumer = opened(Consumer, kafka, settings)
        try:
            self._consumer.assign(self._starts(topics, from_end))
        except KafkaException as error:
            self._consumer.close()
            raise explain(error.args[0], kafka, f"reading {self._topics}") from None
        except BucketsError:
            self._consumer.close()
            raise

    def _starts(self, topics: Sequence[str], from_end: bool) -> list[TopicPartition]:
        there = Broker(self._kafka).check_topics(topics)
        starts = []
        for topic in topics:
            for partition in range(there[topic]):
                start = TopicPartition(topic, partition, OFFSET_BEGINNING)
                if from_end:
                    # The end as it is now: what is written before the first poll is read too.
                    _, start.offset = read_offsets(self._kafka, self._consumer, start)
                starts.append(start)
        return starts

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        self.close()

    def poll(self, timeout_s: float) -> list[Message]:
        """Return the messages since the last time, as soon as there are some, at the latest after `timeout_s`.

        Raises:
            BucketsError: it may not be read any more. A broker that is away is waited for.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            first = self._consumer.poll(max(until_s - time.monotonic(), 0))
            messages = [] if first is None else [first, *self._consumer.consume(AT_ONCE, 0)]
            good = [message for message in messages if self._is_good(message)]
            if good or time.monotonic() >= until_s:
                return good

    def _is_good(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in _PASSING or error.retriable():
            return False
        raise explain(error, self._kafka, f"reading {self._topics}")

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
