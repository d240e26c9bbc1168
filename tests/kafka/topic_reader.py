"""Reads topics from their beginning, or what is written from now on."""

import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from buckets.config.kafka import KafkaSettings
from buckets.kafka.faults import Broker, consumer_settings, opened, read_offsets

MOST_AT_ONCE = 10_000
SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    # The broker answers as soon as there is a message, and a reader that was idle does not wait to ask again.
    "fetch.min.bytes": 1,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
PASSING = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
)
"""What librdkafka waits out itself."""


class TopicReader:
    """Reads all partitions of some topics until it is closed; also a context manager."""

    def __init__(self, kafka: KafkaSettings, topics: Sequence[str], from_end: bool) -> None:
        settings = {**consumer_settings(kafka), **SETTINGS, "group.id": f"tests-{uuid.uuid4()}"}
        self._consumer = opened(Consumer, kafka, settings)
        there = Broker(kafka).check_topics(topics)
        starts = [TopicPartition(topic, part, OFFSET_BEGINNING) for topic in topics for part in range(there[topic])]
        for start in starts if from_end else ():
            # The end as it is now: what is written before the first poll is read too.
            _, start.offset = read_offsets(kafka, self._consumer, start)
        self._consumer.assign(starts)

    def __enter__(self) -> "TopicReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> list[Message]:
        """The messages since the last time, as soon as there are some, at the latest after `timeout_s`."""
        until_s = time.monotonic() + timeout_s
        while True:
            first = self._consumer.poll(max(until_s - time.monotonic(), 0))
            messages = [] if first is None else [first, *self._consumer.consume(MOST_AT_ONCE, 0)]
            good = [message for message in messages if is_good(message)]
            if good or time.monotonic() >= until_s:
                return good


def is_good(message: Message) -> bool:
    error = message.error()
    if error is not None and error.code() not in PASSING and not error.retriable():
        raise KafkaException(error)
    return error is None
