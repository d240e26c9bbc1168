"""Keeps Delta tables short while a job appends to them: joins small files, writes checkpoints, deletes expired files.

A separate thread works for a small share of the time, so that no batch waits. Results do not depend on it. Each step is
one commit or nothing, so after a kill the next start continues. Faults are reported in one line and retried.
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
FEWEST = 32  # How many files of one size and partition are needed to join them
_MOST_FILES, _MOST_BYTES, _MOST_ROWS = 256, 1 << 25, 500_000  # The most that is joined at once
PIECE_BYTES, PIECE_ROWS = 1 << 26, 1024
"""The bytes of rows in memory at once, and how many more rows: repetitive text takes little room in a file."""
_OWN_NAME = re.compile(r"(\w+=\d{4}-\d\d-\d\d/)*[\w.-]+\.parquet")
"""File names that the log and the file system spell alike."""


class SmallFile(NamedTuple):
    """A file of a table: time of writing in ms since the epoch, path within the table, size, and number of rows.

    In a partitioned table also the columns and values of its partition.
    """

    modified_ms: int
    path: str
    size_bytes: int
    rows: int | None
    partition: tuple[tuple[str, str], ...] = ()


def join_small_files(path: Path, fewest: int = FEWEST) -> int:
    """Join small files once, in one commit; at least `fewest` of one size and partition.

    Returns:
        How many files were joined; 0 if there were too few, another writer changed the table, or it has unknown
        features.
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
    """A file of a table that cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        """Name the file by its path within the table, and the reason."""
        super().__init__(f"file {path} with some of its rows {reason}")
        self.path = path


def read_pieces(table: Path, files: Sequence[SmallFile], columns: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of files piece by piece, with their table's columns.

    Raises:
        UnreadableFile: a file is missing or damaged, or its row count differs from the log's.
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
        # Spark writes timestamps in a form that would be read as ns, whose range ends in 2262.
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
    # As text: Python may not support the date.
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
    """Choose the files to join next: the oldest of the smallest size of which a partition has enough."""
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
    """Commit the replacement of files by one; return False if another writer has changed them or the table."""
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
"""The number of appends after which a table is checked, and the fewest commits between two log checkpoints."""
MOST_APPENDS = 4 * APPENDS
"""The number of appends that ends a pause of the thread, so that joining keeps pace with appending."""
_MOST_JOINS = 8  # The most joins in a row for a table
_ACTIONS_A_COMMIT = 50
"""A checkpoint contains the whole log, so it waits for one commit per this many entries of the last one."""
DEFAULT_KEEP_MS = DAY_MS  # How long versions are kept if neither the settings nor the table say it
_REST = 20  # The thread rests this many times as long as it has worked
_AGAIN_AFTER_S = 60.0
_LOOKS = 24  # How often expired versions are looked for within the time for which versions are kept
_KEPT = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
_INTERVAL = re.compile(r"interval \d+ (nano|micro|milli)?second(s)?|interval \d+ (minute|hour|day|week)s?")
"""Intervals that deltalake parses; with any other text it keeps versions for a week."""


def retention(keep_ms: int | None) -> dict[str, str]:
    """Return the table properties that keep versions readable for this long; None: a day."""
    return dict.fromkeys(_KEPT, f"interval {-(-(keep_ms or DEFAULT_KEEP_MS) // 1000)} seconds")


def set_retention(path: Path, keep_ms: int | None) -> None:
    """Set how long a table keeps its versions, unless it has unknown features.

    None keeps the table's own setting, or a day if it has none.
    """

    def change() -> None:
        table = open_table(path)
        there = table.metadata().configuration
        wanted = {name: kept for name, kept in retention(keep_ms).items() if keep_ms is not None or name not in there}
        if is_understood(table) and any(there.get(name) != value for name, value in wanted.items()):
            table.alter.set_table_properties(wanted)

    # A commit fails if the table has changed meanwhile, perhaps by this very change, whose answer was lost.
    tried(path, change)


def write_checkpoint(path: Path) -> None:
    """Write a checkpoint of a table's log if there are many commits since the last one, relative to its size."""
    try:
        last = json.loads((path / LOG / "_last_checkpoint").read_text(encoding="utf-8"))
        version, actions = int(last["version"]), int(last["size"])
    except (OSError, ValueError, KeyError):
        version, actions = 0, 0
    table = open_table(path)
    if table.version() - version >= max(APPENDS, actions // _ACTIONS_A_COMMIT):
        table.create_checkpoint()


def expire(path: Path, keep_ms: int) -> None:
    """Delete files that no kept version needs, commits before these versions, and unfinished commits.

    Deletes nothing if the table has unknown features.
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
        # The file of a commit that was finished meanwhile is gone.
        with contextlib.suppress(FileNotFoundError):
            if partial.stat().st_mtime_ns // 1_000_000 < oldest_ms:
                partial.unlink()


class Upkeep:
    """Maintains a folder's tables beside the writers that append to them."""

    def __init__(
        self,
        tables: Sequence[Path],
        keep_ms: int | None = None,
        is_compacting: bool = True,
        say: Callable[[str], None] = lambda line: None,
        join: Callable[[Path], int] = join_small_files,
    ) -> None:
        """Maintain tables; those that do not exist are skipped.

        Versions are kept for `keep_ms`, see `set_retention`. Without compacting, only checkpoints are written. `join`
        joins some small files of a table, and returns 0 if there are too few.
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
        """Set how long a table keeps its versions, before anything is appended to it."""
        if self._is_compacting:
            set_retention(table, self._wanted_ms)

    def appended(self, table: Path) -> None:
        """Count an append to a table."""
        self._appends[table] += 1
        if self._appends[table] >= APPENDS:
            self._due.set()
        if self._appends[table] >= MOST_APPENDS:
            self._pressing.set()

    def nothing_expires(self, table: Path) -> AbstractContextManager[object]:
        """Protect a table's uncommitted files, which `expire` would delete as leftovers."""
        return self._locks[table]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Maintain the tables in a thread until the `with` ends; each is checked at least once."""
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
        """Do what a table needs; return whether that succeeded."""
        if not (path / LOG).exists():
            return True
        faults: dict[str, str] = {}  # By reason, the work that it prevents

        def do(without: str, work: Callable[[Path], None]) -> None:
            try:
                work(path)
            except BaseException as error:  # panics in deltalake are not Exceptions
                faults.setdefault(first_line(error), without)

        if self._appends[path] >= APPENDS:
            self._appends[path] = 0
            # The checkpoint comes first: it makes the rest cheap.
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
