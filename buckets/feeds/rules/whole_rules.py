"""Rules that stand somewhere as a whole: what is there is in force.

Rules from a YAML file, or a folder of them, that is watched while the job runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Generic, TypeVar

from buckets.checkpoint.topic_generations import TopicPosition
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.feeds.feed import RuleRead, Watched, WatchedFiles
from buckets.rule_files.flink_rules import ChangeNote, read_change_notes
from buckets.rule_files.yaml_rules import load_rule_files, rule_files
from buckets.rules.change import RuleChange, changes_between
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


class RuleFiles(WholeRules[tuple[Rule, ...]]):
    """A feed of the rules in a file or folder."""

    def __init__(self, path: Path, schema: EventSchema) -> None:
        """Watch `path`; rules are checked against `schema`."""
        self._files = WatchedFiles(path, lambda: load_rule_files(path, self._schema), rule_files)
        super().__init__(path, self._files, schema)

    def _changes(self, in_force: Sequence[Rule], there: tuple[Rule, ...]) -> list[RuleChange]:
        reason = f"{self._path.name} was changed"
        by_whom = {"author": self._owner(), "reason": reason, "time": self._files.changed_ms}
        asked = changes_between(in_force, there, **by_whom, origin=self.origin)
        notes = self._notes()
        return [
            change.model_copy(update=asdict(notes[subject])) if (subject := change.subject) in notes else change
            for change in asked
        ]

    def _notes(self) -> dict[str, ChangeNote]:
        try:
            return read_change_notes(rule_files(self._path))
        except BucketsError:  # the folder has gone in the meantime, and the notes with it
            return {}

    def _owner(self) -> str:
        try:
            return self._path.owner()
        except (OSError, KeyError):
            return ""
