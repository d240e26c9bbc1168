"""How the files of the archive are laid out, so that what belongs to one key is found without reading the rest.

Arrivals come in the order of time, so files do, and the log's statistics leave out those of another time. Within a file
of up to about a million rows they are sorted by one field, that by which the first rules group: the rows of one of its
values lie in one row group of each file, and the others are left out by their statistics. For all other fields by which
rules may group, and for the id, each row group has a Bloom filter: who looks for a card reads the row groups that have
it. `_arrival` says in which order they arrived.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import BloomFilterProperties, ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from buckets.delta.commits import with_columns
from buckets.delta.kept_table import WHOLE
from buckets.delta.whole_table import files_in, through_store
from buckets.errors import BucketsError, Outage, first_line
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
    for run in _runs(before):
        with reading(path):
            tables = [pq.read_table(as_input(path / file.path), partitioning=None) for file in run]
        rows = clustered(with_columns(pa.concat_tables(tables, promote_options="default"), columns), table)
        replace = partial(  # done once more, it is the same
            write_deltalake,
            table,
            rows,
            mode="overwrite",
            predicate=f"{ARRIVAL} >= {run[0].first} AND {ARRIVAL} <= {run[-1].last}",
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
