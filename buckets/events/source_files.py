"""Lists the files of a source's folder, and opens them as text; reports the ignored ones with the reason.

Names that begin with `_` or `.` are ignored: other programs use them for incomplete files and files without data.
"""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from buckets.errors import BucketsError, first_line
from buckets.events.csv_events import read_events as csv_events
from buckets.events.csv_events import text_lines
from buckets.events.json_events import read_events as json_events
from buckets.events.parquet_rows import with_folder_values
from buckets.events.schema import EventSchema
from buckets.stores.store_path import StorePath

FileFormat = Literal["json", "csv", "parquet"]
_NO_DATA = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})
"""Files that Spark and others leave beside their data, which nobody expects to be read."""


def plain_path(address: str) -> str:
    """Return the path of a file from its address in Spark, a URI; for an object in a store, as the code writes it."""
    parts = urlsplit(address)
    path = unquote(parts.path)
    return path if parts.scheme in ("", "file") else f"{parts.scheme}://{parts.netloc}{path}"


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is ignored."""
    return name.startswith(("_", ".")) or name.endswith("._COPYING_")


def readable_files(folder: Path, subfolders: bool) -> Iterator[Path]:
    """Yield all files of a source to read; the source may be a single file."""
    return (path for path, _ in _readable(folder, subfolders))


def modified_files(folder: Path, subfolders: bool) -> Iterator[tuple[Path, int | None]]:
    """Yield all files of a source to read, each with its modification time as returned by `modified_ms`."""
    return ((path, modified_ms(path) if known is None else known) for path, known in _readable(folder, subfolders))


def modified_ms(path: Path) -> int | None:
    """Return when a file was modified, as Spark sees it, in ms since the epoch; None if it is gone.

    For an object in a store, whole seconds: not all responses of a store are more precise.
    """
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def _readable(folder: Path, subfolders: bool) -> Iterator[tuple[Path, int | None]]:
    """Yield all files to read, each with its modification time if listing them gave it."""
    if folder.is_file():
        yield folder, None
    for where, folders, names in _walk(folder):
        folders[:] = [name for name in folders if subfolders and not is_hidden(name)]
        times = names if isinstance(names, Mapping) else {}
        yield from ((where / name, times.get(name)) for name in names if not is_hidden(name))


def _walk(folder: Path) -> Iterator[tuple[Path, list[str], Iterable[str]]]:
    """Yield each folder with its names; folders that the caller removes are not visited."""
    if isinstance(folder, StorePath):
        return folder.walk()
    return ((Path(where), folders, names) for where, folders, names in os.walk(folder))


def passed_over(folder: Path, subfolders: bool) -> Iterator[tuple[Path, str]]:
    """Yield ignored files and folders with the reason, except those that never hold data."""
    for where, folders, names in _walk(folder):
        walked = [name for name in folders if subfolders and not is_hidden(name)]
        for name in [*folders, *names]:
            path = where / name
            if is_hidden(name) and name not in _NO_DATA and not name.endswith(".crc"):
                mark = "begins with '_' or '.'" if name.startswith(("_", ".")) else "ends with '._COPYING_'"
                what = "files in it are" if name in folders else "it is"
                yield path, f"its name {mark}, so {what} passed over; rename it to have it read"
            elif name in folders and name not in walked and any(readable_files(path, True)):
                yield (
                    path,
                    "it is in a sub-folder; move the files up, or set source.subfolders: true with a new checkpoint",
                )
            elif not isinstance(path, StorePath) and name in names and path.exists() and not path.is_file():
                yield path, "it is a pipe, a socket or a device, and is not read; write a file"
        folders[:] = walked


def line_reader(
    kind: FileFormat, schema: EventSchema, header: list[str] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a reader of lines, for columns `raw` (bytes), `source`, `source_order`, and `position` if known.

    `header` gives the fields of CSV lines if the header line is not among them.
    """
    if kind == "csv":
        written = schema.csv
        encoding, name = written.line_encoding, written.encoding_name
        return lambda batches: csv_events(text_lines(batches, encoding, name), schema, header)
    return lambda batches: (
        with_folder_values(json_events(rows, schema), schema, schema.field_names) for rows in text_lines(batches)
    )


COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".lz4": "lz4", ".zst": "zstd"}
"""The compression of a text file by the ending of its name, as in Spark."""


_REMEDY = "replace it by a whole file that may be read, or leave it out"


def text_suffix(path: Path) -> str:
    """Return the ending that names the format of a file: `.csv` for `day.csv.gz`."""
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


@contextmanager
def open_text(path: Path, remedy: str = _REMEDY) -> Iterator[IO[bytes]]:
    """Open a text file, decompressed as its ending says; an error if it cannot be read ends with `remedy`."""
    try:
        with path.open("rb") as file:
            kind = COMPRESSED.get(path.suffix)
            yield file if kind is None else io.BufferedReader(pa.CompressedInputStream(file, kind))
    except OSError as error:
        message = f"events {path}: cannot be read ({getattr(error, 'strerror', None) or first_line(error)}); {remedy}"
        raise BucketsError(message) from None
