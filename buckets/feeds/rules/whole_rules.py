"""Rules that stand somewhere as a whole: what is there is in force."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from buckets.checkpoint.topic_position import TopicPosition
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.feeds.feed import RuleRead
from buckets.feeds.watched import Watched
from buckets.rules.change import RuleChange
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

T = TypeVar("T")


class RefusedRules(BucketsError):
    """What is wrong with the rules that are there; the text is the first refusal."""

    def __init__(self, refused: Sequence[Refusal]) -> None:
        """Take what is refused, of which there is some."""
        super().__init__(f"rules {refused[0].origin}: {refused[0].reason}")
        self.refused = list(refused)


class WholeRules(ABC, Generic[T]):
    """A feed of files or a table, which are read again after each change."""

    fault = None

    def __init__(self, path: Path, watched: Watched[T], schema: EventSchema) -> None:
        """Follow what is at `path`; rules are checked against `schema`."""
        self.origin = str(path)
        self._path = path
        self._watched = watched
        self._schema = schema

    def start(self, position: TopicPosition | None) -> None:
        """Read the rules that the first batch takes."""
        self._watched.start()

    def read(self, in_force: Sequence[Rule]) -> RuleRead:
        """Return what differs from the rules in force, once after each change; rules that are broken change nothing."""
        try:
            there = self._watched.read()
        except RefusedRules as error:
            return RuleRead(refused=error.refused)
        except BucketsError as error:
            return RuleRead(refused=[Refusal(self.origin, error.message, "")])
        return RuleRead() if there is None else RuleRead(self._changes(in_force, there))

    def follow_schema(self, schema: EventSchema) -> None:
        """Check rules against another event schema, at once also those that are there: they may have been refused."""
        self._schema = schema
        self._watched.read_again()

    @abstractmethod
    def _changes(self, in_force: Sequence[Rule], there: T) -> list[RuleChange]:
        """Return how what is there differs from the rules in force."""

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Leave it to the book to say it."""

    def export(self, rule_set: RuleSet) -> None:
        """Do nothing: what is followed is the export."""

    def stop(self) -> None:
        """Do nothing: nothing runs."""
