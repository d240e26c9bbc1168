"""A job's topics as the log of calls: messages are read as they arrive, and payments from calls are written there."""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, kind_and_line
from buckets.kafka.faults import (
    AT_END,
    Broker,
    client_settings,
    explain,
    following_consumer,
    may_pass,
    opened,
    read_offsets,
)

Place = tuple[int, str]  # Partition and topic
CALL = "buckets-call"  # The header that identifies what a call has written
_POLL_S = 0.1
_AT_ONCE = 1_000
_LOOK_EVERY_S = 1.0
_LOOK_WITHIN_S = 0.5
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_CALL_BYTES = 16
_AGAIN_AT_ONCE = {"fetch.error.backoff.ms": 50}  # An idle consumer does not pause before the next fetch
_PRODUCER: dict[str, str | int | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    # Keys go to the same partitions as from other clients.
    "partitioner": "murmur2_random",
    "reconnect.backoff.max.ms": 1_000,
}
Taken = tuple[Place, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int, int, int]
"""Place, offset, value, key, headers, timestamp type, time in ms, and the number of its call or 0."""


class NotWritten(NamedTuple):
    """Why a payment was not written to its topic."""

    reason: str  # in one line
    is_too_large: bool  # whether it can never be written, because the topic refuses its size


class CallLog:
    """Reads all partitions of some topics from given offsets on, in a thread, and writes to one of the topics.

    Attributes:
        ends: by partition, the offset after its last message, as far as is known.
        has_caught_up: the number of the reading that has reached the ends of all partitions.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: Sequence[str],
        to: str,
        on_messages: Callable[[int, list[Taken] | None], None],
    ) -> None:
        """Read nothing yet.

        Args:
            kafka: how brokers are reached.
            topics: the topics to read.
            to: the topic to which calls are written.
            on_messages: called with the number of the reading, as returned by `read_from`, and messages; with an empty
                list once the ends of all partitions are reached, and with None if messages that must be read are gone.
        """
        self._is_down: str | None = None
        self._not_read: str | None = None
        self.ends: dict[Place, int] = {}
        self.has_caught_up = 0
        self._kafka, self._topics, self._to, self._on_messages = kafka, topics, to, on_messages
        self._own = secrets.token_bytes(8)
        self._broker = Broker(kafka)
        settings = {**client_settings(kafka), **_PRODUCER, "delivery.timeout.ms": kafka.delivery_timeout}
        self._producer = opened(Producer, kafka, {**settings, "error_cb": self._on_error})
        self._reading, self._begin = 0, dict[Place, int]()
        self._stopping = threading.Event()
        works = {"calls-read": self._read, "calls-written": self._serve}
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in works.items()]

    def start(self) -> None:
        """Start reading, once `read_from` is called, and writing."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for written messages to arrive as far as brokers answer."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._producer.flush(_LOOK_WITHIN_S)

    @property
    def fault(self) -> str | None:
        """Why topics are not read, or brokers do not answer, in one line; None while all is well."""
        return self._is_down or self._not_read

    def partitions(self) -> list[Place]:
        """Return all partitions of the topics."""
        there = self._broker.check_topics(self._topics)
        return [(partition, topic) for topic in self._topics for partition in range(there[topic])]

    def read_from(self, offsets: Mapping[Place, int]) -> int:
        """Read from these offsets, and other partitions from their beginning; return the number of the reading."""
        self._begin, self._reading = dict(offsets), self._reading + 1
        return self._reading

    def write(
        self, value: bytes, key: bytes | None, call: int, on_written: Callable[[NotWritten | None], None]
    ) -> None:
        """Write a payment; `on_written` receives the reason if it has not arrived, else None."""

        def report(error: KafkaError | None, _: Message) -> None:
            on_written(None if error is None else self._not_written(error, len(value)))

        headers: list[tuple[str, str | bytes | None]] = [(CALL, self._own + call.to_bytes(8, "big"))]
        try:
            self._producer.produce(self._to, value, key, headers=headers, on_delivery=report)
        except BufferError:
            on_written(
                NotWritten(f"kafka {self._kafka.bootstrap_servers}: too many messages wait to be written", False)
            )
        except KafkaException as error:
            on_written(self._not_written(error.args[0], len(value)))

    def _not_written(self, error: KafkaError, size: int) -> NotWritten:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return NotWritten(f"the payment has {size:,} bytes, more than topic {self._to} takes; send less", True)
        return NotWritten(explain(error, self._kafka, f"writing to topic {self._to}").message, False)

    def _serve(self) -> None:
        """Handle the producer's reports, and check whether unreachable brokers answer again."""
        while not self._stopping.is_set():
            self._producer.poll(_POLL_S)
            if self._is_down is not None:
                with contextlib.suppress(KafkaException):
                    self._producer.list_topics(timeout=_LOOK_WITHIN_S)
                    self._is_down = None

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            self._is_down = explain(error, self._kafka, f"writing to topic {self._to}").message

    def _read(self) -> None:
        """Read until stopped, with a new consumer after a fault or when partitions change."""
        consumer: Consumer | None = None
        reading, looked_s, at, ended = 0, 0.0, dict[Place, int](), set[Place]()
        while not self._stopping.is_set():
            try:
                is_old = reading != self._reading
                if consumer is not None and (is_old or time.monotonic() - looked_s > _LOOK_EVERY_S):
                    looked_s = time.monotonic()
                    if is_old or len(self.partitions()) > len(ended | at.keys()):
                        consumer.close()
                        consumer = None
                if is_old:
                    reading, at, ended = self._reading, dict(self._begin), set()
                if consumer is None and reading:
                    consumer = self._open(at)
                if consumer is None:
                    self._stopping.wait(_POLL_S)
                else:
                    self._take(consumer, reading, at, ended)
                    self._not_read = None
            except Exception as error:  # Whatever the fault, it is reported and retried
                self._not_read = error.message if isinstance(error, BucketsError) else kind_and_line(error)
                if consumer is not None:
                    consumer.close()
                    consumer = None
                self._stopping.wait(_LOOK_EVERY_S)
        if consumer is not None:
            consumer.close()

    def _open(self, at: dict[Place, int]) -> Consumer:
        """Return a consumer that continues where the last one stopped; new partitions start at their beginning."""
        consumer = following_consumer(self._kafka, "buckets-serve", _AGAIN_AT_ONCE)
        try:
            for partition, topic in self.partitions():
                first, self.ends[partition, topic] = read_offsets(
                    self._kafka, consumer, TopicPartition(topic, partition)
                )
                at.setdefault((partition, topic), first)
            consumer.assign([TopicPartition(topic, partition, offset) for (partition, topic), offset in at.items()])
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _take(self, consumer: Consumer, reading: int, at: dict[Place, int], ended: set[Place]) -> None:
        """Pass on messages that are available or arrive within a moment, even if a fault follows them."""
        first, fault = consumer.poll(_POLL_S), None
        taken, had_ended = list[Taken](), len(ended)
        for message in [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]:
            place, error = (message.partition() or 0, message.topic() or ""), message.error()
            if error is None:
                taken.append(self._taken(place, message))
                at[place] = (message.offset() or 0) + 1
            elif error.code() == AT_END:
                ended.add(place)
                self.ends[place] = max(self.ends.get(place, 0), message.offset() or 0)
            elif error.code() in _LOST:
                self._on_messages(reading, None)
                self._stopping.wait(_LOOK_EVERY_S)
            elif not may_pass(error):
                fault = explain(error, self._kafka, f"reading topic {place[1]}")
        for place, offset in at.items():
            self.ends[place] = max(self.ends.get(place, 0), offset)
        if taken or (len(ended) > had_ended and len(ended) == len(at)):
            self._on_messages(reading, taken)
        if fault is not None:
            raise fault
        if len(ended) == len(at):
            self.has_caught_up = reading

    def _taken(self, place: Place, message: Message) -> Taken:
        """Return the needed fields of a message."""
        (kind, time_ms), call = message.timestamp(), 0
        headers: list[tuple[str, str | bytes | None]] = [*(message.headers() or ())]
        given = [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]
        for name, value in given:
            if name == CALL and value is not None and len(value) == _CALL_BYTES and value.startswith(self._own):
                call = int.from_bytes(value[len(self._own) :], "big")
        stamped, known_ms = (-1, -1) if kind == TIMESTAMP_NOT_AVAILABLE else (kind - 1, time_ms)
        return place, message.offset() or 0, message.value(), message.key(), given, stamped, known_ms, call
