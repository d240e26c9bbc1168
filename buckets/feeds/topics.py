"""Rules and lists from compacted single-partition topics, followed in the driver.

The position in a topic is stored with the version that resulted, so that a restart continues there. Keys and values of
rules are described in `buckets.rules.change`. Reading a topic of rules from its beginning yields the present rules;
requests in it to clear or export are history and are not repeated. Rules in force stay until the topic mentions them.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

from buckets.checkpoint.topic_generations import TopicPosition
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, first_line
from buckets.feeds.feed import Feed, ListRead, Read, RuleFeed, RuleRead
from buckets.json_text import write_json
from buckets.kafka.faults import Broker
from buckets.kafka.follower import CAUGHT_UP_WITHIN_S, Follower, TopicMessage
from buckets.kafka.sender import Sender
from buckets.lists.base import Entry
from buckets.lists.keys import TEXT_KEYS, KeyForm
from buckets.moment import parse_moment_ms
from buckets.rules.change import parse_change
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

R = TypeVar("R", bound=Read)


class WatchedTopic(ABC, Feed[R]):
    """Collects the contents of a topic's messages until `read` takes them."""

    blank: Callable[[], R]  # Builds an empty result, to which messages are added
    what: str  # What the topic changes
    setting = ""  # The start of an error about the topic
    caught_up_within_s = CAUGHT_UP_WITHIN_S  # How long a start waits for the topic's end

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        on_remark: Callable[[str], None] = lambda remark: None,
        others: Sequence[str] = (),
    ) -> None:
        """Follow `topic`; `others` must exist too.

        `on_remark` receives a line when the topic cannot be followed, once per reason, and when it can again.
        """
        self.origin = f"topic {topic}"
        self._kafka, self._topic, self._others = kafka, topic, others
        self._lock = threading.Lock()
        self._read = self.blank()
        self._follower = Follower(kafka, topic, self._on_message, self._on_lost, on_remark, self.caught_up_within_s)

    @abstractmethod
    def _take(self, read: R, message: TopicMessage, place: str) -> None:
        """Add the contents of a message; if this raises, the message is refused."""

    @abstractmethod
    def _refuse(self, read: R, message: TopicMessage, place: str, reason: str) -> None:
        """Record a refused message."""

    @abstractmethod
    def _lose(self, read: R, first: int, end: int) -> None:
        """Record that messages in the offset range [first, end) were deleted before they were read."""

    def start(self, position: TopicPosition | None) -> None:
        """Start following, and read the existing messages."""
        partitions = Broker(self._kafka).check_topics([self._topic, *self._others])[self._topic]
        if partitions != 1:
            message = (
                f"{self.setting}topic {self._topic!r} has {partitions} partitions, and changes of {self.what} need "
                "one order; name a topic of one partition"
            )
            raise BucketsError(message)
        self._follower.start(position)
        with self._lock:
            # Determined even without any message: what comes after this start is not history.
            self._read.position = self._follower.position

    @property
    def fault(self) -> str | None:
        """Why the topic cannot be followed at the moment, in one line; None while it is followed."""
        fault = self._follower.fault
        return None if fault is None else fault.text

    def stop(self) -> None:
        """Stop following."""
        self._follower.stop()

    def read(self, in_force: Sequence[Rule] = ()) -> R:
        """Return what was written since the last call; `in_force` is ignored."""
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
            except Exception as error:  # Whatever the fault, this message must not hold up the next one.
                self._refuse(self._read, message, place, first_line(error))
            self._read.position = message.after

    def _on_lost(self, first: int, end: int) -> None:
        with self._lock:
            self._lose(self._read, first, end)


LARGEST_REJECTED = 100_000
"""Characters of a rejected message that are published: topics limit the size of messages."""
_OF_RUNNING_JOBS = ("clear_state", "clear_all_state", "export")


class RulesTopic(WatchedTopic[RuleRead], RuleFeed):
    """A feed of rule changes in a topic; messages are checked as they arrive."""

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
        """Follow `topic`; `rejected` receives invalid messages, and `exported` the rules in force."""
        super().__init__(kafka, topic, on_remark, others=(rejected, exported))
        self._rejected, self._exported = rejected, exported

    def _take(self, read: RuleRead, message: TopicMessage, place: str) -> None:
        change = parse_change(_shown(message.key), _shown(message.value), place, message.time_ms)
        if change is not None and not (message.is_history and change.change in _OF_RUNNING_JOBS):
            read.asked.append(change)

    def _refuse(self, read: RuleRead, message: TopicMessage, place: str, reason: str) -> None:
        read.refused.append(Refusal(place, reason, _shown(message.value) or ""))

    def _lose(self, read: RuleRead, first: int, end: int) -> None:
        reason = (
            f"the messages from offset {first} to {end - 1} were removed from the topic before they were read, and "
            "what they changed is unknown; apply the rules again, and keep the topic compacted (cleanup.policy=compact)"
        )
        read.refused.append(Refusal(f"{self._topic}@{first}", reason, ""))

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Publish refusals with their reasons."""
        for refusal in refusals:
            raw, size = refusal.raw[:LARGEST_REJECTED], len(refusal.raw)
            reason = refusal.reason[:LARGEST_REJECTED]
            value = {"place": refusal.origin, "reason": reason, "message": raw, "characters": size}
            self._send(self._rejected, refusal.origin, value)
        self._sender.flush()

    def export(self, rule_set: RuleSet) -> None:
        """Publish the rules in force, each with the version of the rule set."""
        for rule in rule_set.rules:
            value = {"ruleset_version": rule_set.version, "rule": rule.model_dump(by_alias=True, mode="json")}
            self._send(self._exported, rule.rule_id, value)
        self._sender.flush()

    def _send(self, topic: str, key: str, value: dict[str, Any]) -> None:
        self._sender.send(topic, key, write_json(value), {})

    @cached_property
    def _sender(self) -> Sender:
        """The only sender, kept because a sender's first message takes a second, during which a batch would wait."""
        return Sender(self._kafka)


def _shown(value: bytes | None) -> str | None:
    """Return a message as text; bytes that are not UTF-8 appear with backslashes, which makes the text invalid JSON."""
    return None if value is None else value.decode("utf-8", errors="backslashreplace")


MOST_FAULTS = 20  # The most invalid messages reported one by one between two looks


class ListTopic(WatchedTopic[ListRead]):
    """A feed of the changes of a list in a topic."""

    what = "a list"
    # A topic of a million entries takes less, even on a busy machine.
    caught_up_within_s = 600.0

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        on_remark: Callable[[str], None] = lambda remark: None,
        form: KeyForm = TEXT_KEYS,
    ) -> None:
        """Follow `topic`, whose keys have this form."""
        self.blank, self._form = partial(ListRead, form=form), form
        super().__init__(kafka, topic, on_remark)
        if form != TEXT_KEYS:
            # Entries read under the old form of keys are read again.
            self.origin += f", {form.parts} columns, {form.match}"

    def _take(self, read: ListRead, message: TopicMessage, place: str) -> None:
        key, entry = read_entry(message.key, message.value, self._form)
        read.changes[key] = entry

    def _refuse(self, read: ListRead, message: TopicMessage, place: str, reason: str) -> None:
        if len(read.faults) < MOST_FAULTS:
            read.faults.append(f"{place}: {reason}")

    def _lose(self, read: ListRead, first: int, end: int) -> None:
        read.faults.append(
            f"the messages from offset {first} to {end - 1} were removed from topic {self._topic} before they were "
            "read, and what they changed is unknown; send those entries again, and keep the topic compacted"
        )


def read_entry(key: bytes | None, value: bytes | None, form: KeyForm = TEXT_KEYS) -> tuple[str, Entry | None]:
    """Return a message as a key and its entry, None to remove it; raises ValueError if it is neither."""
    name = form.read(_text(key, "the key"))
    if value is None:
        return name, None
    try:
        fields = json.loads(_text(value, "the value"))
    except json.JSONDecodeError as error:
        message = f"the value of {name!r} is not JSON ({first_line(error)}); send an object, or nothing to remove it"
        raise ValueError(message) from None
    if fields is None:
        return name, None
    if not isinstance(fields, Mapping):
        message = f"the value of {name!r} must be a JSON object such as {{}}, or nothing to remove it"
        raise ValueError(message)
    texts: dict[str, str] = {}
    for field, given in fields.items():
        if isinstance(given, Mapping | list):
            message = f"{field} of {name!r} must be a text, a number, true, false or null"
            raise ValueError(message)
        if given is not None and field != "key":
            texts[field] = given if isinstance(given, str) else json.dumps(given)
    until, author, reason = (texts.pop(known, "") for known in ("until", "author", "reason"))
    until_ms = parse_moment_ms(until) if until else None
    kept: dict[str, Any] = {"until_ms": until_ms, "author": author, "reason": reason}
    return name, Entry(texts, **kept) if texts else Entry(**kept)  # entries without values share an empty mapping


def _text(raw: bytes | None, what: str) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError:
        message = f"{what} is not UTF-8"
        raise ValueError(message) from None
