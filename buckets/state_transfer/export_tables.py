"""The tables of an export: their rows, and whether they are those that were written."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from buckets.errors import BucketsError, first_line
from buckets.state_transfer.export_manifest import KEYS, PAGES, RECORDS, SHARDS, ExportManifest, TableCheck

CHECKED = {
    KEYS: ("shard", "state_key", "head", "policies"),
    PAGES: ("shard", "state_key", "page"),
    SHARDS: ("shard", "overview", "voters"),
    RECORDS: ("path", "content"),
}
"""Of each table, the columns that its checksum is of."""
_CHANGED = "does not hold what was written"


def rows_of(folder: Path, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table, with the columns of `CHECKED`.

    Raises:
        BucketsError: it cannot be read.
    """
    try:
        yield from DeltaTable(folder / name).to_pyarrow_dataset().to_batches(columns=list(CHECKED[name]))
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise _damaged(folder, name, f"cannot be read ({first_line(error)})") from error


def check_table(folder: Path, name: str) -> TableCheck:
    """Count the rows of a table, and compute a checksum of them in any order. Cost: about 3 us a row.

    Raises:
        BucketsError: it cannot be read.
    """
    rows = checksum = 0
    for batch in rows_of(folder, name):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            fields = [value if isinstance(value, bytes) else str(value).encode() for value in row]
            text = b"".join([*(len(field).to_bytes(8) for field in fields), *fields])
            checksum = (checksum + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())) % 2**64
        rows += batch.num_rows
    return TableCheck(rows=rows, checksum=checksum)


def check_contents(folder: Path, manifest: ExportManifest) -> None:
    """See that each table holds what was written.

    Raises:
        BucketsError: one does not, or cannot be read.
    """
    for name in CHECKED:
        if check_table(folder, name) != manifest.tables.get(name):
            raise _damaged(folder, name, _CHANGED)


def check_row_counts(folder: Path, manifest: ExportManifest) -> None:
    """See that each table opens and has as many rows as were written; no row is read.

    Raises:
        BucketsError: one does not.
    """
    for name in CHECKED:
        try:
            rows = DeltaTable(folder / name).to_pyarrow_dataset().count_rows()
        except (DeltaError, pa.ArrowException, OSError) as error:
            raise _damaged(folder, name, f"cannot be read ({first_line(error)})") from error
        written = manifest.tables.get(name)
        if written is None or rows != written.rows:
            raise _damaged(folder, name, _CHANGED)


def _damaged(folder: Path, name: str, what: str) -> BucketsError:
    message = f"export {folder} is damaged: table {name} {what}; export the state again"
    return BucketsError(message)
