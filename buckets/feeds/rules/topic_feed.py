"""Rules from a topic; keys and values are as `buckets.rules.change` describes them.

A restart goes on where the topic has been read to, and clears nothing twice.

A topic that is read from its beginning says which rules there are; requests to clear or export in it are history, and
are not carried out again. Rules in force that the topic does not name stay in force until it does.
"""

import json
from collections.abc import Callable, Sequence

from buckets.config.kafka import KafkaSettings
from buckets.events.schema import EventSchema
from buckets.feeds.feed import RuleRead
from buckets.feeds.watched_topic import WatchedTopic
from buckets.kafka.follower import TopicMessage
from buckets.kafka.sender import Sender
from buckets.rules.change import parse_change
from buckets.rules.revision import Refusal
from buckets.rules.rule_set import RuleSet

LARGEST_REJECTED = 100_000
"""Characters of a rejected message that are sent to the topic for them: messages in a topic are limited in size."""
_OF_RUNNING_JOBS = ("clear_state", "clear_all_state", "export")


class RulesTopic(WatchedTopic[RuleRead]):
    """A feed of the changes in a topic."""

    blank = RuleRead
    what = "rules"
    setting = "rules.topic: "

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
        super().__init__(kafka, topic, on_remark, others=(rejected, exported))
        self._rejected = rejected
        self._exported = exported
        self._sender: Sender | None = None

    def _take(self, read: RuleRead, message: TopicMessage, place: str) -> None:
        change = parse_change(_text(message.key), _text(message.value), place, message.time_ms)
        if change is not None and not (message.is_history and change.change in _OF_RUNNING_JOBS):
            read.asked.append(change)

    def _refuse(self, read: RuleRead, message: TopicMessage, place: str, reason: str) -> None:
        read.refused.append(Refusal(place, reason, _text(message.value) or ""))

    def _lose(self, read: RuleRead, first: int, end: int) -> None:
        reason = (
            f"the messages from offset {first} to {end - 1} were removed from the topic before they were read, and "
            "what they changed is unknown; apply the rules again, and keep the topic compacted (cleanup.policy=compact)"
        )
        read.refused.append(Refusal(f"{self._topic}@{first}", reason, ""))

    def follow_schema(self, schema: EventSchema) -> None:
        """Do nothing: messages are checked when they are taken, and one that was refused is among the rejected."""

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
        """Return the one sender, kept because the first message of a sender takes a second and a batch waits for it."""
        self._sender = self._sender or Sender(self._kafka)
        return self._sender


def _text(value: bytes | None) -> str | None:
    """Return bytes of a message as text; those that are not UTF-8 are shown with backslashes, which is not JSON."""
    return None if value is None else value.decode("utf-8", errors="backslashreplace")
