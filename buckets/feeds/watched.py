"""What is read whole, at the start and after each change: the files or the table of a feed."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from buckets.errors import BucketsError
from buckets.stores.store_path import StorePath

T = TypeVar("T")
SETTLED_S = 0.3
"""How long a changed file must stay as it is before it is read, so that none is read while it is being written."""
LOOK_EVERY_S = 1.0
"""How often a table, or a file in an object store, is looked at."""
Fingerprint = tuple[tuple[str, int, int, int, int], ...]
"""Of each file: name, modification time, size, inode, and time of the last change of owner or mode (times in ns)."""


class Watched(ABC, Generic[T]):
    """What a feed reads whole."""

    def __init__(self, load: Callable[[], T]) -> None:
        """Read with `load`."""
        self._load = load
        self._first: T | None = None
        self._taken: object = None
        """Identifies what was read."""
        self._seen: object = None
        """Identifies what was there at the last look."""

    def start(self) -> None:
        """Read what the first batch takes, whatever becomes of it until then.

        Raises:
            BucketsError: it cannot be read.
        """
        self._taken = self._mark()
        self._first = self._load()

    def read(self) -> T | None:
        """Return all that is there, once after each change; None where there is nothing new.

        Raises:
            BucketsError: it has changed, and cannot be read; raised once until it changes again.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if not self._has_new():
            return None
        try:
            whole = self._load()
        except BucketsError:
            if self._take():
                raise
            return None
        return whole if self._take() else None

    def read_again(self) -> None:
        """Have `read` return all that is there once more, though nothing has changed."""
        self._taken = ()

    def _take(self) -> bool:
        """Note that what was seen has been read; False if it changed meanwhile, and is to be read again."""
        if not self._is_still_seen():
            return False
        self._taken = self._seen
        return True

    @abstractmethod
    def _mark(self) -> object:
        """Return what identifies what is there now."""

    @abstractmethod
    def _has_new(self) -> bool:
        """Look, and return whether something is there that was not read, and may be read now."""

    def _is_still_seen(self) -> bool:
        """Return whether what was read is what was seen; a table is read as of one commit, and so always."""
        return True


class WatchedFiles(Watched[T]):
    """Files, which are read when they have settled."""

    _taken: Fingerprint

    def __init__(
        self, path: Path, load: Callable[[], T], files: Callable[[Path], Sequence[Path]] = lambda path: [path]
    ) -> None:
        """Read when files have changed.

        Args:
            path: the file, or the folder of the files.
            load: reads them.
            files: returns the files of the path; an error of it means no files.
        """
        super().__init__(load)
        self._path, self._files = path, files
        self._every_s = LOOK_EVERY_S if isinstance(path, StorePath) else 0.0
        self._seen_s = 0.0
        self._looked_s = 0.0

    @property
    def changed_ms(self) -> int:
        """When the files that were read were last changed, in ms since the epoch; 0 if there are none."""
        return _last_changed_ns(self._taken) // 1_000_000

    def _mark(self) -> Fingerprint:
        try:
            stats = [(file.name, file.stat()) for file in self._files(self._path)]
        except (OSError, ValueError, BucketsError):
            return ()
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns) for name, stat in stats)

    def _has_new(self) -> bool:
        if time.monotonic() - self._looked_s < self._every_s:
            return False
        self._looked_s = time.monotonic()
        now = self._mark()
        return now != self._taken and self._is_settled(now)

    def _is_settled(self, now: Fingerprint) -> bool:
        """Return whether the files have not changed for long enough, by their own times or by our clock."""
        if now != self._seen:
            self._seen, self._seen_s = now, time.monotonic()
        age_s = time.time() - _last_changed_ns(now) / 1e9
        gone = len(now) < len(self._taken)
        return time.monotonic() - self._seen_s >= SETTLED_S or (age_s >= SETTLED_S and not gone)

    def _is_still_seen(self) -> bool:
        return self._mark() == self._seen


def _last_changed_ns(files: Fingerprint) -> int:
    return max((modified_ns for _, modified_ns, *_ in files), default=0)


class WatchedTable(Watched[T]):
    """A Delta table, which is looked at every second and read after each commit."""

    def __init__(self, table: Path, load: Callable[[], T]) -> None:
        """Read with `load` when the table has another commit."""
        super().__init__(load)
        self._log = table / "_delta_log"
        self._looked_s = 0.0

    def _mark(self) -> tuple[str, int] | None:
        """Return the newest commit; a table that was recreated has another one, whatever its number."""
        try:
            commits = sorted(self._log.glob("*.json"))
            return (commits[-1].name, commits[-1].stat().st_mtime_ns) if commits else None
        except OSError:
            return None

    def _has_new(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        self._seen = self._mark()
        return self._seen != self._taken
