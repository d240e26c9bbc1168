"""A list in a compacted topic of one partition, followed in the driver.

A message's key is the key of an entry. Its value is a JSON object, of which `until`, `author` and `reason` are what
they are in a file and all else are values, or nothing at all, which removes the entry. How far the topic has been read
is stored with the version of the list that resulted, so that a restart goes on there.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Message

from buckets.checkpoint.topic_position import TopicPosition
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, first_line
from buckets.kafka.faults import Broker
from buckets.kafka.follower import Follower
from buckets.list_feeds.feed import ListRead
from buckets.lists.entry import Entry
from buckets.lists.list_file import LONGEST_KEY, read_moment_ms

CAUGHT_UP_WITHIN_S = 600.0
"""A topic of a million entries is read in less, also on a busy machine."""
MOST_FAULTS = 20
"""So many messages that are not valid are reported one by one between two looks."""


class ListTopic:
    """A feed of the changes in a topic."""

    def __init__(
        self, kafka: KafkaSettings, topic: str, on_remark: Callable[[str], None] = lambda remark: None
    ) -> None:
        """Follow `topic`.

        Args:
            kafka: how Kafka is reached.
            topic: the topic.
            on_remark: called with a line when the topic is not followed, for each reason, and when it is again.
        """
        self.origin = f"topic {topic}"
        self._kafka, self._topic = kafka, topic
        self._broker = Broker(kafka)
        self._lock = threading.Lock()
        self._changes: dict[str, Entry | None] = {}
        self._faults: list[str] = []
        self._position: TopicPosition | None = None
        self._follower = Follower(kafka, topic, self._take, self._on_lost, on_remark, CAUGHT_UP_WITHIN_S)

    def start(self, position: TopicPosition | None) -> None:
        """Begin to follow, and read what is there already.

        Raises:
            BucketsError: the topic is missing, or has several partitions.
            Outage: Kafka does not answer.
        """
        partitions = self._broker.check_topics([self._topic])[self._topic]
        if partitions != 1:
            message = (
                f"topic {self._topic!r} has {partitions} partitions, and changes of a list need one order; "
                "name a topic of one partition"
            )
            raise BucketsError(message)
        self._follower.start(position)
        with self._lock:
            self._position = self._follower.position

    def _take(self, message: Message, is_history: bool) -> None:
        offset = message.offset() or 0
        with self._lock:
            self._position = self._follower.after(message)
            try:
                key, entry = read_message(message.key(), message.value())
            except Exception as error:  # Whatever it is, this message must not hold up the next one for ever.
                if len(self._faults) < MOST_FAULTS:
                    self._faults.append(f"{self._topic}@{offset}: {first_line(error)}")
                return
            self._changes[key] = entry

    def _on_lost(self, first: int, end: int) -> None:
        reason = (
            f"the messages from offset {first} to {end - 1} were removed from topic {self._topic} before they were "
            "read, and what they changed is unknown; send those entries again, and keep the topic compacted"
        )
        with self._lock:
            self._faults.append(reason)

    @property
    def fault(self) -> str | None:
        """Why the topic is not followed at the moment, in one line; None where it is."""
        fault = self._follower.fault
        return None if fault is None else fault.text

    def read(self) -> ListRead:
        """What has been written since the last time.

        Raises:
            BucketsError: the topic has not been followed for longer than the patience allows.
        """
        fault = self._follower.fault
        if fault is not None:
            fault.check(self._kafka.outage_patience, "a list")
        with self._lock:
            changes, self._changes = self._changes, {}
            faults, self._faults = self._faults, []
            return ListRead(changes=changes, faults=faults, position=self._position)

    def stop(self) -> None:
        """Stop following."""
        self._follower.stop()


def read_message(key: Any, value: Any) -> tuple[str, Entry | None]:
    """A message as a key and its entry; None where it removes the entry.

    Raises:
        ValueError: it is neither; says why.
    """
    name = _text(key, "the key")
    if not name or len(name) > LONGEST_KEY:
        message = f"the key must have 1 to {LONGEST_KEY:,} characters, and has {len(name):,}"
        raise ValueError(message)
    if value is None:
        return name, None
    try:
        fields = json.loads(_text(value, "the value"))
    except json.JSONDecodeError as error:
        message = f"the value of {name!r} is no JSON ({first_line(error)}); send an object, or nothing to remove it"
        raise ValueError(message) from None
    if fields is None:
        return name, None
    if not isinstance(fields, Mapping):
        message = f"the value of {name!r} must be a JSON object such as {{}}, or nothing to remove it"
        raise ValueError(message)
    return name, entry_of(name, fields)


def entry_of(name: str, fields: Mapping[str, Any]) -> Entry:
    """An entry from the fields of a message.

    Raises:
        ValueError: one of them is no text, number or truth.
    """
    texts: dict[str, str] = {}
    for field, value in fields.items():
        if isinstance(value, Mapping | list):
            message = f"{field} of {name!r} must be a text, a number, true, false or null"
            raise ValueError(message)
        if value is not None and field != "key":
            texts[field] = value if isinstance(value, str) else json.dumps(value)
    until, author, reason = (texts.pop(name, "") for name in ("until", "author", "reason"))
    said: dict[str, Any] = {"until_ms": read_moment_ms(until) if until else None, "author": author, "reason": reason}
    return Entry(texts, **said) if texts else Entry(**said)


def _text(raw: Any, what: str) -> str:
    try:
        return raw.decode("utf-8") if isinstance(raw, bytes) else str(raw or "")
    except UnicodeDecodeError:
        message = f"{what} is not UTF-8"
        raise ValueError(message) from None
