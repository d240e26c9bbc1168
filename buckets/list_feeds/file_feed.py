"""A list in a CSV or YAML file that is watched while the job runs."""

import time
from pathlib import Path

from buckets.checkpoint.topic_position import TopicPosition
from buckets.errors import BucketsError
from buckets.list_feeds.feed import ListRead
from buckets.lists.base import ListBase
from buckets.lists.list_file import read_list

SETTLED_S = 0.3
"""How long a changed file must stay as it is before it is read, so that none is read while it is being written."""
Fingerprint = tuple[int, int, int, int] | None
"""Modification time, size, inode, and time of the last change of owner or mode (times in ns); None: no file."""


class ListFile:
    """A feed of the entries in a file: what is there is the list."""

    def __init__(self, path: Path, key: str = "key") -> None:
        """Watch a file, whose column `key` holds the keys."""
        self.origin = str(path)
        self.fault: str | None = None
        self._path, self._key = path, key
        self._first: ListBase | None = None
        self._taken: Fingerprint = None
        self._seen: Fingerprint = None
        self._seen_s = 0.0

    def start(self, position: TopicPosition | None) -> None:
        """Read the list that the first batch sees."""
        self._taken = self._fingerprint()
        self._first = read_list(self._path, self._key)
        self.fault = None

    def read(self) -> ListRead:
        """The whole list, once after each change of the file."""
        if self._first is not None:
            first, self._first = self._first, None
            return ListRead(whole=first)
        now = self._fingerprint()
        if now == self._taken or not self._is_settled(now):
            return ListRead()
        try:
            whole = read_list(self._path, self._key)
        except BucketsError as error:
            if self._fingerprint() != now:
                return ListRead()
            self._taken, self.fault = now, error.message
            return ListRead(faults=[error.message])
        if self._fingerprint() != now:
            return ListRead()  # it changed while it was read
        self._taken, self.fault = now, None
        return ListRead(whole=whole)

    def _fingerprint(self) -> Fingerprint:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns

    def _is_settled(self, now: Fingerprint) -> bool:
        """Whether the file has not changed for long enough, by its own time or by our clock."""
        if now != self._seen:
            self._seen, self._seen_s = now, time.monotonic()
        is_old = now is not None and time.time() - now[0] / 1e9 >= SETTLED_S
        return is_old or time.monotonic() - self._seen_s >= SETTLED_S

    def stop(self) -> None:
        """Nothing runs."""
