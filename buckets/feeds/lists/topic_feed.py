"""A list in a topic.

A message's key is the key of an entry. Its value is a JSON object, in which `until`, `author` and `reason` are what
they are in a file and all else are values, or nothing at all, which removes the entry.
"""

import json
from collections.abc import Mapping
from typing import Any

from buckets.errors import first_line
from buckets.feeds.feed import ListRead
from buckets.feeds.watched_topic import WatchedTopic
from buckets.kafka.follower import TopicMessage
from buckets.lists.base import Entry
from buckets.lists.list_file import LONGEST_KEY, read_moment_ms

MOST_FAULTS = 20  # So many messages that are not valid are reported one by one between two looks


class ListTopic(WatchedTopic[ListRead]):
    """A feed of the changes in a topic."""

    blank = ListRead
    what = "a list"
    # A topic of a million entries is read in less, also on a busy machine.
    caught_up_within_s = 600.0

    def _take(self, read: ListRead, message: TopicMessage, place: str) -> None:
        key, entry = read_message(message.key, message.value)
        read.changes[key] = entry

    def _refuse(self, read: ListRead, message: TopicMessage, place: str, reason: str) -> None:
        if len(read.faults) < MOST_FAULTS:
            read.faults.append(f"{place}: {reason}")

    def _lose(self, read: ListRead, first: int, end: int) -> None:
        read.faults.append(
            f"the messages from offset {first} to {end - 1} were removed from topic {self._topic} before they were "
            "read, and what they changed is unknown; send those entries again, and keep the topic compacted"
        )


def read_message(key: bytes | None, value: bytes | None) -> tuple[str, Entry | None]:
    """Return a message as a key and its entry; None where it removes the entry.

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
    """Return an entry from the fields of a message.

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
    until_ms = read_moment_ms(until) if until else None
    kept: dict[str, Any] = {"until_ms": until_ms, "author": author, "reason": reason}
    return Entry(texts, **kept) if texts else Entry(**kept)  # entries without values share an empty mapping


def _text(raw: bytes | None, what: str) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError:
        message = f"{what} is not UTF-8"
        raise ValueError(message) from None
