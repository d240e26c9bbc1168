"""Files as pyarrow reads and writes them: opened in a store as in a file system, and written there as a whole."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from buckets.stores.store_path import StorePath


def as_input(path: Path) -> Path | IO[bytes]:
    """Return a file as pyarrow reads it; of an object in a store only those parts are fetched that it wants."""
    return path.open("rb") if isinstance(path, StorePath) else path


@contextmanager
def as_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write it; an object of a store is written at the end, and until then in memory."""
    if isinstance(path, StorePath):
        with io.BytesIO() as sink:
            yield sink
            path.write_bytes(sink.getbuffer())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        yield file
