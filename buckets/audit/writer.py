"""Writes the rows of a batch to their Delta tables, each exactly once.

Two mechanisms make it exactly once. A batch that runs again is recognised by its number, which is part of the commit
(`append_new`). A message that was sent again, because a scoring batch ran again, is recognised by its id, and only the
first is kept: an anti-join and an append. Ids are looked up only where a repeat is possible (`Table.repeats_share`): by
day, and by position or time of the event. Delta's statistics hold these for each file, so the amount read grows with
the batch and not with the table.

Rows are written from the driver, through delta-rs. Seven tables with 10 to 300 rows each took 0.05 s that way, and 13
to 22 s as Spark appends, on the same busy machine with two cores: a batch every few seconds must leave the cores to
scoring.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from buckets.audit.tables import (
    DAY,
    FAULT,
    TABLE,
    UNREADABLE,
    Table,
    rows_of,
)
from buckets.delta.kept_table import append_new
from buckets.delta.upkeep import Upkeep
from buckets.delta.whole_table import open_table, query, through_store
from buckets.outputs.contract import MOMENT

OPEN_COMMITS = 64  # The number of commits after which a table is reopened
AT_ONCE = 4  # How many tables are written in parallel


@dataclass(frozen=True)
class WrittenMessages:
    """What happened to the messages of a batch."""

    messages: Mapping[str, int]  # the messages for each table
    repeats: int  # the number of them that the tables already contained
    unreadable: int  # the number that did not fit their schema


class AuditWriter:
    """Writes the rows of batches."""

    def __init__(self, folder: Path, identity: str, tables: Iterable[Table], upkeep: Upkeep | None = None) -> None:
        """Write to existing tables under `folder`.

        The checkpoint's identity and the batch number make each write happen once. `upkeep` maintains the tables while
        batches are written.
        """
        self._identity = identity
        self._upkeep = upkeep
        self._tables = {table.name: table for table in tables}
        self._folder = folder
        self._open = {name: open_table(folder / name) for name in self._tables}
        self._since = {name: table.version() for name, table in self._open.items()}

    def write(self, read: pa.Table, batch_id: int) -> WrittenMessages:
        """Write a batch exactly once, even if it runs again; tables without rows in it are not touched."""
        counts = {pair["values"]: pair["counts"] for pair in pc.value_counts(read[TABLE]).to_pylist()}
        unreadable = read.num_rows - read[FAULT].null_count
        touched = [*counts, *([UNREADABLE] if unreadable else [])]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            repeats = list(pool.map(lambda name: self._append(name, read, batch_id), touched))
        return WrittenMessages(counts, sum(repeats), unreadable)

    def _append(self, name: str, read: pa.Table, batch_id: int) -> int:
        """Write the rows of a table; return the number of repeats."""
        table, there, repeats = self._tables[name], self._table(name), 0

        def new_rows(last: int | None) -> tuple[int, pa.Table] | None:
            nonlocal repeats
            repeats = 0
            if last is not None and last >= batch_id:
                return None
            rows = rows_of(table, read)
            new = rows if table.identity is None else self._without_repeats(table, rows)
            repeats = rows.num_rows - new.num_rows
            return (batch_id, new) if new.num_rows else None

        append_new(there, f"{self._identity}-{name}", new_rows)
        if self._upkeep is not None:
            self._upkeep.appended(self._folder / name)
        return repeats

    def _table(self, name: str) -> DeltaTable:
        """Return a table's latest version, reopened now and then since it holds all commits in memory."""
        if self._open[name].version() - self._since[name] >= OPEN_COMMITS:
            self._open[name] = open_table(self._folder / name)
            self._since[name] = self._open[name].version()
        else:
            through_store(self._folder / name, self._open[name].update_incremental)
        return self._open[name]

    def _without_repeats(self, table: Table, rows: pa.Table) -> pa.Table:
        """Return the first row of each id, without ids that the table already contains."""
        assert table.identity is not None
        codes = rows[table.identity].combine_chunks().dictionary_encode().indices.to_numpy()
        _, first = np.unique(codes, return_index=True)
        rows = rows.take(pa.array(np.sort(first)))
        if not rows.num_rows:
            return rows
        where = " and ".join(_like(rows, column) for column in table.repeats_share) or "true"
        sql = f"select {table.identity} from rows where {where}"
        known = query(self._open[table.name], sql, f"audit {self._folder / table.name}")[table.identity]
        return rows.filter(pc.invert(pc.is_in(rows[table.identity], value_set=known.combine_chunks())))


def _like(rows: pa.Table, column: str) -> str:
    """Return the SQL condition that a column has one of its values in these rows."""
    if column == DAY:
        days = ", ".join(f"date '{day.isoformat()}'" for day in pc.unique(rows[DAY]).to_pylist())
        return f"{DAY} in ({days})"
    values = rows[column]
    if values.type == MOMENT:
        ends = pc.min_max(values.cast(pa.int64())).as_py().values()
        first, last = (f"arrow_cast({end}, 'Timestamp(Microsecond, Some(\"UTC\"))')" for end in ends)
    else:
        first, last = pc.min_max(values).as_py().values()
    return f"{column} between {first} and {last}"
