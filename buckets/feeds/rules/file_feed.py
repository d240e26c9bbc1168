"""Rules from a YAML file, or a folder of them, that is watched while the job runs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.feeds.rules.whole_rules import WholeRules
from buckets.feeds.watched import WatchedFiles
from buckets.rule_files.change_notes import ChangeNote, read_change_notes
from buckets.rule_files.yaml_rules import load_rule_files, rule_files
from buckets.rules.change import RuleChange, changes_between
from buckets.rules.rule import Rule


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
