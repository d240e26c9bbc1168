"""Keeps Delta tables short while a job appends to them: joins small files, writes checkpoints, lets old files go.

A thread of its own does it, for a small share of the time, so that no batch waits for it. Nothing of it is needed for
results to be right, and all of it is a commit or nothing: killed anywhere, it is taken up by the next start. What goes
wrong is said in a line and tried again.
"""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from buckets.clock import epoch_ms
from buckets.delta.commits import LOG, PARTIAL, is_understood
from buckets.delta.small_files import FEWEST, join_small_files
from buckets.delta.whole_table import open_table, tried
from buckets.duration import DAY_MS
from buckets.errors import BucketsError, first_line

APPENDS = 2 * FEWEST
"""After how many appends a table is looked at, and how many commits there are at least between checkpoints of a log."""
MOST_APPENDS = 4 * APPENDS
"""After how many appends to a table resting ends: what comes in is shortened at least as fast as it comes."""
_MOST_JOINS = 8  # How often files of a table are joined in a row
_ACTIONS_A_COMMIT = 50
"""A checkpoint is written whole, so it waits for a commit for every so many entries that the last one had."""
DEFAULT_KEEP_MS = DAY_MS  # How long versions are kept where neither the settings nor the table say it
_REST = 20  # How many times as long as it has worked the thread rests
_AGAIN_AFTER_S = 60.0
_LOOKS = 24  # How often within the time for which versions are kept it is looked whether some have expired
_KEPT = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
_INTERVAL = re.compile(r"interval \d+ (nano|micro|milli)?second(s)?|interval \d+ (minute|hour|day|week)s?")
"""What deltalake reads; of anything else it keeps versions for a week."""


def retention(keep_ms: int | None) -> dict[str, str]:
    """Return the properties of a table that say for how long its versions can be read; None: for a day."""
    return dict.fromkeys(_KEPT, f"interval {-(-(keep_ms or DEFAULT_KEEP_MS) // 1000)} seconds")


def set_retention(path: Path, keep_ms: int | None) -> None:
    """Make a table keep its versions for so long; one that has features which are not known here stays as it is.

    Args:
        path: the table.
        keep_ms: how long; None to leave what the table says, and a day where it says nothing.
    """
    # A commit fails where the table is another one by now, perhaps by this very change, whose answer was lost.
    tried(path, lambda: _set_retention(path, keep_ms))


def _set_retention(path: Path, keep_ms: int | None) -> None:
    table = open_table(path)
    if not is_understood(table):
        return
    there = table.metadata().configuration
    wanted = {name: kept for name, kept in retention(keep_ms).items() if keep_ms is not None or name not in there}
    if any(there.get(name) != value for name, value in wanted.items()):
        table.alter.set_table_properties(wanted)


def write_checkpoint(path: Path) -> None:
    """Write a checkpoint of a table's log, if there are many commits since the last one, for as long as that is."""
    try:
        last = json.loads((path / LOG / "_last_checkpoint").read_text(encoding="utf-8"))
        version, actions = int(last["version"]), int(last["size"])
    except (OSError, ValueError, KeyError):
        version, actions = 0, 0
    table = open_table(path)
    if table.version() - version >= max(APPENDS, actions // _ACTIONS_A_COMMIT):
        table.create_checkpoint()


def expire(path: Path, keep_ms: int) -> None:
    """Remove files that no version needs which the table keeps, and commits before these versions.

    Nothing is removed where a table has features that are not known here.

    Args:
        path: the table.
        keep_ms: how old a commit must be that has not been finished.

    Raises:
        BucketsError: the table says in a form that is not known for how long it keeps versions.
    """
    table = open_table(path)
    if not is_understood(table):
        return
    there = table.metadata().configuration
    for name in _KEPT:
        if name in there and not _INTERVAL.fullmatch(there[name]):
            message = f"its property {name} is {there[name]!r}; write that as `interval 30 days`"
            raise BucketsError(message)
    if table.vacuum(dry_run=True, full=True):
        table.vacuum(dry_run=False, full=True)
    open_table(path).cleanup_metadata()
    oldest_ms = epoch_ms() - keep_ms
    for partial in (path / LOG).glob(PARTIAL):
        # A commit that is finished meanwhile has taken its file along.
        with contextlib.suppress(FileNotFoundError):
            if partial.stat().st_mtime_ns // 1_000_000 < oldest_ms:
                partial.unlink()


class Upkeep:
    """Looks after the tables of a folder, beside what appends to them."""

    def __init__(
        self,
        tables: Sequence[Path],
        keep_ms: int | None = None,
        is_compacting: bool = True,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Look after tables; those that do not exist are left out.

        Args:
            tables: the tables.
            keep_ms: how long their versions are kept; None as in `set_retention`.
            is_compacting: whether small files are joined and old ones removed; otherwise only checkpoints are written.
            say: told a line when something goes wrong.
        """
        self._appends = dict.fromkeys(tables, APPENDS)
        self._locks = {path: threading.Lock() for path in tables}
        self._expire_at_s = dict.fromkeys(tables, 0.0)
        self._wanted_ms = keep_ms
        self._keep_ms = keep_ms or DEFAULT_KEEP_MS
        self._is_compacting = is_compacting
        self._say = say
        self._said: dict[Path, set[str]] = {path: set() for path in tables}
        self._due = threading.Event()
        self._pressing = threading.Event()
        self._closing = threading.Event()

    def prepare(self, table: Path) -> None:
        """Make a table keep its versions for as long as is wanted, before anything is appended to it."""
        if self._is_compacting:
            set_retention(table, self._wanted_ms)

    def appended(self, table: Path) -> None:
        """Note that a table has been appended to."""
        self._appends[table] += 1
        if self._appends[table] >= APPENDS:
            self._due.set()
        if self._appends[table] >= MOST_APPENDS:
            self._pressing.set()

    def nothing_expires(self, table: Path) -> AbstractContextManager[object]:
        """Keep files in the folder of a table that no commit names yet; others would be taken for leftovers."""
        return self._locks[table]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look after the tables, in a thread, until the end of the `with`; each is looked at once at least."""
        self._closing.clear()
        thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            self._pressing.set()
            self._due.set()
            thread.join()

    def _run(self) -> None:
        while True:
            is_last, started_s = self._closing.is_set(), time.monotonic()
            self._due.clear()
            self._pressing.clear()
            failed = [path for path in self._appends if not self._look_after(path)]
            if is_last or self._closing.is_set():
                return
            worked_s = time.monotonic() - started_s
            if failed:
                self._closing.wait(max(_AGAIN_AFTER_S, _REST * worked_s))
            else:
                self._pressing.wait(_REST * worked_s)
            self._due.wait(self._every_s)

    @property
    def _every_s(self) -> float:
        return max(60.0, self._keep_ms / 1000 / _LOOKS)

    def _look_after(self, path: Path) -> bool:
        """Do what a table needs; returns whether that went well."""
        if not (path / LOG).exists():
            return True
        faults: dict[str, str] = {}
        if self._appends[path] >= APPENDS:
            self._appends[path] = 0
            # The checkpoint first: with it the rest is cheap.
            self._do(path, "no checkpoint of its log is written", write_checkpoint, faults)
            if self._is_compacting:
                self._do(path, "small files stay", self._join, faults)
            if faults:
                self._appends[path] = APPENDS
                self._due.set()
        if self._is_compacting and time.monotonic() >= self._expire_at_s[path]:
            self._do(path, "old files stay", self._expire, faults)
        for reason in faults.keys() - self._said[path]:
            self._say(f"table {path}: {faults[reason]} ({reason}); batches go on, and it is tried again in a minute")
        self._said[path] = set(faults)
        return not faults

    def _do(self, path: Path, without: str, work: Callable[[Path], None], faults: dict[str, str]) -> None:
        """Do a part of it; what goes wrong is noted by its reason, with what stays undone for it."""
        try:
            work(path)
        except BaseException as error:  # what panics in deltalake is no Exception
            faults.setdefault(first_line(error), without)

    def _join(self, path: Path) -> None:
        joins = 0
        while joins < _MOST_JOINS and join_small_files(path):
            joins += 1
            if self._closing.is_set():
                break
        if joins == _MOST_JOINS:
            self._appends[path] = APPENDS
            self._due.set()

    def _expire(self, path: Path) -> None:
        with self.nothing_expires(path):
            expire(path, self._keep_ms)
        self._expire_at_s[path] = time.monotonic() + self._every_s
