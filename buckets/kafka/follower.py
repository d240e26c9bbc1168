"""Reads a single-partition topic in a thread, surviving faults.

A fault ends a consumer, and is kept for inspection until a new consumer, tried every second, has reached the topic's
end. Every two seconds brokers are asked for the topic's id; a recreated topic is read from its beginning.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message, TopicPartition

from buckets.checkpoint.topic_generations import TopicPosition, is_another
from buckets.config.kafka import KafkaSettings
from buckets.duration import format_duration
from buckets.errors import BucketsError, kind_and_line
from buckets.kafka.faults import (
    ANSWER_WITHIN_S,
    AT_END,
    Broker,
    explain,
    following_consumer,
    may_pass,
    read_offsets,
    unreachable,
)

CAUGHT_UP_WITHIN_S = 60.0
POLL_S = 0.1
LOOK_EVERY_S = 2.0
LOOK_WITHIN_S = 5.0
AGAIN_AFTER_S = 1.0
AT_ONCE = 500


class TopicMessage(NamedTuple):
    """A message of a followed topic, and the position after it.

    `is_history`: it was written before the topic was read from its beginning; `time_ms` is None if unknown.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int | None
    is_history: bool
    after: TopicPosition


@dataclass(frozen=True)
class Fault:
    """Why a topic cannot be followed at the moment."""

    reason: str  # in one line
    since_s: float  # since when, by the monotonic clock
    text: str  # reason, topic and time of day, in one line

    def check(self, patience_ms: int, what: str) -> None:
        """Raise an error if the fault has lasted too long."""
        if time.monotonic() - self.since_s > patience_ms / 1000:
            patience = format_duration(patience_ms)
            message = (
                f"{self.text}; it lasts longer than kafka.outage_patience, {patience}, and {what} may have changed"
            )
            raise BucketsError(message)


class Follower:
    """Delivers the messages of a topic exactly once and in order, from its own thread."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        take: Callable[[TopicMessage], None],
        on_lost: Callable[[int, int], None],
        on_remark: Callable[[str], None] = lambda remark: None,
        caught_up_within_s: float = CAUGHT_UP_WITHIN_S,
    ) -> None:
        """Follow a single-partition topic; nothing is asked yet.

        `take` is called with each message; `on_lost` with two offsets if messages from the first up to before the
        second were deleted before they were read; `on_remark` with a line when the topic cannot be followed, and when
        it can again.
        """
        self.fault: Fault | None = None
        self.position: TopicPosition | None = None
        """The position after the last message taken, or the end of the topic once that was reached."""
        self._kafka = kafka
        self._topic = topic
        self._take = take
        self._on_lost = on_lost
        self._on_remark = on_remark
        self._caught_up_within_s = caught_up_within_s
        self._broker = Broker(kafka)
        self._history_ends = 0
        self._end = 0
        self._stopping = threading.Event()
        self._caught_up = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, position: TopicPosition | None) -> None:
        """Begin at `position`, and wait until the topic's end is reached.

        It begins at the beginning if `position` is None, after the end, or in another topic of the same name.
        """
        self.position = position
        self._stopping.clear()
        self._caught_up.clear()
        self._thread = threading.Thread(target=self._run, args=(self._open(),), name="follower", daemon=True)
        self._thread.start()
        if not self._caught_up.wait(self._caught_up_within_s):
            fault = self.fault
            self.stop()
            if fault is not None:
                raise BucketsError(fault.text)
            raise unreachable(self._kafka, f"topic {self._topic} was not read to its end")

    def stop(self) -> None:
        """Stop following."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, consumer: Consumer | None) -> None:
        while True:
            try:
                consumer = consumer or self._open()
                self._read(consumer)
            except Exception as error:  # Whatever the fault, it must become visible, and is retried.
                self._note(error.message if isinstance(error, BucketsError) else kind_and_line(error))
            if consumer is not None:
                consumer.close()
                consumer = None
            if self._stopping.wait(AGAIN_AFTER_S):
                return

    def _open(self) -> Consumer:
        """Return a consumer that begins after the last message taken, or else at the beginning."""
        topic_id = self._broker.topic_id(self._topic, ANSWER_WITHIN_S)
        consumer = following_consumer(self._kafka, "buckets-rules")
        try:
            partition = TopicPartition(self._topic, 0)
            first, self._end = read_offsets(self._kafka, consumer, partition)
            position, offset = self.position, first
            if position is None or position.offset > self._end or is_another(position.topic_id, topic_id):
                self._history_ends = self._end
            elif position.offset < first:
                self._on_lost(position.offset, first)
            else:
                offset = position.offset
            self.position = TopicPosition(offset, topic_id)
            consumer.assign([TopicPartition(self._topic, 0, offset)])
        except BaseException as error:
            consumer.close()
            if isinstance(error, KafkaException):
                raise explain(error.args[0], self._kafka, f"reading topic {self._topic}") from None
            raise
        return consumer

    def _read(self, consumer: Consumer) -> None:
        looked_s = time.monotonic()
        while not self._stopping.is_set():
            # `poll` returns a message as soon as it arrives; `consume` would wait for more.
            message = consumer.poll(POLL_S)
            for next_message in [] if message is None else [message, *consumer.consume(AT_ONCE, 0)]:
                self._on_message(next_message)
            if time.monotonic() - looked_s > LOOK_EVERY_S:
                self._look()
                looked_s = time.monotonic()

    def _on_message(self, message: Message) -> None:
        error, offset = message.error(), message.offset() or 0
        assert self.position is not None
        if error is None:
            kind, time_ms = message.timestamp()
            time = None if kind == TIMESTAMP_NOT_AVAILABLE else time_ms
            after = TopicPosition(offset + 1, self.position.topic_id)
            is_history = offset < self._history_ends
            self._take(TopicMessage(offset, message.key(), message.value(), time, is_history, after))
            self.position = after
        elif error.code() == AT_END:
            self.position = self.position._replace(offset=max(offset, self.position.offset))
        elif may_pass(error):
            return
        else:
            raise explain(error, self._kafka, f"reading topic {self._topic}")
        if error is not None or offset + 1 >= self._end:
            # The end of the topic is reached, and it is followed from here.
            self._caught_up.set()
            if self.fault is not None:
                self.fault = None
                self._on_remark(f"topic {self._topic} is followed again")

    def _look(self) -> None:
        assert self.position is not None
        if is_another(self.position.topic_id, self._broker.topic_id(self._topic, LOOK_WITHIN_S)):
            message = "it was deleted and created again, and is read from its beginning"
            raise BucketsError(message)

    def _note(self, reason: str) -> None:
        """Keep a fault, and report it unless it is the same as before."""
        before = self.fault
        if before is not None and before.reason == reason:
            return
        since_s = time.monotonic() if before is None else before.since_s
        text = f"topic {self._topic} is not followed: {reason}"
        self.fault = Fault(reason, since_s, text)
        self._on_remark(text)
