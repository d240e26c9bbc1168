"""Files of Parquet where they lie: opened from a store as from a file system, and written there as a whole."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from buckets.stores.store_path import StorePath


def as_input(path: Path) -> Path | IO[bytes]:
    """Return a file as pyarrow reads it; of an object in a store only those parts are fetched that it wants."""
    return path.open("rb") if isinstance(path, StorePath) else path


class ParquetFile:
    """A file of a table that is being written.

    Attributes:
        size_bytes: how large it is, once it is written.
    """

    def __init__(self, writer: pq.ParquetWriter) -> None:
        """Begin with none of its rows."""
        self._writer = writer
        self.size_bytes = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        self._writer.write_table(rows)


@contextmanager
def parquet_file(path: Path, columns: pa.Schema) -> Iterator[ParquetFile]:
    """Write a file of a table; an object of a store is written at the end, and until then in memory."""
    in_store = isinstance(path, StorePath)
    if not in_store:
        path.parent.mkdir(parents=True, exist_ok=True)
    sink = io.BytesIO() if in_store else path
    with pq.ParquetWriter(sink, columns, compression="snappy") as writer:
        file = ParquetFile(writer)
        yield file
    if isinstance(sink, io.BytesIO):
        file.size_bytes = path.write_bytes(sink.getbuffer())
    else:
        file.size_bytes = path.stat().st_size
