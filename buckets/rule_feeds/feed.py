"""Where rules come from while a job runs: a topic, a file or folder, a table, or a fixed list."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from buckets.checkpoint.topic_position import TopicPosition
from buckets.rules.change import RuleChange
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet


@dataclass
class Read:
    """What a feed has found since it was last asked.

    Attributes:
        asked: changes, in order.
        refused: messages, files or rows that are not valid changes.
        position: how far a topic has been read; None for feeds without positions.
    """

    asked: list[RuleChange] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    position: TopicPosition | None = None


class RuleFeed(Protocol):
    """Follows the rules of a topic, a file or folder, or a table."""

    @property
    def origin(self) -> str:
        """What is followed, in words; a position counts for this origin only."""

    @property
    def fault(self) -> str | None:
        """Why the origin cannot be followed at the moment, in one line; None while it is followed."""

    def start(self, position: TopicPosition | None) -> None:
        """Begin to follow, from the position up to which it has been read; None: from the beginning.

        Raises:
            BucketsError: the origin cannot be read, or holds no valid rules before the first batch.
        """

    def read(self, in_force: Sequence[Rule]) -> Read:
        """What is new; returns at once. What is not valid is among the refused.

        Raises:
            BucketsError: the origin could not be followed for longer than the patience allows.
        """

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Publish that changes are refused, and why, where people can see it."""

    def export(self, rule_set: RuleSet) -> None:
        """Publish the rules in force, where the feed has somewhere to publish them."""

    def stop(self) -> None:
        """Stop following."""
