"""The archive: all that has arrived, typed, with the batch that scored it, as one Delta table in the order of arrival.

Besides the declared fields each row has columns of the archive's own, whose names begin with `_`. Repeats, late events
and rows that are no events are in it too: it is what arrived, not what counted.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from buckets.delta.numbered_append import append_new
from buckets.delta.table_upgrade import add_missing_columns
from buckets.events.schema import EventSchema

ARRIVAL = "_arrival"
"""The number of a row in the order of arrival, from 0."""
BATCH = "_batch_id"
SOURCE, SOURCE_ORDER, POSITION = "_source", "_source_order", "_position"
INGESTED = "_ingested_ms"
FAULT = "_fault"
"""Why a row is no event, whatever the rules; null of events."""
RAW = "_raw"
"""The row as it came, where it is no event."""
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
    ]
)
TIME = pa.timestamp("us", "UTC")
_TYPES = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}
_APPLICATION = "archive"
_TABLE = "arrivals"


def archive_columns(schema: EventSchema) -> pa.Schema:
    """The columns of the archive of events of a schema."""
    fields = [pa.field(schema.event_id, pa.string()), pa.field(schema.event_time.field, TIME)]
    fields += [pa.field(name, _TYPES[kind]) for name, kind in schema.attributes.items()]
    fields += [pa.field(name, pa.decimal128(38, measure.scale)) for name, measure in schema.measures.items()]
    return pa.schema([*OWN_COLUMNS, *fields])


class Archive:
    """The archive of a job."""

    def __init__(self, folder: Path) -> None:
        """Look at a folder; nothing is written yet."""
        self.folder = folder
        self.table_path = folder / _TABLE

    def exists(self) -> bool:
        """Whether anything has been archived."""
        return (self.table_path / "_delta_log").exists()

    def prepare(self, schema: EventSchema) -> None:
        """Make the table, or give it the columns of fields that it lacks."""
        columns = archive_columns(schema)
        if self.exists():
            add_missing_columns(self.table_path, columns)
        else:
            DeltaTable.create(self.table_path, columns)

    def end(self) -> int:
        """How many rows there are, which is the number of the next arrival."""
        return (DeltaTable(self.table_path).transaction_version(_APPLICATION) or 0) if self.exists() else 0

    def last_batch(self) -> tuple[int, int] | None:
        """The last batch that is archived, as far as it is, and how many of its rows are; None where nothing is."""
        if not self.end():
            return None
        last = self.query(f"select max({BATCH}) as last from archive")["last"][0].as_py()
        rows = self.query(f"select count(*) as rows from archive where {BATCH} = {last}")["rows"][0].as_py()
        return last, rows

    def append(self, rows: pa.Table, first: int) -> bool:
        """Append rows in the order of arrival, once.

        Args:
            rows: columns of `archive_columns`, some of which may be missing, and then are null; without `_arrival`.
            first: the number of the first of them.

        Returns:
            Whether they are what comes next; if another process was faster, they are not written.
        """
        table = DeltaTable(self.table_path)
        columns = pa.schema(table.schema().to_arrow())
        numbers = pa.array(np.arange(first, first + len(rows)))
        whole = {name: rows[name] for name in rows.column_names} | {ARRIVAL: numbers}
        arrays = [whole.get(field.name, pa.nulls(len(rows), field.type)) for field in columns]
        numbered = pa.table(arrays, names=columns.names).cast(columns)
        written = False

        def new_rows(last: int | None) -> tuple[int, pa.Table] | None:
            nonlocal written
            written = (last or 0) == first
            return (first + len(rows), numbered) if written else None

        append_new(table, _APPLICATION, new_rows)
        return written

    def tables(
        self, first: int = 0, end: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """The rows in the order of arrival, in tables of up to about a million.

        Args:
            first: the number of the first arrival.
            end: the number after the last one; None for all there are.
            columns: those wanted; `_arrival` comes too. None for all.
        """
        wanted = None if columns is None else list(dict.fromkeys([ARRIVAL, *columns]))
        for low, high, path in self._files():
            if high >= first and (end is None or low < end):
                rows = pq.read_table(path, columns=wanted, partitioning=None)
                inside = pc.greater_equal(rows[ARRIVAL], first)
                if end is not None:
                    inside = pc.and_(inside, pc.less(rows[ARRIVAL], end))
                rows = rows if pc.all(inside).as_py() else rows.filter(inside)
                yield rows.sort_by(ARRIVAL).combine_chunks()

    def _files(self) -> list[tuple[int, int, Path]]:
        """The files of the table with the numbers of their first and last arrival, in order: they do not overlap."""
        added = pa.table(DeltaTable(self.table_path).get_add_actions(flatten=True)).to_pylist()
        return sorted((row[f"min.{ARRIVAL}"], row[f"max.{ARRIVAL}"], self.table_path / row["path"]) for row in added)

    def query(self, sql: str) -> pa.Table:
        """What a query in SQL over the table `archive` finds; files without matches are not read."""
        return pa.table(QueryBuilder().register("archive", DeltaTable(self.table_path)).execute(sql).read_all())


def by_batch(tables: Iterator[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Tables in the order of arrival as tables of one batch each; a large batch comes in several of them."""
    for table in tables:
        batches = table[BATCH].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(table)]
        for start, end in itertools.pairwise(starts):
            if end > start:
                yield int(batches[start]), table.slice(start, end - start)
