"""Joins the small files of a Delta table, while others append to it and read it.

Files are joined with others of their size, so that a row is written anew a few times in its life, however long the
table is appended to. The commit says that no data has changed: a stream that follows the table sees nothing twice. A
reader of an older version goes on, as the small files stay until they expire.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from buckets.clock import epoch_ms
from buckets.delta.commits import (
    Action,
    Commits,
    commit_info,
    is_understood,
    redefines_table,
    with_columns,
    write_data_file,
)
from buckets.delta.whole_table import files_in, open_table
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
    """Join small files, once, with one commit.

    Args:
        path: the table.
        fewest: how many of a size and partition there must be.

    Returns:
        How many files have become one; 0 where there were too few, where others have changed the table meanwhile, or
        where it has features that are not known here.

    Raises:
        BucketsError: files are gone or damaged; all others that there were enough of have been joined.
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
            is_committed = _commit(path, table.version(), chosen, joined.added(data_change=False))
        finally:
            if not is_committed:
                joined.discard()
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
        super().__init__(f"file {path} with rows of it {reason}")
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
    """Return the files of a table, oldest first."""
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
    return next((chosen for part in parts.values() if (chosen := _chosen_of(part, fewest))), [])


def _chosen_of(files: Sequence[SmallFile], fewest: int) -> list[SmallFile]:
    """Return the files of a partition that are joined next."""
    low = 0
    for high in SIZES_BYTES:
        of_size = [file for file in files if low <= file.size_bytes < high and (file.rows or 0) <= _MOST_ROWS // 2]
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


def _commit(path: Path, seen: int, chosen: Sequence[SmallFile], added: Action) -> bool:
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
