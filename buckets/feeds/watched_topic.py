"""Reads changes from a compacted topic of one partition that is followed in the driver.

How far the topic has been read is stored with the version that resulted, so that a restart goes on there.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from buckets.checkpoint.topic_generations import TopicPosition
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, first_line
from buckets.feeds.feed import Read
from buckets.kafka.faults import Broker
from buckets.kafka.follower import CAUGHT_UP_WITHIN_S, Follower, TopicMessage
from buckets.rules.rule import Rule

R = TypeVar("R", bound=Read)


class WatchedTopic(ABC, Generic[R]):
    """Collects what the messages of a topic say until it is asked for."""

    blank: type[R]  # Nothing new, to which messages add what they say
    what: str  # What the topic changes
    setting = ""  # What an error about the topic begins with
    caught_up_within_s = CAUGHT_UP_WITHIN_S  # How long a start waits until the end of the topic is reached

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        on_remark: Callable[[str], None] = lambda remark: None,
        others: Sequence[str] = (),
    ) -> None:
        """Follow `topic`.

        Args:
            kafka: how Kafka is reached.
            topic: the topic of changes.
            on_remark: called with a line when the topic is not followed, for each reason, and when it is again.
            others: topics that must exist too.
        """
        self.origin = f"topic {topic}"
        self._kafka, self._topic, self._others = kafka, topic, others
        self._broker = Broker(kafka)
        self._lock = threading.Lock()
        self._read = self.blank()
        self._follower = Follower(kafka, topic, self._on_message, self._on_lost, on_remark, self.caught_up_within_s)

    @abstractmethod
    def _take(self, read: R, message: TopicMessage, place: str) -> None:
        """Add what a message says; one for which this raises an error is refused."""

    @abstractmethod
    def _refuse(self, read: R, message: TopicMessage, place: str, reason: str) -> None:
        """Add that a message is not valid."""

    @abstractmethod
    def _lose(self, read: R, first: int, end: int) -> None:
        """Add that the messages from one offset up to before another were gone before they were read."""

    def start(self, position: TopicPosition | None) -> None:
        """Begin to follow, and read what is there already.

        Raises:
            BucketsError: a topic is missing, or that of changes has several partitions.
            Outage: Kafka does not answer.
        """
        partitions = self._broker.check_topics([self._topic, *self._others])[self._topic]
        if partitions != 1:
            message = (
                f"{self.setting}topic {self._topic!r} has {partitions} partitions, and changes of {self.what} need "
                "one order; name a topic of one partition"
            )
            raise BucketsError(message)
        self._follower.start(position)
        with self._lock:
            # Known even if there is no message at all: what comes after this start is not history.
            self._read.position = self._follower.position

    @property
    def fault(self) -> str | None:
        """Why the topic is not followed at the moment, in one line; None where it is."""
        fault = self._follower.fault
        return None if fault is None else fault.text

    def stop(self) -> None:
        """Stop following."""
        self._follower.stop()

    def read(self, in_force: Sequence[Rule] = ()) -> R:
        """Return what has been written since the last time, whatever is in force.

        Raises:
            BucketsError: the topic has not been followed for longer than the patience allows.
        """
        fault = self._follower.fault
        if fault is not None:
            fault.check(self._kafka.outage_patience, self.what)
        with self._lock:
            read, self._read = self._read, self.blank()
        return read

    def _on_message(self, message: TopicMessage) -> None:
        place = f"{self._topic}@{message.offset}"
        with self._lock:
            try:
                self._take(self._read, message, place)
            except Exception as error:  # Whatever it is, this message must not hold up the next one for ever.
                self._refuse(self._read, message, place, first_line(error))
            self._read.position = message.after

    def _on_lost(self, first: int, end: int) -> None:
        with self._lock:
            self._lose(self._read, first, end)
