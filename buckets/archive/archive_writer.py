"""Appends the arrivals of each batch of a job to its archive, exactly once and in arrival order."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from buckets.archive.archive import CLUSTER_BY, SINCE, Archive, end_of, table_of
from buckets.archive.arrived_rows import ARRIVAL, ArrivedRows, archive_columns, in_files, of_batch
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import OwnedFolder
from buckets.config.settings import ArchiveSettings
from buckets.delta.commits import DataFile, with_columns, write_data_file
from buckets.delta.kept_table import KeptTable
from buckets.delta.upkeep import Upkeep
from buckets.delta.whole_table import add_missing_columns, is_table, last_number, make_table, open_table, through_store
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.rules.rule_set import RuleSet

FILE_ROWS = 200_000  # About how many rows a file of a large batch has
ARCHIVE = "archive"  # With a checkpoint's identity, the application name under which its job appends


def check_archive(folder: OwnedFolder, checkpoint: Checkpoint, identity: str | None) -> bool:
    """Check that the next batch follows the archived ones, if any; return whether the archive exists.

    Raises:
        BucketsError: the archive belongs to another checkpoint, or lacks batches that the job has scored without it.
    """
    is_there, table = folder.is_of(identity), table_of(folder.path)
    scored = checkpoint.batches.latest_done()[0]
    if not is_there or identity is None or scored is None or not is_table(table):
        return is_there
    last = last_number(table, f"{identity}-{ARCHIVE}")
    if last is None:
        last = (Archive(folder.path).since() or 0) - 1
    if last < scored:
        message = (
            f"archive {folder.path}: ends with batch {last}, and the job has scored batches up to {scored} without it; "
            "name a new archive.path, which begins with the next batch"
        )
        raise BucketsError(message)
    return is_there


class ArchiveWriter:
    """Appends to a job's archive; for use by one thread at a time."""

    def __init__(self, folder: Path, settings: ArchiveSettings, identity: str, upkeep: Upkeep) -> None:
        """Write under `folder`; the checkpoint's identity and the batch number make each write happen once."""
        self._path, self._cluster_by = table_of(folder), settings.cluster_by
        self._application, self._upkeep = f"{identity}-{ARCHIVE}", upkeep
        self._table = KeptTable(self._path, self._application)
        self._schema: EventSchema | None = None
        self._end: int | None = None  # The number of the next arrival; None if the table must be asked

    def write(self, batch_id: int, schema: EventSchema, rule_set: RuleSet, arrived: Sequence[ArrivedRows]) -> None:
        """Append the arrivals of a batch, unless an earlier run of it has."""
        if schema != self._schema:
            self._prepare(batch_id, schema, rule_set)
        columns, end = archive_columns(schema), self._end
        first = end_of(open_table(self._path)) if end is None else end
        self._end = None  # In case the append fails

        def write_files(of_table: pa.Schema) -> list[DataFile]:
            nonlocal first
            files = []
            for rows in in_files(arrived, FILE_ROWS):
                numbers = pa.array(np.arange(first, first + len(rows)))
                numbered = with_columns(of_batch(rows, batch_id).append_column(ARRIVAL, numbers), of_table)
                files.append(write_data_file(self._path, [numbered], of_table, use_dictionary=False))
                first += len(rows)
            return files

        self._table.append(batch_id, columns.empty_table, write_files)
        self._end = first
        self._upkeep.appended(self._path)

    def _prepare(self, batch_id: int, schema: EventSchema, rule_set: RuleSet) -> None:
        """Create the table, or add columns for fields that it lacks; one field sorts the rows of its files."""
        columns, wanted = archive_columns(schema), self._cluster_by
        if not is_table(self._path):
            first = next((field for group in rule_set.groups for field in group.counted_fields), None)
            given = {CLUSTER_BY: wanted or first, SINCE: str(batch_id) if batch_id else None}
            make_table(self._path, columns, {name: value for name, value in given.items() if value is not None} or None)
        add_missing_columns(self._path, columns)
        table = open_table(self._path)
        if wanted is not None and table.metadata().configuration.get(CLUSTER_BY) != wanted:
            named = {CLUSTER_BY: wanted}
            through_store(self._path, lambda: table.alter.set_table_properties(named, raise_if_not_exists=False))
        self._upkeep.prepare(self._path)
        self._table, self._schema = KeptTable(self._path, self._application), schema
