"""The archive: all that has arrived, typed, with the batch that scored it, as one Delta table in the order of arrival.

Besides the declared fields each row has columns of the archive's own, whose names begin with `_`. Repeats, late events
and rows that are no events are in it too: it is what arrived, not what counted. How files are laid out, so that the
events of one key are found without reading the others, is in `layout`.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Transaction

from buckets.archive import layout as archive_layout
from buckets.archive.layout import (
    CLUSTER_BY,
    SINCE,
    clustered,
    file_properties,
    files_of,
    join_small_files,
    open_table,
    reading,
)
from buckets.archive.recorded_batches import FieldNames
from buckets.delta.commits import with_columns
from buckets.delta.kept_table import append_new
from buckets.delta.whole_table import add_missing_columns, is_table, make_table, run, through_store
from buckets.events.conversion import column_types
from buckets.events.schema import EventSchema
from buckets.stores.location import as_input

ARRIVAL = archive_layout.ARRIVAL
BATCH = "_batch_id"
SOURCE, SOURCE_ORDER, POSITION = "_source", "_source_order", "_position"
INGESTED = "_ingested_ms"
FAULT = "_fault"  # Why a row is no event, whatever the rules; null of events
JUDGED = "_judged"  # Whether rules are evaluated at the event; null where all events of its batch were judged
RAW = "_raw"  # The row as it came, where it is no event
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


def archive_columns(schema: EventSchema) -> pa.Schema:
    """Return the columns of the archive of events of a schema."""
    fields = [pa.field(schema.event_id, pa.string()), pa.field(schema.event_time.field, TIME)]
    fields += [pa.field(name, kind) for name, kind in column_types(schema).items()]
    fields += [pa.field(name, pa.decimal128(38, measure.scale)) for name, measure in schema.measures.items()]
    return pa.schema([*OWN_COLUMNS, *fields])


class Archive:
    """The archive of a job."""

    def __init__(self, folder: Path, names: FieldNames | None = None) -> None:
        """Write nothing yet; rows are read under `names`, which say what fields were called in earlier batches."""
        self.folder, self.names = folder, names or FieldNames()
        self.table_path = folder / _TABLE

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
        whole = pa.schema(open_table(self.table_path).schema().to_arrow())
        asked = None if columns is None else list(dict.fromkeys([ARRIVAL, *columns]))
        wanted, fields = asked, [name for name in asked or whole.names if name not in OWN_COLUMNS.names]
        if asked is not None and not self.names.is_plain:
            read = [name for name in self.names.columns_of(fields) if name in whole.names]
            wanted = list(dict.fromkeys([*asked, BATCH, *read]))
        for added in files_of(open_table(self.table_path)):
            if added.last >= first and (end is None or added.first < end):
                with reading(self.table_path), pq.ParquetFile(as_input(self.table_path / added.path)) as file:
                    there = None if wanted is None else [name for name in wanted if name in file.schema_arrow.names]
                    columns_read = whole if wanted is None else pa.schema([whole.field(name) for name in wanted])
                    rows = with_columns(file.read(columns=there), columns_read)
                inside = pc.greater_equal(rows[ARRIVAL], first)
                if end is not None:
                    inside = pc.and_(inside, pc.less(rows[ARRIVAL], end))
                rows = rows if pc.all(inside).as_py() else rows.filter(inside)
                rows = rows.sort_by(ARRIVAL).combine_chunks()
                if not self.names.is_plain:
                    rows = self.names.renamed(rows, BATCH, fields).select(asked or whole.names).combine_chunks()
                yield rows

    def query(self, sql: str) -> pa.Table:
        """Run a query in SQL over the table `archive`; files without matches are not read."""
        table, name = open_table(self.table_path), "archive"
        if not self.names.is_plain:
            name, columns = "arrivals", pa.schema(table.schema().to_arrow())
            sql = f"with archive as ({self.names.view(columns, OWN_COLUMNS.names, BATCH)}) {sql}"
        with reading(self.table_path):
            return through_store(self.table_path, lambda: run(table, sql, name))


def by_batch(tables: Iterator[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Split tables in the order of arrival into tables of one batch each; a large batch comes in several of them."""
    for table in tables:
        batches = table[BATCH].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(table)]
        for start, end in itertools.pairwise(starts):
            if end > start:
                yield int(batches[start]), table.slice(start, end - start)
