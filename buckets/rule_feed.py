"""Where rules come from while a job runs: a topic, a file or folder, a table, or a fixed list."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from buckets.errors import BucketsError
from buckets.revision import Refusal
from buckets.rule import Rule
from buckets.rule_change import RuleChange, changes_between
from buckets.rule_set import RuleSet


@dataclass
class Read:
    """What a feed has found since it was last asked.

    Attributes:
        asked: changes, in order.
        refused: messages, files or rows that are none.
        position: how far a topic has been read; None for feeds that know no such thing.
    """

    asked: list[RuleChange] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    position: int | None = None


class RuleFeed(Protocol):
    """A place where rules are kept or announced."""

    @property
    def place(self) -> str:
        """The place in words; a position counts for this place only."""

    @property
    def fault(self) -> str | None:
        """Why the place cannot be followed at the moment, in one line; None where it is."""

    def start(self, position: int | None) -> None:
        """Begin to follow, from the position up to which it was read before; None: from the beginning.

        Raises:
            BucketsError: the place cannot be read, or, before the first batch, holds no valid rules.
        """

    def read(self, in_force: Sequence[Rule]) -> Read:
        """What is new; returns at once. What is wrong with it is among the refused.

        Raises:
            BucketsError: the place could not be followed for longer than one waits.
        """

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Say that changes are not made, and why, where people can see it."""

    def export(self, rule_set: RuleSet) -> None:
        """Publish the rules in force, where the feed has a place for that."""

    def stop(self) -> None:
        """Follow no more."""


class FixedRules:
    """Rules that stay as they are."""

    place = "fixed rules"
    fault = None

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Offer `rules`."""
        self._rules = tuple(rules)

    def start(self, position: int | None) -> None:
        """Nothing to follow."""

    def read(self, in_force: Sequence[Rule]) -> Read:
        """The rules, as far as they are not in force."""
        return Read(changes_between(in_force, self._rules))

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Rules that nobody can correct while the job runs end it.

        Raises:
            BucketsError: always.
        """
        raise BucketsError(refusals[0].reason)

    def export(self, rule_set: RuleSet) -> None:
        """Nobody can ask for it."""

    def stop(self) -> None:
        """Nothing to end."""
