"""Sources of rules and lists while a job runs: one feed per file, table or topic."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from buckets.checkpoint.topic_generations import TopicPosition
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.lists.base import Entry, ListBase
from buckets.lists.keys import KeyForm
from buckets.rules.change import RuleChange
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.stores.store_path import StorePath


@dataclass(kw_only=True)
class Read:
    """What is new since a feed was last read."""

    # how far a topic has been read; None if nothing has come, and for feeds without positions
    position: TopicPosition | None = None


@dataclass
class RuleRead(Read):
    """New changes of rules."""

    asked: list[RuleChange] = field(default_factory=list)  # changes, in order
    refused: list[Refusal] = field(default_factory=list)  # messages, files or rows that are not valid changes


@dataclass
class ListRead(Read):
    """New contents or changes of a list."""

    whole: ListBase | None = None  # the whole list, from feeds that read it whole; None without a change
    changes: dict[str, Entry | None] = field(default_factory=dict)  # from feeds that read changes
    form: KeyForm | None = None  # the form of the keys in those changes; None: the same as before
    faults: list[str] = field(default_factory=list)  # faults of reading, one line each; the list stays as it is


R = TypeVar("R", bound=Read)


class Feed(Generic[R]):
    """Follows rules or a list in a file, a folder, a table or a topic."""

    origin: str  # What is followed, in words; a position counts for this origin only
    _fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the origin cannot be followed at the moment, in one line; None while it is followed."""
        return self._fault

    def start(self, position: TopicPosition | None) -> None:
        """Start following at the position up to which the origin has been read; None: at its beginning."""

    def read(self, in_force: Sequence[Rule] = ()) -> R:
        """Return what is new (for rules, against those in force), without waiting; refuse or report what is invalid."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop following."""


class RuleFeed(Feed[RuleRead]):
    """Follows rules."""

    def follow_schema(self, schema: EventSchema) -> None:
        """Check rules against another event schema from now on, and read whole sources again."""

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Publish refused changes with their reasons, if the feed has a place for that."""

    def export(self, rule_set: RuleSet) -> None:
        """Publish the rules in force, if the feed has a place for that."""


T = TypeVar("T")
SETTLED_S = 0.3
"""How long a changed file must stay unchanged before it is read, so that no half-written file is read."""
LOOK_EVERY_S = 1.0  # How often a table, or a file in an object store, is checked
Fingerprint = tuple[tuple[str, int, int, int, int], ...]
"""For each file: name, modification time, size, inode, and time of the last change of owner or mode (times in ns)."""


class WatchedFiles(Generic[T]):
    """Files that are read whole once they have changed and settled."""

    def __init__(
        self,
        path: Path,
        load: Callable[[], T],
        files: Callable[[Path], Sequence[Path]] = lambda path: [path],
        is_log: bool = False,
    ) -> None:
        """Read a file, or a folder's `files`, with `load` after each change; an error of `files` counts as no files.

        `is_log`: files are complete as soon as they appear, and `load` reads the state as of one of them.
        """
        self._path, self._load, self._files, self._is_log = path, load, files, is_log
        self._every_s = LOOK_EVERY_S if is_log or isinstance(path, StorePath) else 0.0
        self._first: T | None = None
        self._taken: Fingerprint = ()  # What was read
        self._seen: Fingerprint | None = None  # What the last look found
        self._seen_s = self._looked_s = 0.0

    @property
    def changed_ms(self) -> int:
        """When the files read last were modified, in ms since the epoch; 0 if there are none."""
        return _last_changed_ns(self._taken) // 1_000_000

    def start(self) -> None:
        """Read the contents for the first batch, whatever happens to the files before it."""
        self._taken = self._mark()
        self._first = self._load()

    def read(self) -> T | None:
        """Return the whole contents once after each change; None if nothing is new."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if time.monotonic() - self._looked_s < self._every_s:
            return None
        self._looked_s = time.monotonic()
        now = self._mark()
        if now == self._taken or not self._is_settled(now):
            return None
        try:
            whole = self._load()
        except BucketsError:
            if self._take(now):
                raise
            return None
        return whole if self._take(now) else None

    def read_again(self) -> None:
        """Make `read` return the whole contents once more, without a change."""
        self._taken = ()

    def _take(self, seen: Fingerprint) -> bool:
        """Record the files as read; return False if they changed meanwhile and must be read again."""
        if self._is_log or self._mark() == seen:
            self._taken = seen
            return True
        return False

    def _mark(self) -> Fingerprint:
        try:
            stats = [(file.name, file.stat()) for file in self._files(self._path)]
        except (OSError, ValueError, BucketsError):
            return ()
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns) for name, stat in stats)

    def _is_settled(self, now: Fingerprint) -> bool:
        """Return whether the files have been unchanged long enough, by their own times or our clock."""
        if now != self._seen:
            self._seen, self._seen_s = now, time.monotonic()
        age_s = time.time() - _last_changed_ns(now) / 1e9
        gone = len(now) < len(self._taken)
        return self._is_log or time.monotonic() - self._seen_s >= SETTLED_S or (age_s >= SETTLED_S and not gone)


def _last_changed_ns(files: Fingerprint) -> int:
    return max((modified_ns for _, modified_ns, *_ in files), default=0)


def watched_table(table: Path, load: Callable[[], T]) -> WatchedFiles[T]:
    """Return a Delta table that is checked every second and read after each commit."""
    return WatchedFiles(table, load, lambda path: sorted((path / "_delta_log").glob("*.json"))[-1:], is_log=True)
