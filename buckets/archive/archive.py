"""The archive: all that has arrived, typed, with the batch that scored it, as one Delta table in the order of arrival.

Besides the declared fields each row has columns of the archive's own, whose names begin with `_`. Repeats, late events
and rows that are no events are in it too: it is what arrived, not what counted.

Files are laid out so that what belongs to one key is found without reading the rest. Arrivals come in the order of
time, so files do, and the log's statistics leave out those of another time. Within a file of up to about a million rows
they are sorted by one field, that by which the first rules group: the rows of one of its values lie in one row group of
each file, and the others are left out by their statistics. For all other fields by which rules may group, and for the
id, each row group has a Bloom filter: who looks for a card reads the row groups that have it.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from buckets.delta.commits import with_columns
from buckets.delta.kept_table import WHOLE, append_new
from buckets.delta.whole_table import (
    add_missing_columns,
    files_in,
    is_table,
    make_table,
    quoted_column,
    run,
    through_store,
)
from buckets.errors import BucketsError, Outage, first_line
from buckets.events.conversion import column_types
from buckets.events.schema import EventSchema
from buckets.rules.group import NO_NAMES
from buckets.rules.renaming import Names
from buckets.stores.location import as_input

ARRIVAL = "_arrival"  # The number of a row in the order of arrival, from 0
CLUSTER_BY = "buckets.clusterBy"  # The property of the table that names the field by which files are sorted
SINCE = "buckets.since"
"""The property of the table that has the number of its first batch, where that is not the first of the job."""
FULL_ROWS = 1_000_000  # Rows of a file that is joined from small ones, at most
_SMALL_ROWS = FULL_ROWS // 2
_ROW_GROUP = 32_768  # Rows that are read together, or left out together
_PAGE = 8_192
_WRONG_HITS = 0.01  # The share of row groups that a Bloom filter lets through though they lack the value
_FILE_FAULT = re.compile(r"\b(Parquet|Object Store) error: ")
BATCH = "_batch_id"
SOURCE, SOURCE_ORDER, POSITION = "_source", "_source_order", "_position"
INGESTED = "_ingested_ms"
FAULT = "_fault"  # Why a row is not an event, whatever the rules; null of events
JUDGED = "_judged"  # Whether rules are evaluated at the event; null where all events of its batch were judged
RAW = "_raw"  # The row as it came, where it is not an event
OWN_COLUMNS = pa.schema(
    [
        pa.field(ARRIVAL, pa.int64()),
        pa.field(BATCH, pa.int64()),
        pa.field(SOURCE, pa.string()),
        pa.field(SOURCE_ORDER, pa.int64()),
        pa.field(POSITION, pa.int64()),
        pa.field(INGESTED, pa.int64()),
        pa.field(FAULT, pa.string()),
        pa.field(RAW, pa.string()),
        pa.field(JUDGED, pa.bool_()),
    ]
)
TIME = pa.timestamp("us", "UTC")
_APPLICATION = "archive"
_BATCHES = "archive-batches"
_TABLE = "arrivals"


class ArchiveFile(NamedTuple):
    """A file of the archive: the numbers of its first and last arrival, its path within the table, and its rows."""

    first: int
    last: int
    path: str
    rows: int


@contextmanager
def reading(table_path: Path) -> Iterator[None]:
    """Say in one line that an archive is damaged, whatever is read of it."""
    try:
        yield
    except Outage:
        raise
    except Exception as error:
        # Queries raise nothing narrower than Exception where a file cannot be read.
        if not isinstance(error, (OSError, DeltaError, pa.ArrowException)) and not _FILE_FAULT.search(str(error)):
            raise
        message = (
            f"archive {table_path.parent}: cannot be read ({first_line(error)}); restore it from a copy, or remove it "
            "while the source still holds everything, and it is made again"
        )
        raise BucketsError(message) from error


def open_table(table_path: Path) -> DeltaTable:
    """Open the table of an archive."""
    with reading(table_path):
        return through_store(table_path, lambda: DeltaTable(str(table_path)))


def files_of(table: DeltaTable) -> list[ArchiveFile]:
    """Return the files of a table in the order of arrival; they do not overlap."""
    added = files_in(table).to_pylist()
    names = (f"min.{ARRIVAL}", f"max.{ARRIVAL}", "path", "num_records")
    return sorted(ArchiveFile(*(row[name] for name in names)) for row in added)


def clustered(rows: pa.Table, table: DeltaTable) -> pa.Table:
    """Return rows that become one file, in the order in which they lie there."""
    field = table.metadata().configuration.get(CLUSTER_BY)
    if field not in rows.column_names:
        return rows.sort_by(ARRIVAL)
    return rows.sort_by([(field, "ascending"), (ARRIVAL, "ascending")])


def file_properties(columns: pa.Schema) -> WriterProperties:
    """Return how a file with these columns is written."""
    is_looked_for = [
        field.name
        for field in columns
        if not field.name.startswith("_") and (pa.types.is_string(field.type) or pa.types.is_int64(field.type))
    ]
    bloom = BloomFilterProperties(set_bloom_filter_enabled=True, fpp=_WRONG_HITS, ndv=_ROW_GROUP)
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


def join_small_files(path: Path) -> int:
    """Join runs of small files, each with one commit, and return how many files there are fewer.

    Another process may append meanwhile. If one joins files too, the first has done it.
    """
    table = open_table(path)
    before = files_of(table)
    columns = pa.schema(table.schema().to_arrow())
    for small in _runs(before):
        with reading(path):
            tables = [pq.read_table(as_input(path / file.path), partitioning=None) for file in small]
        rows = clustered(with_columns(pa.concat_tables(tables, promote_options="default"), columns), table)
        replace = partial(  # done once more, it is the same
            write_deltalake,
            table,
            rows,
            mode="overwrite",
            predicate=f"{ARRIVAL} >= {small[0].first} AND {ARRIVAL} <= {small[-1].last}",
            writer_properties=file_properties(columns),
            target_file_size=WHOLE,
        )
        try:
            through_store(path, replace)
        except CommitFailedError:
            break
    table = open_table(path)
    after = files_of(table)
    if len(after) < len(before):
        through_store(path, lambda: table.vacuum(dry_run=False))
        through_store(path, table.cleanup_metadata)
    return len(before) - len(after)


def _runs(files: list[ArchiveFile]) -> list[list[ArchiveFile]]:
    """Return runs of small files that follow each other and together make no more than a full one."""
    runs: list[list[ArchiveFile]] = [[]]
    for file in files:
        run = runs[-1]
        fits = not run or sum(small.rows for small in run) + file.rows <= FULL_ROWS
        if file.rows > _SMALL_ROWS or not fits:
            runs.append([])
        if file.rows <= _SMALL_ROWS:
            runs[-1].append(file)
    return [run for run in runs if len(run) > 1]


def archive_columns(schema: EventSchema) -> pa.Schema:
    """Return the columns of the archive of events of a schema."""
    fields = [pa.field(schema.event_id, pa.string()), pa.field(schema.event_time.field, TIME)]
    fields += [pa.field(name, kind) for name, kind in column_types(schema).items()]
    fields += [pa.field(name, pa.decimal128(38, measure.scale)) for name, measure in schema.measures.items()]
    return pa.schema([*OWN_COLUMNS, *fields])


class Archive:
    """The archive of a job."""

    def __init__(self, folder: Path, names: Names = NO_NAMES) -> None:
        """Write nothing yet; `names` are as `under` takes them."""
        self.folder, self.names = folder, names
        self.table_path = folder / _TABLE

    def under(self, names: Names) -> "Archive":
        """Return the same where a column with a name of another time is read as the field that this stands for."""
        return Archive(self.folder, names)

    def columns(self) -> list[str]:
        """Return the columns of its table, fields by the names that are used."""
        return list(self._sources(pa.schema(open_table(self.table_path).schema().to_arrow()).names))

    def exists(self) -> bool:
        """Return whether anything has been archived."""
        return is_table(self.table_path)

    def prepare(self, schema: EventSchema, cluster_by: str | None = None, since: int | None = None) -> None:
        """Make the table, or give it the columns of fields of the newest batch that it lacks.

        Within a file rows are sorted by the field `cluster_by` from now on; None: as until now. A new table begins with
        the batch `since`; None: with the first of the job.
        """
        columns = archive_columns(schema)
        if not self.exists():
            given = {CLUSTER_BY: cluster_by, SINCE: None if since is None else str(since)}
            settings = {name: value for name, value in given.items() if value is not None} or None
            make_table(self.table_path, columns, settings)
            return
        open_table(self.table_path)
        add_missing_columns(self.table_path, columns)
        table = open_table(self.table_path)
        if cluster_by is not None and table.metadata().configuration.get(CLUSTER_BY) != cluster_by:
            named = {CLUSTER_BY: cluster_by}
            through_store(self.table_path, lambda: table.alter.set_table_properties(named, raise_if_not_exists=False))

    def since(self) -> int | None:
        """Return the first batch that is archived; None where that is the first of the job."""
        first = open_table(self.table_path).metadata().configuration.get(SINCE) if self.exists() else None
        return None if first is None else int(first)

    def end(self) -> int:
        """Return how many rows there are, which is the number of the next arrival."""
        return (self._last(_APPLICATION) or 0) if self.exists() else 0

    def last_batch(self) -> tuple[int, int] | None:
        """Return the last batch that is archived, if only in part, and its rows so far; None where nothing is."""
        if not self.end():
            return None
        last = self.query(f"select max({BATCH}) as last from archive")["last"][0].as_py()
        rows = self.query(f"select count(*) as rows from archive where {BATCH} = {last}")["rows"][0].as_py()
        return last, rows

    def complete_batch(self) -> int | None:
        """Return the last batch that is known to be archived as a whole; None where none is."""
        return self._last(_BATCHES) if self.exists() else None

    def _last(self, application: str) -> int | None:
        with reading(self.table_path):
            return through_store(self.table_path, lambda: open_table(self.table_path).transaction_version(application))

    def append(self, rows: pa.Table, first: int, complete: int | None = None) -> bool:
        """Append rows in the order of arrival, once; of columns of `archive_columns` missing ones are null.

        With them the batch `complete` is archived as a whole; None where they end within one. Says whether the rows,
        whose first has the number `first`, are what comes next: if another process was faster, they are not written.
        """
        table = open_table(self.table_path)
        columns = pa.schema(table.schema().to_arrow())
        numbers = pa.array(np.arange(first, first + len(rows)))
        numbered = clustered(with_columns(rows.append_column(ARRIVAL, numbers), columns), table)
        written = False

        def new_rows(last: int | None) -> tuple[int, pa.Table] | None:
            nonlocal written
            written = (last or 0) == first
            return (first + len(rows), numbered) if written else None

        besides = [] if complete is None else [Transaction(_BATCHES, complete)]
        append_new(table, _APPLICATION, new_rows, file_properties(columns), besides)
        return written

    def tidy(self) -> int:
        """Join small files, as many appends leave them. Returns how many files there are fewer."""
        return join_small_files(self.table_path) if self.exists() else 0

    def tables(
        self, first: int = 0, end: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows from one arrival on, up to another, in their order, in tables of up to about a million.

        Of some `columns`, `_arrival` comes too.
        """
        whole = self._named(pa.schema(open_table(self.table_path).schema().to_arrow()).empty_table()).schema
        names = whole.names if columns is None else list(dict.fromkeys([ARRIVAL, *columns]))
        wanted = pa.schema([whole.field(name) for name in names])
        for added in files_of(open_table(self.table_path)):
            if added.last < first or (end is not None and added.first >= end):
                continue
            with reading(self.table_path), pq.ParquetFile(as_input(self.table_path / added.path)) as file:
                there = [name for name in file.schema_arrow.names if self.names.get(name, name) in names]
                rows = with_columns(self._named(file.read(columns=there)), wanted)
            inside = pc.greater_equal(rows[ARRIVAL], first)
            if end is not None:
                inside = pc.and_(inside, pc.less(rows[ARRIVAL], end))
            rows = rows if pc.all(inside).as_py() else rows.filter(inside)
            yield rows.sort_by(ARRIVAL).combine_chunks()

    def query(self, sql: str) -> pa.Table:
        """Run a query in SQL over the table `archive`; files without matches are not read."""
        table = open_table(self.table_path)
        columns = self._sources(pa.schema(table.schema().to_arrow()).names)
        parts = (f"coalesce({', '.join(map(quoted_column, sources))})" for sources in columns.values())
        chosen = ", ".join(f"{part} as {quoted_column(name)}" for name, part in zip(columns, parts, strict=True))
        view = f"with archive as (select {chosen} from arrivals) {sql}" if self.names else sql
        with reading(self.table_path):
            return through_store(self.table_path, lambda: run(table, view, "arrivals" if self.names else "archive"))

    def _sources(self, columns: Iterable[str]) -> dict[str, list[str]]:
        """Return the columns of each field, by its name."""
        sources: dict[str, list[str]] = {}
        for column in columns:
            sources.setdefault(self.names.get(column, column), []).append(column)
        return sources

    def _named(self, rows: pa.Table) -> pa.Table:
        """Return rows with one column for each field."""
        columns = {name: [rows[column] for column in each] for name, each in self._sources(rows.column_names).items()}
        return pa.table({name: each[0] if len(each) == 1 else pc.coalesce(*each) for name, each in columns.items()})


def by_batch(tables: Iterator[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Split tables in the order of arrival into tables of one batch each; a large batch comes in several of them."""
    for table in tables:
        batches = table[BATCH].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(table)]
        for start, end in itertools.pairwise(starts):
            if end > start:
                yield int(batches[start]), table.slice(start, end - start)
