"""Read and write the commits and files of a Delta table one by one, without listing the log.

A library that commits lists the log, so appends become slower as the log grows. A writer that knows the newest version
needs no list: the next commit is the file with the next number, which only one writer can create.
"""

import contextlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from buckets.clock import epoch_ms
from buckets.moment import iso_text
from buckets.stores.location import as_output
from buckets.stores.store_path import StorePath

Action = dict[str, Any]
LOG = "_delta_log"
PARTIAL = "_commit_*.json.tmp"  # Unfinished commits, named as delta-rs names them
_PLAIN_READER, _PLAIN_WRITER = 1, 2
_CHECKING_WRITER = 3  # The first that enforces constraints; later ones change what a file means


def is_plain(table: DeltaTable) -> bool:
    """Return whether a writer of a table must know only its files and the transaction numbers of applications.

    Result tables are like that, unless somebody has added partitions, constraints or Delta features.
    """
    protocol = table.protocol()
    return (
        protocol.min_reader_version <= _PLAIN_READER
        and protocol.min_writer_version <= _PLAIN_WRITER
        and not table.metadata().partition_columns
        and all(field.nullable and not field.metadata for field in table.schema().fields)
    )


def is_understood(table: DeltaTable) -> bool:
    """Return whether a table's files may be joined, and removed once no version needs them.

    Result and audit tables are like that: at most partitioned by day, with constraints on rows only. Other features,
    such as deletion vectors, may give files a meaning unknown here.
    """
    protocol, columns = table.protocol(), {field.name: str(field.type.type) for field in table.schema().fields}
    return (
        protocol.min_reader_version <= _PLAIN_READER
        and protocol.min_writer_version <= _CHECKING_WRITER
        and all(columns[name] == "date" for name in table.metadata().partition_columns)
    )


def redefines_table(actions: Iterable[Action]) -> bool:
    """Return whether a commit changes a table's columns, properties or protocol."""
    return any("metaData" in action or "protocol" in action for action in actions)


def commit_info(operation: str, parameters: dict[str, str], is_append: bool) -> Action:
    """Return the action that describes a commit."""
    info = {"timestamp": epoch_ms(), "operation": operation, "operationParameters": parameters}
    return {"commitInfo": info | {"isBlindAppend": is_append, "engineInfo": "buckets"}}


class Commits:
    """The commits of a table."""

    def __init__(self, table: Path) -> None:
        self._log = table / LOG

    def has(self, version: int) -> bool:
        """Return whether a version's commit is in the log."""
        return self._path(version).exists()

    def read(self, version: int) -> list[Action]:
        """Return the actions of a commit."""
        return [json.loads(line) for line in self._path(version).read_text(encoding="utf-8").splitlines() if line]

    def put(self, version: int, actions: Sequence[Action]) -> bool:
        """Write a commit atomically; return False if the version already has one."""
        text, path = "".join(json.dumps(action) + "\n" for action in actions), self._path(version)
        if isinstance(path, StorePath):
            return path.write_first(text.encode()) is not None
        partial = self._log / PARTIAL.replace("*", str(uuid.uuid4()))
        try:
            partial.write_text(text, encoding="utf-8")
            return _link(partial, path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020d}.json"


def _link(partial: Path, target: Path) -> bool:
    """Hard-link a file; return False if another file has the name.

    On a network file system the answer can get lost, so that a retry finds the name taken by its own first try; the
    file's link count reveals that.
    """
    try:
        os.link(partial, target)
    except OSError as error:
        if partial.stat().st_nlink > 1:
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


_LONGEST_TEXT = 64  # Characters of a least or greatest text; the log omits longer ones


@dataclass(frozen=True)
class DataFile:
    """A data file that no commit names yet."""

    table: Path  # the folder of its table
    path: Path  # its path
    rows: int  # its number of rows
    size_bytes: int  # its size
    written_ms: int  # when it was written, in ms since the epoch
    statistics: str  # the log's statistics of its columns, as JSON
    # by partition column, the value of all of its rows, None for null; the file itself lacks these columns
    partition: Mapping[str, str | None]

    def added(self, data_change: bool) -> Action:
        """Return the action that adds it to its table; rows merely moved from other files are no data change."""
        return {
            "add": {
                "path": self.path.relative_to(self.table).as_posix(),
                "partitionValues": dict(self.partition),
                "size": self.size_bytes,
                "modificationTime": self.written_ms,
                "dataChange": data_change,
                "stats": self.statistics,
            }
        }

    def to_json(self) -> bytes:
        """Encode a file without partitions, for the process that commits it."""
        known = [self.path.name, self.rows, self.size_bytes, self.written_ms, self.statistics]
        return json.dumps(known).encode()

    @classmethod
    def from_json(cls, table: Path, text: bytes) -> "DataFile":
        """Decode a table's file from `to_json`."""
        name, rows, size_bytes, written_ms, statistics = json.loads(text)
        return cls(table, table / name, rows, size_bytes, written_ms, statistics, {})


def discard(files: Iterable[DataFile]) -> None:
    """Delete files that no commit has named."""
    for file in files:
        file.path.unlink(missing_ok=True)


def write_data_file(
    table: Path,
    pieces: Iterable[pa.Table],
    columns: pa.Schema,
    partition: Mapping[str, str] | None = None,
    use_dictionary: bool = True,
) -> DataFile:
    """Write rows, given in any number of pieces, as a data file of a table. Memory: one piece.

    `columns` exclude partition columns; their values are in `partition` and contain no character that is special in
    paths. Without dictionaries writing takes half the time, at a similar size if few values repeat.
    """
    partition = partition or {}
    folder = table.joinpath(*(f"{column}={value}" for column, value in partition.items()))
    path = folder / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    statistics = _Statistics()
    try:
        with as_output(path) as sink:
            with pq.ParquetWriter(sink, columns, compression="snappy", use_dictionary=use_dictionary) as writer:
                for rows in pieces:
                    writer.write_table(rows)
                    statistics.add(rows)
            size_bytes = sink.tell()
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return DataFile(table, path, statistics.rows, size_bytes, epoch_ms(), statistics.json(), partition)


@dataclass
class _Statistics:
    """Delta's file statistics: row count, nulls, least and greatest values; no ranges of amounts, nothing nested."""

    rows: int = 0
    _ends: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # None if the log does not store them
    _nulls: Counter[str] = field(default_factory=Counter)

    def add(self, rows: pa.Table) -> None:
        """Add rows to the statistics."""
        self.rows += len(rows)
        for column in rows.schema:
            if pa.types.is_nested(column.type):
                continue
            name, values = column.name, rows[column.name]
            self._nulls[name] += values.null_count
            if values.null_count < len(values):
                least, greatest = self._ends.get(name, (None, None))
                ends = _ends(values)
                if ends is None or (name in self._ends and least is None):
                    self._ends[name] = None, None
                else:
                    both = ends if least is None else (min(ends[0], least), max(ends[1], greatest))
                    self._ends[name] = both

    def json(self) -> str:
        """Return the statistics as the log stores them."""
        least, greatest = (
            {name: ends[side] for name, ends in self._ends.items() if ends[side] is not None} for side in (0, 1)
        )
        statistics = {"numRecords": self.rows, "minValues": least, "maxValues": greatest, "nullCount": self._nulls}
        return json.dumps(statistics)


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return a column's least and greatest value as JSON; None if the log does not store them."""
    if pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        return ends["min"], ends["max"]
    if pa.types.is_string(column.type):
        ends = pc.min_max(column).as_py()
        return (ends["min"], ends["max"]) if max(map(len, ends.values())) <= _LONGEST_TEXT else None
    if column.type == pa.timestamp("us", "UTC"):
        ends = pc.min_max(column.cast(pa.int64())).as_py()
        # Delta stores milliseconds here; truncation must not lower the greatest value.
        times = iso_text(ends["min"] // 1000), iso_text(-(-ends["max"] // 1000))
        return None if any(time.endswith("ms") for time in times) else times
    return None


def with_columns(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return rows with exactly these columns: missing ones null, others cast to their type."""
    if rows.schema.equals(columns):
        return rows
    there = set(rows.column_names)
    arrays = [rows[field.name] if field.name in there else pa.nulls(len(rows), field.type) for field in columns]
    return pa.table(arrays, names=columns.names).cast(columns)
