"""The archive: all arrivals, typed, with the batch that scored them, as one Delta table in arrival order.

Besides the declared fields each row has the archive's own columns, whose names begin with `_`. Repeats, late events and
rows that are no events are included: it records what arrived, not what counted.

Files are laid out so that the rows of one key are found without reading the rest. Arrivals are roughly in time order,
and so are files, so the log's statistics exclude files of other times. Within a file of up to about a million rows,
rows are sorted by one field, by which the first rules group: rows with one of its values are in one row group per file,
and statistics exclude the others. For the id and every other field by which rules may group, each row group has a Bloom
filter: a search for a card reads only the row groups that contain it.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    DeltaTable,
    WriterProperties,
    write_deltalake,
)

from buckets.archive.arrived_rows import ARRIVAL, BATCH
from buckets.delta.commits import Action, Commits, with_columns
from buckets.delta.upkeep import FEWEST, SmallFile, commit_join
from buckets.delta.whole_table import files_in, is_table, open_table, query, quoted_column, readable, through_store
from buckets.rules.group import NO_NAMES
from buckets.rules.renaming import Names
from buckets.stores.location import as_input, as_output

CLUSTER_BY = "buckets.clusterBy"  # The table property with the field by which rows are sorted in files
SINCE = "buckets.since"
"""The table property with the number of its first batch, if that is not the job's first."""
FULL_ROWS = 1_000_000  # The most rows in a joined file
_SMALL_ROWS = FULL_ROWS // 2
_WHOLE = 1 << 40  # More bytes than any file has: a join writes one file
_ROW_GROUP = 32_768  # Rows that are read or skipped together
_PAGE = 8_192
_WRONG_HITS = 0.01  # The share of row groups without a value that a Bloom filter lets through
_TABLE = "arrivals"
_REMEDY = "restore it from a copy, or name a new archive.path, which begins with the next batch"
_TIERS_ROWS = (0, 1 << 12, 1 << 16, _SMALL_ROWS)
"""While a job runs, files with row counts between the first two of these are joined, then between the next two."""


class ArchiveFile(NamedTuple):
    """A file of the archive: its first and last arrival, its path within the table, its rows and size."""

    first: int
    last: int
    path: str
    rows: int
    size_bytes: int


def table_of(folder: Path) -> Path:
    """Return the path of an archive's table."""
    return folder / _TABLE


def files_of(table: DeltaTable) -> list[ArchiveFile]:
    """Return the files of a table in arrival order; they do not overlap."""
    added = files_in(table).to_pylist()
    names = (f"min.{ARRIVAL}", f"max.{ARRIVAL}", "path", "num_records", "size_bytes")
    return sorted(ArchiveFile(*(row[name] for name in names)) for row in added)


def end_of(table: DeltaTable) -> int:
    """Return the number of the next arrival."""
    files = files_of(table)
    return files[-1].last + 1 if files else 0


def _clustered(rows: pa.Table, table: DeltaTable) -> pa.Table:
    """Sort rows as they lie in one file."""
    field = table.metadata().configuration.get(CLUSTER_BY)
    if field not in rows.column_names:
        return rows.sort_by(ARRIVAL)
    return rows.sort_by([(field, "ascending"), (ARRIVAL, "ascending")])


def file_properties(columns: pa.Schema, rows: int) -> WriterProperties:
    """Return the writer properties for a file with these columns and this many rows."""
    is_looked_for = [
        field.name
        for field in columns
        if not field.name.startswith("_") and (pa.types.is_string(field.type) or pa.types.is_int64(field.type))
    ]
    distinct = min(rows, _ROW_GROUP)
    bloom = BloomFilterProperties(set_bloom_filter_enabled=True, fpp=_WRONG_HITS, ndv=distinct)
    return WriterProperties(
        max_row_group_size=_ROW_GROUP,
        data_page_row_count_limit=_PAGE,
        compression="ZSTD",
        compression_level=3,
        default_column_properties=ColumnProperties(statistics_enabled="PAGE"),
        column_properties={
            name: ColumnProperties(statistics_enabled="PAGE", bloom_filter_properties=bloom) for name in is_looked_for
        },
    )


def join_some_files(path: Path) -> int:
    """Join one run of small files if it is worthwhile; return by how many the number of files falls."""
    files = files_of(open_table(path))
    for sizes in itertools.pairwise(_TIERS_ROWS):
        for small in _runs(files, sizes, _SMALL_ROWS, FEWEST):
            return _joined(path, small)
    return 0


def join_small_files(path: Path) -> int:
    """Join runs of small files, each in one commit; return by how many the number of files falls.

    Another process may append meanwhile. If it joins files too, the first commit wins.
    """
    fewer = 0
    for small in _runs(files_of(open_table(path)), (0, _SMALL_ROWS), FULL_ROWS, 2):
        joined = _joined(path, small)
        if not joined:
            break
        fewer += joined
    if fewer:
        table = open_table(path)
        through_store(path, lambda: table.vacuum(dry_run=False))
        through_store(path, table.cleanup_metadata)
    return fewer


def _joined(path: Path, small: Sequence[ArchiveFile]) -> int:
    """Join adjacent files; return by how many the number of files falls, 0 if another writer changed them."""
    table = open_table(path)
    columns = pa.schema(table.schema().to_arrow())
    with readable(f"archive {path.parent}", _REMEDY):
        tables = [pq.read_table(as_input(path / file.path), partitioning=None) for file in small]
    rows = _clustered(with_columns(pa.concat_tables(tables, promote_options="default"), columns), table)
    file, added = _written(path, rows)
    replaced = [SmallFile(0, each.path, each.size_bytes, each.rows) for each in small]
    if commit_join(path, table.version(), replaced, added):
        return len(small) - 1
    file.unlink(missing_ok=True)
    return 0


def _written(path: Path, rows: pa.Table) -> tuple[Path, Action]:
    """Write rows as a file in a table's folder; return its path, and the action that adds it."""
    with TemporaryDirectory() as folder:
        write_deltalake(
            folder, rows, writer_properties=file_properties(rows.schema, len(rows)), target_file_size=_WHOLE
        )
        (action,) = (action for action in Commits(Path(folder)).read(0) if "add" in action)
        file = path / action["add"]["path"]
        with as_output(file) as sink:
            sink.write((Path(folder) / file.name).read_bytes())
    return file, {"add": action["add"] | {"dataChange": False}}


def _runs(
    files: Iterable[ArchiveFile], sizes: tuple[int, int], full_rows: int, fewest: int
) -> Iterator[list[ArchiveFile]]:
    """Yield runs of adjacent files that together have at most `full_rows`.

    Each file has at most as many rows as the second of the `sizes`, and at least `fewest` of them more than the first;
    or the next file does not fit.
    """
    least, most = sizes
    run: list[ArchiveFile] = []
    for file in files:
        is_small = file.rows <= most
        if not is_small or sum(small.rows for small in run) + file.rows > full_rows:
            if len(run) > 1 and (is_small or sum(small.rows > least for small in run) >= fewest):
                yield run
            run = []
        if is_small:
            run.append(file)
    if sum(small.rows > least for small in run) >= fewest:
        while run[-1].rows <= least:
            run.pop()
        yield run


@dataclass(frozen=True)
class Archive:
    """The archive of a job, as its readers see it."""

    folder: Path  # where it is
    names: Names = field(default_factory=lambda: NO_NAMES)  # see `under`
    until: int | None = None  # the last batch to read; None: all

    def under(self, names: Names) -> "Archive":
        """Return the archive with columns under earlier names read as the fields that `names` maps them to."""
        return replace(self, names=names)

    def columns(self) -> list[str]:
        """Return the columns of its table, with fields by their present names."""
        return list(self._sources(pa.schema(open_table(self.table_path).schema().to_arrow()).names))

    @property
    def table_path(self) -> Path:
        """The path of the table."""
        return table_of(self.folder)

    def exists(self) -> bool:
        """Return whether the table exists; it may be empty."""
        return is_table(self.table_path)

    def since(self) -> int | None:
        """Return the first archived batch; None if that is the job's first."""
        first = open_table(self.table_path).metadata().configuration.get(SINCE)
        return None if first is None else int(first)

    def end(self) -> int:
        """Return the number of the next arrival, which is the number of rows to read."""
        rows = end_of(open_table(self.table_path))
        if self.until is None or not rows:
            return rows
        later = f"select min({ARRIVAL}) as first from archive where {BATCH} > {self.until}"
        first = replace(self, until=None).query(later)["first"][0].as_py()
        return rows if first is None else int(first)

    def tables(
        self, first: int = 0, end: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows from arrival `first` to before `end`, in order, in tables of up to about a million.

        With some `columns`, `_arrival` is included as well.
        """
        whole = self._named(pa.schema(open_table(self.table_path).schema().to_arrow()).empty_table()).schema
        last = self.end()
        names = whole.names if columns is None else list(dict.fromkeys([ARRIVAL, *columns]))
        wanted = pa.schema([whole.field(name) for name in names])
        end = last if end is None else min(end, last)
        for added in files_of(open_table(self.table_path)):
            if added.last < first or added.first >= end:
                continue
            path = as_input(self.table_path / added.path)
            with readable(f"archive {self.folder}", _REMEDY), pq.ParquetFile(path) as file:
                there = [name for name in file.schema_arrow.names if self.names.get(name, name) in names]
                rows = with_columns(self._named(file.read(columns=there)), wanted)
            numbers = rows[ARRIVAL].to_numpy()
            order = np.argsort(numbers, kind="stable")
            begin, until = np.searchsorted(numbers, [first, end], sorter=order).tolist()
            yield rows.take(pa.array(order[begin:until])).combine_chunks()

    def query(self, sql: str) -> pa.Table:
        """Run an SQL query over the table `archive`; files without matches are not read."""
        table = open_table(self.table_path)
        columns = self._sources(pa.schema(table.schema().to_arrow()).names)
        parts = (f"coalesce({', '.join(map(quoted_column, sources))})" for sources in columns.values())
        chosen = ", ".join(f"{part} as {quoted_column(name)}" for name, part in zip(columns, parts, strict=True))
        rows = f"select {chosen if self.names else '*'} from rows"
        if self.until is not None:
            rows += f" where {BATCH} <= {self.until}"
        return query(table, f"with archive as ({rows}) {sql}", f"archive {self.folder}", _REMEDY)

    def _sources(self, columns: Iterable[str]) -> dict[str, list[str]]:
        """Return the columns of each field, by field name."""
        sources: dict[str, list[str]] = {}
        for column in columns:
            sources.setdefault(self.names.get(column, column), []).append(column)
        return sources

    def _named(self, rows: pa.Table) -> pa.Table:
        """Return rows with one column for each field."""
        columns = {name: [rows[column] for column in each] for name, each in self._sources(rows.column_names).items()}
        return pa.table({name: each[0] if len(each) == 1 else pc.coalesce(*each) for name, each in columns.items()})


def by_batch(tables: Iterator[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Split tables in arrival order into tables of one batch each; a large batch yields several."""
    for table in tables:
        batches = table[BATCH].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(table)]
        for start, end in itertools.pairwise(starts):
            if end > start:
                yield int(batches[start]), table.slice(start, end - start)
