"""Locations in a file system or an object store; and local copies of files that must be memory-mapped."""

import contextlib
import hashlib
import io
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from buckets.errors import BucketsError
from buckets.stores.store_path import StorePath, check_environment

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(.*)")
_STORES = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfss", "abfss": "abfss"}
"""Maps each accepted scheme to the one that Spark and Delta know."""
_NOT_TAKEN = re.compile(r"[%#?\[\]\\|^\x00-\x1f\x7f]")
"""Characters refused in addresses: Spark and Delta read them differently, and would disagree about the folder."""


def location(text: str, base: Path = Path()) -> Path:
    """Return the location of a path, or of an address in an object store, as written by a person."""
    path = found_location(text, base)
    wrong = _NOT_TAKEN.search(text) if isinstance(path, StorePath) else None
    if wrong is not None:
        message = f"{path}: {wrong[0]!r} is not taken in an address; name it without, and a space as it is, not %20"
        raise BucketsError(message)
    return path


def found_location(text: str, base: Path = Path()) -> Path:
    """Return the location of a path, or of an address in an object store, that was listed there, whatever its names."""
    # A path that was parsed as a local one has lost a slash.
    scheme = _SCHEME.match(text)
    if scheme is None:
        return base / text
    kind, rest = _STORES.get(scheme[1].lower()), scheme[2]
    if kind is None:
        message = (
            f"{text} begins with a scheme, {scheme[1]}:, and only paths and object stores are taken "
            f"({', '.join(f'{name}://' for name in _STORES)}); write the path alone"
        )
        raise BucketsError(message)
    parts = rest.strip("/").split("/")
    if not parts[0] or any(part in ("", ".", "..") for part in parts):
        message = f"{text}: write it as {kind}://BUCKET/FOLDER, without empty names, `.` and `..`"
        raise BucketsError(message)
    check_environment()
    return StorePath(f"{kind}:", *parts)


def in_file_system(path: Path) -> Path:
    """Return a local path, for an option that accepts no object store."""
    scheme = _SCHEME.match(str(path))
    if scheme is not None:
        message = f"{scheme[1]}://{scheme[2].lstrip('/')}: is not a path of a file system, which alone is taken here"
        raise BucketsError(message)
    return path


def as_input(path: Path) -> Path | IO[bytes]:
    """Open a file for pyarrow; of an object in a store only the requested parts are fetched."""
    return path.open("rb") if isinstance(path, StorePath) else path


@contextmanager
def as_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing; an object is buffered in memory and written at the end."""
    if isinstance(path, StorePath):
        with io.BytesIO() as sink:
            yield sink
            path.write_bytes(sink.getbuffer())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        yield file


_KEPT_S = 7 * 86_400  # Copies unused for this long are deleted


def local_copy(path: Path) -> Path:
    """Return a local file with the contents of an immutable object; a local file is returned unchanged.

    Each object is copied once per machine, for all processes of a user, and kept while in use. Raises OSError if it
    cannot be read, or written locally.
    """
    if not isinstance(path, StorePath):
        return path
    folder = Path(tempfile.gettempdir()) / f"buckets-{os.getuid()}" / "objects"
    copy = folder / hashlib.blake2b(f"{path} {path.tag()}".encode(), digest_size=16).hexdigest()
    if copy.exists():
        os.utime(copy)
        return copy
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink()
    partial = copy.with_name(f"{copy.name}.{os.getpid()}")
    partial.write_bytes(path.read_bytes())
    partial.replace(copy)
    return copy
