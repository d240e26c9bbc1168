"""Rules from a compacted topic of one partition, followed by a consumer in the driver.

Keys and values are as `buckets.rule_change` describes them. What has been read is remembered with the version of the
rules that came of it, so that a restart goes on there, and clears nothing twice.

A topic that is read from its beginning says which rules there are; what it once asked to be cleared or exported is
history, and is not done again. Rules in force that the topic does not name stay in force until it does.
"""

import json
import threading
import uuid
from collections.abc import Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from buckets.errors import BucketsError
from buckets.kafka.faults import ANSWER_WITHIN_S, Broker, client_settings, explain, unreachable
from buckets.kafka.sender import Sender
from buckets.kafka.settings import KafkaSettings
from buckets.revision import Refusal
from buckets.rule import Rule
from buckets.rule_change import parse_change
from buckets.rule_feed import Read
from buckets.rule_set import RuleSet

CAUGHT_UP_WITHIN_S = 60.0
POLL_S = 0.1
AT_ONCE = 500
LARGEST_REJECTED = 100_000
"""Characters of a rejected message that go into the topic for them; a topic takes no message of any size."""
_OF_RUNNING_JOBS = ("clear_state", "clear_all_state", "export")
_END = KafkaError._PARTITION_EOF
_CONSUMER: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    # Says when the end is reached, also where compaction has removed the last messages before it.
    "enable.partition.eof": True,
    # A change is handed over the moment it is written.
    "fetch.wait.max.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}


class RulesTopic:
    """A feed of the changes in a topic."""

    def __init__(self, kafka: KafkaSettings, topic: str, rejected: str, exported: str) -> None:
        """Follow `topic`.

        Args:
            kafka: how Kafka is reached.
            topic: the topic of changes.
            rejected: where messages go that are no valid change.
            exported: where the rules in force go when somebody asks for them.
        """
        self.place = f"topic {topic}"
        self._kafka = kafka
        self._topic = topic
        self._rejected = rejected
        self._exported = exported
        self._broker = Broker(kafka)
        self._lock = threading.Lock()
        self._found = Read()
        self._stopping = threading.Event()
        self._caught_up = threading.Event()
        self._thread: threading.Thread | None = None
        self._sender: Sender | None = None
        self._history_ends = 0

    def start(self, position: int | None) -> None:
        """Begin to follow, and read what is there already.

        Raises:
            BucketsError: a topic is missing, or the topic of rules has several partitions.
            Outage: Kafka does not answer.
        """
        self._check()
        consumer = Consumer({**client_settings(self._kafka), **_CONSUMER, "group.id": f"buckets-rules-{uuid.uuid4()}"})
        partition = TopicPartition(self._topic, 0)
        try:
            _, end = consumer.get_watermark_offsets(partition, timeout=ANSWER_WITHIN_S)
        except KafkaException as error:
            raise explain(error.args[0], self._kafka, f"reading topic {self._topic}") from None
        going_on = position is not None and position <= end
        begin = position if going_on and position is not None else OFFSET_BEGINNING
        consumer.assign([TopicPartition(self._topic, 0, begin)])
        self._stopping.clear()
        self._caught_up.clear()
        self._history_ends = 0 if going_on else end
        self._thread = threading.Thread(target=self._follow, args=(consumer, end), daemon=True)
        self._thread.start()
        if not self._caught_up.wait(CAUGHT_UP_WITHIN_S):
            self.stop()
            raise unreachable(self._kafka, f"topic {self._topic} was not read to its end")
        with self._lock:
            # Known also where there is no message at all: what comes after this start is no history.
            self._found.position = max(end, self._found.position or 0)

    def _check(self) -> None:
        partitions = self._broker.check_topics([self._topic, self._rejected, self._exported])[self._topic]
        if partitions != 1:
            message = (
                f"rules.topic: topic {self._topic!r} has {partitions} partitions, and changes of rules need one order; "
                "name a topic of one partition"
            )
            raise BucketsError(message)

    def _follow(self, consumer: Consumer, end: int) -> None:
        """Read until told to stop; what passes, such as a broker that is away, librdkafka waits out itself."""
        while not self._stopping.is_set():
            try:
                # One is handed over as soon as it is there; `consume` would wait for more.
                first = consumer.poll(POLL_S)
                messages = [first, *consumer.consume(AT_ONCE, 0)] if first is not None else []
            except KafkaException:
                self._stopping.wait(POLL_S)
                continue
            for message in messages:
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    self._take(message)
                if (error is None and offset + 1 >= end) or (error is not None and error.code() == _END):
                    self._caught_up.set()
        consumer.close()

    def _take(self, message: Message) -> None:
        offset = message.offset() or 0
        place = f"{self._topic}@{offset}"
        key, value = _text(message.key()), _text(message.value())
        kind, time_ms = message.timestamp()
        with self._lock:
            self._found.position = offset + 1
            try:
                change = parse_change(key, value, place, time_ms if kind != TIMESTAMP_NOT_AVAILABLE else None)
            except ValueError as error:
                self._found.refused.append(Refusal(place, str(error), value or ""))
                return
            if offset >= self._history_ends or change.change not in _OF_RUNNING_JOBS:
                self._found.asked.append(change)

    def read(self, in_force: Sequence[Rule]) -> Read:
        """What has been written since the last time."""
        with self._lock:
            found, self._found = self._found, Read()
        return found

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Send what is refused to the topic for it, with the reason."""
        sender = self._open_sender()
        for refusal in refusals:
            raw, size = refusal.raw[:LARGEST_REJECTED], len(refusal.raw)
            reason = refusal.reason[:LARGEST_REJECTED]
            value = {"place": refusal.place, "reason": reason, "message": raw, "characters": size}
            sender.send(self._rejected, refusal.place, json.dumps(value, ensure_ascii=False), {})
        sender.flush()

    def export(self, rule_set: RuleSet) -> None:
        """Send the rules in force, each with the version of the rule set."""
        sender = self._open_sender()
        for rule in rule_set.rules:
            value = {"ruleset_version": rule_set.version, "rule": rule.model_dump(by_alias=True, mode="json")}
            sender.send(self._exported, rule.rule_id, json.dumps(value, ensure_ascii=False), {})
        sender.flush()

    def _open_sender(self) -> Sender:
        """The one sender, kept since its first message takes a second and a batch waits for it."""
        self._sender = self._sender or Sender(self._kafka)
        return self._sender

    def stop(self) -> None:
        """Follow no more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _text(value: bytes | str | None) -> str | None:
    """Bytes of a message as text; what is no UTF-8 is shown with backslashes, and is then no JSON."""
    return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value
