"""Keeps Delta tables short while a job appends to them: joins small files, writes checkpoints, lets old files go.

A thread of its own does it, for a small share of the time, so that no batch waits for it. Results do not depend on it.
Each step is a commit or nothing: killed anywhere, it is taken up by the next start. Faults are reported in a line and
tried again.
"""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from buckets.clock import epoch_ms
from buckets.delta.commits import (
    LOG,
    PARTIAL,
    Action,
    Commits,
    commit_info,
    discard,
    is_understood,
    redefines_table,
    with_columns,
    write_data_file,
)
from buckets.delta.whole_table import files_in, open_table, tried
from buckets.duration import DAY_MS
from buckets.errors import BucketsError, first_line
from buckets.stores.location import as_input

SIZES_BYTES = (1 << 17, 1 << 21, 1 << 24)
"""Files below the first of these sizes are joined with each other, then those below the second, and so on."""
FEWEST = 32  # How many files of a size, and of a partition, there are before they are joined
_MOST_FILES, _MOST_BYTES, _MOST_ROWS = 256, 1 << 25, 500_000  # What is joined at once, at most
PIECE_BYTES, PIECE_ROWS = 1 << 26, 1024
"""Of the rows so much is in memory at once, and so many more: a text that repeats itself takes little of a file."""
_OWN_NAME = re.compile(r"(\w+=\d{4}-\d\d-\d\d/)*[\w.-]+\.parquet")
"""Names that the log and the file system write in the same way."""


class SmallFile(NamedTuple):
    """A file of a table: when it was written in ms since the epoch, its path within the table, its size, its rows.

    Of a table with partitions also the columns and values of its partition.
    """

    modified_ms: int
    path: str
    size_bytes: int
    rows: int | None
    partition: tuple[tuple[str, str], ...] = ()


def join_small_files(path: Path, fewest: int = FEWEST) -> int:
    """Join small files, once, with one commit; `fewest` of a size and partition there must be.

    Returns:
        How many files have become one; 0 where there were too few, where others have changed the table meanwhile, or
        where it has features that are not known here.
    """
    table = open_table(path)
    files, faults = _files(table) if is_understood(table) else [], []
    while chosen := _chosen(files, fewest):
        partition = dict(chosen[0].partition)
        columns = pa.schema(field for field in pa.schema(table.schema().to_arrow()) if field.name not in partition)
        try:
            joined = write_data_file(path, read_pieces(path, chosen, columns), columns, partition)
        except UnreadableFile as error:
            faults.append(error.message)
            files = [file for file in files if file.path != error.path]
            continue
        is_committed = False
        try:
            is_committed = commit_join(path, table.version(), chosen, joined.added(data_change=False))
        finally:
            if not is_committed:
                discard([joined])
        return len(chosen) if is_committed else 0
    if faults:
        more = f", and {len(faults) - 1:,} more files" if len(faults) > 1 else ""
        message = f"{faults[0]}{more}; restore the table from a copy"
        raise BucketsError(message)
    return 0


class UnreadableFile(BucketsError):
    """A file of a table cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        """Name the file by its path within the table, and say why."""
        super().__init__(f"file {path} with some of its rows {reason}")
        self.path = path


def read_pieces(table: Path, files: Sequence[SmallFile], columns: pa.Schema) -> Iterator[pa.Table]:
    """Return the rows of files, a piece at a time, with the columns of their table.

    Raises:
        UnreadableFile: a file is gone or damaged, or its rows are not as many as the log says.
    """
    held: list[pa.Table] = []
    held_bytes = 0
    for file in files:
        for rows in _read(table, file, columns):
            held.append(rows)
            held_bytes += rows.nbytes
            if held_bytes >= PIECE_BYTES:
                yield pa.concat_tables(held)
                held, held_bytes = [], 0
    if held:
        yield pa.concat_tables(held)


def _read(table: Path, file: SmallFile, columns: pa.Schema) -> Iterator[pa.Table]:
    rows = 0
    try:
        # Spark writes moments in a form that would be read in ns, which end in 2262.
        with pq.ParquetFile(as_input(table / file.path), coerce_int96_timestamp_unit="us") as opened:
            for batch in opened.iter_batches(PIECE_ROWS, use_threads=False):
                rows += len(batch)
                yield with_columns(pa.Table.from_batches([batch]), columns)
    except FileNotFoundError:
        raise UnreadableFile(file.path, "is gone") from None
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFile(file.path, f"cannot be read ({first_line(error)})") from error
    if file.rows is not None and rows != file.rows:
        raise UnreadableFile(file.path, f"has {rows:,} of them, and {file.rows:,} by the log")


def _files(table: DeltaTable) -> list[SmallFile]:
    actions = files_in(table)
    names, days = ("modification_time", "path", "size_bytes", "num_records"), table.metadata().partition_columns
    wanted = [*names, *(f"partition.{day}" for day in days)]
    actions = actions.select([name for name in wanted if name in actions.column_names])
    # As text: a day may be one that Python does not know.
    texts = [field.with_type(pa.string()) if field.name not in names else field for field in actions.schema]
    rows = actions.cast(pa.schema(texts)).to_pylist()
    files = []
    for row in rows:
        partition = tuple((day, row[f"partition.{day}"]) for day in days)
        file = SmallFile(row["modification_time"], row["path"], row["size_bytes"], row.get("num_records"), partition)
        if _OWN_NAME.fullmatch(file.path) and all(value is not None for _, value in partition):
            files.append(file)
    return sorted(files)


def _chosen(files: Sequence[SmallFile], fewest: int) -> list[SmallFile]:
    """Return files that are joined next: the oldest of the smallest size of which a partition has enough."""
    parts: dict[tuple[tuple[str, str], ...], list[SmallFile]] = {}
    for file in files:
        parts.setdefault(file.partition, []).append(file)
    for part in parts.values():
        low = 0
        for high in SIZES_BYTES:
            of_size = [file for file in part if low <= file.size_bytes < high and (file.rows or 0) <= _MOST_ROWS // 2]
            low = high
            if len(of_size) >= fewest:
                chosen, size_bytes, rows = of_size[:1], of_size[0].size_bytes, of_size[0].rows or 0
                for file in of_size[1:_MOST_FILES]:
                    size_bytes, rows = size_bytes + file.size_bytes, rows + (file.rows or 0)
                    if size_bytes > _MOST_BYTES or rows > _MOST_ROWS:
                        break
                    chosen.append(file)
                return chosen
    return []


def commit_join(path: Path, seen: int, chosen: Sequence[SmallFile], added: Action) -> bool:
    """Commit that a file takes the place of others; False where another writer has changed them or the table."""
    now_ms, commits, paths = epoch_ms(), Commits(path), {each.path for each in chosen}
    removed: list[Action] = [
        {
            "remove": {
                "path": each.path,
                "deletionTimestamp": now_ms,
                "dataChange": False,
                "extendedFileMetadata": True,
                "partitionValues": dict(each.partition),
                "size": each.size_bytes,
            }
        }
        for each in chosen
    ]
    info = commit_info("OPTIMIZE", {"predicate": "[]"}, is_append=False)
    version = seen + 1
    while not commits.put(version, [info, *removed, added]):
        others = commits.read(version)
        if redefines_table(others) or any(each.get("remove", {}).get("path") in paths for each in others):
            return False
        version += 1
    return True


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

    None leaves what the table says, and is a day where it says nothing.
    """

    def change() -> None:
        table = open_table(path)
        there = table.metadata().configuration
        wanted = {name: kept for name, kept in retention(keep_ms).items() if keep_ms is not None or name not in there}
        if is_understood(table) and any(there.get(name) != value for name, value in wanted.items()):
            table.alter.set_table_properties(wanted)

    # A commit fails where the table is another one by now, perhaps by this very change, whose answer was lost.
    tried(path, change)


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
    """Remove files that no version needs which the table keeps, commits before these versions, and unfinished ones.

    Nothing is removed where a table has features that are not known here.
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
        join: Callable[[Path], int] = join_small_files,
    ) -> None:
        """Look after tables; those that do not exist are left out.

        Their versions are kept for `keep_ms`, see `set_retention`. Without compacting, only checkpoints are written.
        `join` joins some small files of a table and returns 0 where there are too few.
        """
        self._appends = dict.fromkeys(tables, APPENDS)
        self._locks = {path: threading.Lock() for path in tables}
        self._expire_at_s = dict.fromkeys(tables, 0.0)
        self._wanted_ms = keep_ms
        self._keep_ms = keep_ms or DEFAULT_KEEP_MS
        self._every_s = max(60.0, self._keep_ms / 1000 / _LOOKS)
        self._is_compacting = is_compacting
        self._say, self._join_files = say, join
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

    def _look_after(self, path: Path) -> bool:
        """Do what a table needs; returns whether that went well."""
        if not (path / LOG).exists():
            return True
        faults: dict[str, str] = {}  # By the reason, what stays undone for it

        def do(without: str, work: Callable[[Path], None]) -> None:
            try:
                work(path)
            except BaseException as error:  # what panics in deltalake is no Exception
                faults.setdefault(first_line(error), without)

        if self._appends[path] >= APPENDS:
            self._appends[path] = 0
            # The checkpoint first: with it the rest is cheap.
            do("no checkpoint of its log is written", write_checkpoint)
            if self._is_compacting:
                do("small files stay", self._join)
            if faults:
                self._appends[path] = APPENDS
                self._due.set()
        if self._is_compacting and time.monotonic() >= self._expire_at_s[path]:
            with self.nothing_expires(path):
                do("old files stay", lambda path: expire(path, self._keep_ms))
            if "old files stay" not in faults.values():
                self._expire_at_s[path] = time.monotonic() + self._every_s
        for reason in faults.keys() - self._said[path]:
            self._say(f"table {path}: {faults[reason]} ({reason}); batches go on, and it is tried again in a minute")
        self._said[path] = set(faults)
        return not faults

    def _join(self, path: Path) -> None:
        joins = 0
        while joins < _MOST_JOINS and self._join_files(path):
            joins += 1
            if self._closing.is_set():
                break
        if joins == _MOST_JOINS:
            self._appends[path] = APPENDS
            self._due.set()
