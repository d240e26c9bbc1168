"""Rules from a compacted topic of one partition, followed in the driver.

Keys and values are as `buckets.rules.change` describes them. How far the topic has been read is stored with the
version of the rules that resulted, so that a restart goes on there, and clears nothing twice.

A topic that is read from its beginning says which rules there are; requests to clear or export in it are history, and
are not carried out again. Rules in force that the topic does not name stay in force until it does.
"""

import json
import threading
from collections.abc import Callable, Sequence

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from buckets.checkpoint.topic_position import TopicPosition
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, first_line
from buckets.kafka.faults import Broker
from buckets.kafka.follower import Follower
from buckets.kafka.sender import Sender
from buckets.rule_feeds.feed import Read
from buckets.rules.change import parse_change
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

LARGEST_REJECTED = 100_000
"""Characters of a rejected message that are sent to the topic for them: messages in a topic are limited in size."""
_OF_RUNNING_JOBS = ("clear_state", "clear_all_state", "export")


class RulesTopic:
    """A feed of the changes in a topic."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        rejected: str,
        exported: str,
        on_remark: Callable[[str], None] = lambda remark: None,
    ) -> None:
        """Follow `topic`.

        Args:
            kafka: how Kafka is reached.
            topic: the topic of changes.
            rejected: where messages that are not a valid change go.
            exported: where the rules in force go when they are asked for.
            on_remark: called with a line when the topic is not followed, for each reason, and when it is again.
        """
        self.origin = f"topic {topic}"
        self._kafka = kafka
        self._topic = topic
        self._rejected = rejected
        self._exported = exported
        self._broker = Broker(kafka)
        self._lock = threading.Lock()
        self._found = Read()
        self._sender: Sender | None = None
        self._follower = Follower(kafka, topic, self._take, self._on_lost, on_remark)

    def start(self, position: TopicPosition | None) -> None:
        """Begin to follow, and read what is there already.

        Raises:
            BucketsError: a topic is missing, or the topic of rules has several partitions.
            Outage: Kafka does not answer.
        """
        self._check()
        self._follower.start(position)
        with self._lock:
            # Known even if there is no message at all: what comes after this start is not history.
            self._found.position = self._follower.position

    def _check(self) -> None:
        partitions = self._broker.check_topics([self._topic, self._rejected, self._exported])[self._topic]
        if partitions != 1:
            message = (
                f"rules.topic: topic {self._topic!r} has {partitions} partitions, and changes of rules need one order; "
                "name a topic of one partition"
            )
            raise BucketsError(message)

    def _take(self, message: Message, is_history: bool) -> None:
        offset = message.offset() or 0
        origin = f"{self._topic}@{offset}"
        key, value = _text(message.key()), _text(message.value())
        kind, time_ms = message.timestamp()
        with self._lock:
            self._found.position = self._follower.after(message)
            try:
                change = parse_change(key, value, origin, time_ms if kind != TIMESTAMP_NOT_AVAILABLE else None)
            except Exception as error:  # Whatever it is, this message must not hold up the next one for ever.
                self._found.refused.append(Refusal(origin, first_line(error), value or ""))
                return
            if change is not None and not (is_history and change.change in _OF_RUNNING_JOBS):
                self._found.asked.append(change)

    def _on_lost(self, first: int, end: int) -> None:
        reason = (
            f"the messages from offset {first} to {end - 1} were removed from the topic before they were read, and "
            "what they changed is unknown; apply the rules again, and keep the topic compacted (cleanup.policy=compact)"
        )
        with self._lock:
            self._found.refused.append(Refusal(f"{self._topic}@{first}", reason, ""))

    @property
    def fault(self) -> str | None:
        """Why the topic is not followed at the moment, in one line; None where it is."""
        fault = self._follower.fault
        return None if fault is None else fault.text

    def read(self, in_force: Sequence[Rule]) -> Read:
        """What has been written since the last time.

        Raises:
            BucketsError: the topic has not been followed for longer than the patience allows.
        """
        fault = self._follower.fault
        if fault is not None:
            fault.check(self._kafka.outage_patience, "rules")
        with self._lock:
            found, self._found = self._found, Read()
        return found

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Send what is refused to the topic for it, with the reason."""
        sender = self._open_sender()
        for refusal in refusals:
            raw, size = refusal.raw[:LARGEST_REJECTED], len(refusal.raw)
            reason = refusal.reason[:LARGEST_REJECTED]
            value = {"place": refusal.origin, "reason": reason, "message": raw, "characters": size}
            sender.send(self._rejected, refusal.origin, json.dumps(value, ensure_ascii=False), {})
        sender.flush()

    def export(self, rule_set: RuleSet) -> None:
        """Send the rules in force, each with the version of the rule set."""
        sender = self._open_sender()
        for rule in rule_set.rules:
            value = {"ruleset_version": rule_set.version, "rule": rule.model_dump(by_alias=True, mode="json")}
            sender.send(self._exported, rule.rule_id, json.dumps(value, ensure_ascii=False), {})
        sender.flush()

    def _open_sender(self) -> Sender:
        """The one sender, kept because the first message of a sender takes a second and a batch waits for it."""
        self._sender = self._sender or Sender(self._kafka)
        return self._sender

    def stop(self) -> None:
        """Stop following."""
        self._follower.stop()


def _text(value: bytes | str | None) -> str | None:
    """Bytes of a message as text; what is not UTF-8 is shown with backslashes, which is not JSON."""
    return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value
