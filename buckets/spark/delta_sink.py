"""Results into Delta tables, a table an output, each written once for a batch however often the batch runs."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from buckets.checkpoint.basis import Terms
from buckets.delta.commits import DataFile, write_data_file
from buckets.delta.kept_table import KeptTable, WriteApart
from buckets.delta.upkeep import Upkeep
from buckets.delta.whole_table import make_table
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.shard import Produced
from buckets.outputs import columns
from buckets.spark.scored_batch import ScoredBatch, in_microseconds, run_apart
from buckets.spark.spilled import Spilled
from buckets.stores.location import location

BATCH_ID = "batch_id"  # The first column of each table: the batch that wrote the row
_HIDDEN = ("source_order",)


def table_columns(terms: Terms) -> dict[str, pa.Schema]:
    """Return the outputs and their columns, as the tables have them."""
    outputs = columns.output_columns(terms.event_schema.largest_scale) | {columns.BATCHES: columns.BATCH_COLUMNS}
    if not terms.evaluations:
        del outputs[columns.EVALUATIONS]
    return {name: _as_stored(schema) for name, schema in outputs.items()}


def _as_stored(schema: pa.Schema) -> pa.Schema:
    """Return the columns of an output as those of its table."""
    kept = [field for field in in_microseconds(schema) if field.name not in (*_HIDDEN, BATCH_ID)]
    return pa.schema([pa.field(BATCH_ID, pa.int64()), *kept])


def _with_batch(table: pa.Table, batch_id: int, schema: pa.Schema) -> pa.Table:
    """Return the rows of an output as those of its table."""
    batch = pa.array(np.full(table.num_rows, batch_id))
    return table.append_column(BATCH_ID, batch).select(schema.names).cast(schema)


class DeltaSink:
    """Writes the outputs of each batch to Delta tables under one folder."""

    def __init__(self, folder: Path, identity: str, upkeep: Upkeep | None = None) -> None:
        """Write under `folder`.

        Args:
            folder: where the tables are.
            identity: of the checkpoint; with a batch's number it makes a write happen once.
            upkeep: what looks after the tables while batches are written; None for nothing.
        """
        self._folder = folder
        self._identity = identity
        self._upkeep = upkeep
        self._tables = {name: KeptTable(folder / name, self._application(name)) for name in columns.TABLES}

    def _application(self, name: str) -> str:
        """Return whose numbers the appends to a table have."""
        return f"{self._identity}-{name}"

    def prepare(self, terms: Terms) -> None:
        """Make the tables that are not there yet, so that every output can be read at once."""
        for name, schema in table_columns(terms).items():
            make_table(self._folder / name, schema)
            if self._upkeep is not None:
                self._upkeep.prepare(self._folder / name)

    def write(self, batch: ScoredBatch) -> None:
        """Write what a batch produced: the tables at once, for a commit is mostly waiting, and then the accounts."""
        schemas = {name: schema for name, schema in table_columns(batch.terms).items() if batch.has(name)}
        with ThreadPoolExecutor(max_workers=max(1, len(schemas))) as pool:
            list(pool.map(lambda name: self._write_output(name, schemas[name], batch), schemas))
        self.append_accounts(batch.account)

    def _write_output(self, name: str, schema: pa.Schema, batch: ScoredBatch) -> None:
        batch_id = batch.account.batch_id
        if name == columns.DEAD_LETTERS or not batch.spilled(name):
            self._append(name, batch_id, lambda: _with_batch(batch.table(name), batch_id, schema))
            return

        def at_hand() -> pa.Table:
            tables = [_with_batch(table, batch_id, schema) for table in batch.tables_at_hand(name)]
            return pa.concat_tables([schema.empty_table(), *tables])

        with nullcontext() if self._upkeep is None else self._upkeep.nothing_expires(self._folder / name):
            self._append(name, batch_id, at_hand, partial(write_spilled, self._folder / name, name, batch))

    def append_accounts(self, account: BatchAccount) -> None:
        """Append the accounts of a batch."""
        schema = _as_stored(columns.BATCH_COLUMNS)
        self._append(columns.BATCHES, account.batch_id, lambda: pa.Table.from_pylist(account.rows(), schema=schema))

    def _append(
        self, name: str, batch_id: int, make: Callable[[], pa.Table], write_apart: WriteApart = lambda columns: ()
    ) -> None:
        self._tables[name].append(batch_id, make, write_apart)
        if self._upkeep is not None:
            self._upkeep.appended(self._folder / name)


def write_spilled(table: Path, output: str, batch: ScoredBatch, stored: pa.Schema) -> list[DataFile]:
    """Have executors write what has spilled of an output into files of its table; a commit has to name them.

    Args:
        table: the folder.
        output: its name.
        batch: the batch.
        stored: the columns as the table has them.
    """
    of_file: dict[str, list[Spilled]] = {}
    for lying in batch.spilled(output):
        of_file.setdefault(lying.path, []).append(lying)
    folder, decoder, batch_id = str(table), batch.decoder, batch.account.batch_id

    def work(files: Iterable[list[Spilled]]) -> Iterator[Produced]:
        for several in files:
            payloads = (packed for lying in several for packed in lying.payloads())
            rows = (_with_batch(each, batch_id, stored) for each in decoder.tables(output, payloads))
            file = write_data_file(location(folder), rows, stored)
            yield Produced(output, file.rows, file.to_json())

    written = run_apart(batch.session, list(of_file.values()), work)
    return [DataFile.from_json(table, each.payload) for each in written]
