"""How many events a file, a folder of files or a Delta table has, about, without reading them."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from buckets.delta.query import is_table
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.events.source_files import readable_files
from buckets.events.text_file import COMPRESSED
from buckets.stores.location import found_location
from buckets.stores.opened_files import as_input

_LOOKED_AT = 8
_SAMPLE_BYTES = 1 << 16
_BYTES_A_ROW = 100
"""Of a text whose lines are longer than a sample, as of one that is a single array."""


def rows_about(path: Path) -> int:
    """Return about how many events there are; 0 where nothing can be read, which whoever reads them then says.

    A Delta table counts its rows in its log, and so does a file of Parquet in its footer. Of text the first lines are
    looked at, and of many files the largest ones.

    Args:
        path: what `open_events` opens.
    """
    try:
        path = found_location(str(path))
        if is_table(path):
            return int(open_table(path).count())
        sizes = {file: file.stat().st_size for file in readable_files(path, subfolders=False)}
        largest = sorted(sizes, key=lambda file: sizes[file])[-_LOOKED_AT:]
        looked_at = sum(sizes[file] for file in largest)
        return round(sum(_rows(file, sizes[file]) for file in largest) * sum(sizes.values()) / max(looked_at, 1))
    except (BucketsError, OSError, pa.ArrowException):
        return 0


def _rows(file: Path, size_bytes: int) -> float:
    """Return about how many rows a file has."""
    if file.suffix.lower() == ".parquet":
        return float(pq.read_metadata(as_input(file)).num_rows)
    with file.open("rb") as opened:
        sample = opened.read(_SAMPLE_BYTES)
    text = _plain(file, sample)
    lines = text.count(b"\n") or len(text) / _BYTES_A_ROW
    return lines * size_bytes / max(len(sample), 1)


def _plain(file: Path, sample: bytes) -> bytes:
    """Return what the beginning of a file holds, up to where it is cut off if it is compressed."""
    codec = COMPRESSED.get(file.suffix.lower())
    if codec is None:
        return sample
    parts: list[bytes] = []
    with (
        contextlib.suppress(OSError, pa.ArrowException),
        pa.CompressedInputStream(pa.BufferReader(sample), codec) as stream,
    ):
        while part := stream.read(_BYTES_A_ROW):
            parts.append(part)
    return b"".join(parts)
