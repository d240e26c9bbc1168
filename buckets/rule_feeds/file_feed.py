"""Rules from a YAML file, or a folder of them, that is watched while the job runs."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from buckets.checkpoint.topic_position import TopicPosition
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.rule_feeds.feed import Read
from buckets.rule_files.change_notes import ChangeNote, read_change_notes
from buckets.rule_files.yaml_rules import load_rule_files, rule_files
from buckets.rules.change import changes_between
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

SETTLED_S = 0.3
"""How long a changed file must stay as it is before it is read, so that none is read while it is being written."""
Fingerprint = tuple[tuple[str, int, int, int], ...]
"""Of each file: its name, modification time, size, and time of the last change of owner or mode (times in ns)."""


class RuleFiles:
    """A feed of the rules in a file or folder: what is there is in force."""

    fault = None

    def __init__(self, path: Path, schema: EventSchema) -> None:
        """Watch `path`; rules are checked against `schema`."""
        self.origin = str(path)
        self._path = path
        self._schema = schema
        self._first: tuple[Rule, ...] | None = None
        self._taken: Fingerprint = ()
        self._seen: Fingerprint | None = None
        self._seen_s = 0.0

    def start(self, position: TopicPosition | None) -> None:
        """Read the rules that the first batch takes."""
        self._taken = self._fingerprint()
        self._first = load_rule_files(self._path, self._schema)

    def read(self, in_force: Sequence[Rule]) -> Read:
        """What differs from the rules in force, once after each change of the files."""
        if self._first is not None:
            first, self._first = self._first, None
            return self._changes(in_force, first)
        now = self._fingerprint()
        if now == self._taken or not self._is_settled(now):
            return Read()
        refused = []
        try:
            rules = load_rule_files(self._path, self._schema)
        except BucketsError as error:
            refused = [Refusal(self.origin, error.message, "")]
        if self._fingerprint() != now:
            return Read()  # a file came, went or changed while it was read
        self._taken = now
        if refused:
            return Read(refused=refused)
        return self._changes(in_force, rules)

    def _is_settled(self, now: Fingerprint) -> bool:
        """Whether the files have not changed for long enough, by their own times or by our clock."""
        if now != self._seen:
            self._seen, self._seen_s = now, time.monotonic()
        age_s = time.time() - max((modified_ns for _, modified_ns, *_ in now), default=0) / 1e9
        gone = len(now) < len(self._taken)
        return time.monotonic() - self._seen_s >= SETTLED_S or (age_s >= SETTLED_S and not gone)

    def _changes(self, in_force: Sequence[Rule], rules: Sequence[Rule]) -> Read:
        changed_ms = max([0, *(modified_ns for _, modified_ns, *_ in self._taken)]) // 1_000_000
        said = {"author": self._owner(), "reason": f"{self._path.name} was changed", "time": changed_ms}
        asked = changes_between(in_force, rules, **said, origin=self.origin)
        notes = self._notes()
        return Read(
            [each.model_copy(update=asdict(notes[s])) if (s := each.subject) in notes else each for each in asked]
        )

    def _notes(self) -> dict[str, ChangeNote]:
        try:
            return read_change_notes(rule_files(self._path))
        except BucketsError:  # the folder has gone in the meantime, and the notes with it
            return {}

    def _fingerprint(self) -> Fingerprint:
        try:
            stats = [(file.name, file.stat()) for file in rule_files(self._path)]
        except (OSError, ValueError, BucketsError):
            return ()
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ctime_ns) for name, stat in stats)

    def _owner(self) -> str:
        try:
            return self._path.owner()
        except (OSError, KeyError):
            return ""

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """The book says it; a file has nowhere to say it."""

    def export(self, rule_set: RuleSet) -> None:
        """The file is the export."""

    def stop(self) -> None:
        """Nothing runs."""
