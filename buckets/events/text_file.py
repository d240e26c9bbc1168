"""Text files, which may be compressed, as they are opened wherever Spark does not read them."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from buckets.errors import BucketsError, first_line

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".lz4": "lz4", ".zst": "zstd"}
"""How a text file is compressed, by the ending of its name, as Spark reads it."""


_REMEDY = "replace it by a whole file that may be read, or leave it out"


def text_suffix(path: Path) -> str:
    """Return the ending of a file's name that says what is in it: of `day.csv.gz` it is `.csv`."""
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


@contextmanager
def open_text(path: Path, remedy: str = _REMEDY) -> Iterator[IO[bytes]]:
    """Open a text file to read it.

    Args:
        path: the file; the ending of its name says how it is compressed.
        remedy: what to do about a file that cannot be read.

    Raises:
        BucketsError: it cannot be read, from its beginning or further down.
    """
    try:
        with path.open("rb") as file:
            kind = COMPRESSED.get(path.suffix)
            yield file if kind is None else io.BufferedReader(pa.CompressedInputStream(file, kind))
    except OSError as error:
        message = f"events {path}: cannot be read ({getattr(error, 'strerror', None) or first_line(error)}); {remedy}"
        raise BucketsError(message) from None
