"""Where rules and lists come from while a job runs: files, tables, topics; each feed of rules and of a list is one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from buckets.checkpoint.topic_position import TopicPosition
from buckets.events.schema import EventSchema
from buckets.lists.base import ListBase
from buckets.lists.entry import Entry
from buckets.rules.change import RuleChange
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet


@dataclass(kw_only=True)
class Read:
    """What is new since a feed was last read.

    Attributes:
        position: how far a topic has been read; None where nothing has come, and for feeds without positions.
    """

    position: TopicPosition | None = None


@dataclass
class RuleRead(Read):
    """What is new of rules.

    Attributes:
        asked: changes, in order.
        refused: messages, files or rows that are not valid changes.
    """

    asked: list[RuleChange] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


@dataclass
class ListRead(Read):
    """What is new of a list.

    Attributes:
        whole: the whole list, of a feed that reads it so; None where nothing has changed.
        changes: of a feed that reads changes.
        faults: what could not be read, each in one line; the list stays as it is.
    """

    whole: ListBase | None = None
    changes: dict[str, Entry | None] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


class Feed(Protocol):
    """Follows the rules or a list in a file, a folder, a table or a topic."""

    @property
    def origin(self) -> str:
        """What is followed, in words; a position counts for this origin only."""

    @property
    def fault(self) -> str | None:
        """Why the origin cannot be followed at the moment, in one line; None while it is followed."""

    def start(self, position: TopicPosition | None) -> None:
        """Begin to follow, from the position up to which it has been read; None: from the beginning.

        Raises:
            BucketsError: the origin cannot be read, or holds no valid rules or list before the first batch.
        """

    def stop(self) -> None:
        """Stop following."""


class RuleFeed(Feed, Protocol):
    """Follows rules."""

    def read(self, in_force: Sequence[Rule]) -> RuleRead:
        """Return what is new, at once; what is not valid is among the refused.

        Raises:
            BucketsError: the origin could not be followed for longer than the patience allows.
        """

    def follow_schema(self, schema: EventSchema) -> None:
        """Check rules against another event schema from now on; what is read whole is read again."""

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Publish that changes are refused, and why, where people can see it."""

    def export(self, rule_set: RuleSet) -> None:
        """Publish the rules in force, where the feed has somewhere to publish them."""


class ListFeed(Feed, Protocol):
    """Follows a list."""

    def read(self) -> ListRead:
        """Return what is new; the first time, the whole list or what has changed since the position.

        Raises:
            BucketsError: the list could not be followed for longer than the patience allows.
        """
