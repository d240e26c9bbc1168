"""Writes files so that they exist whole or not at all, even after a crash."""

import fcntl
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from buckets.errors import BucketsError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def check_local(origin: str, path: str) -> None:
    """See that a path names something in the file system.

    Args:
        origin: where the path stands, for the error.
        path: as it is written.

    Raises:
        BucketsError: it begins with a scheme, such as `s3://` or `file:/`.
    """
    scheme = _SCHEME.match(path)
    if scheme is not None:
        message = (
            f"{origin}: {path} begins with a scheme, {scheme[0]}, and only paths of this machine's file system are "
            "taken; write the path alone, and where the data lie in a store, mount that as a folder"
        )
        raise BucketsError(message)


def partial_of(path: Path) -> Path:
    """Return where a file is written before it is whole."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder: of those who change files in it, in this process or another one, one does so at a time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it exists whole or not at all, even after a crash."""
    replace_whole(path, content)
    _write_through_names(path.parent)


def replace_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by another one of its name; after a crash of the machine it may be the one before."""
    partial = partial_of(path)
    _write_through(partial, content)
    partial.replace(path)


def write_first(path: Path, content: bytes) -> bool:
    """Write a file as `write_whole` does, unless it is there; return whether it was written.

    Of processes that do so at the same time, one writes it.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _write_through(partial, content)
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        return False
    finally:
        partial.unlink()
    _write_through_names(path.parent)
    return True


def _write_through(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def _write_through_names(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def holds_more_than(folder: Path, first: Path, besides: Collection[Path] = ()) -> bool:
    """Return whether a folder holds more than what a start leaves that died before its first file was whole.

    Args:
        folder: the folder.
        first: the first file.
        besides: files that may be there too.
    """
    if not folder.exists():
        return False
    if not folder.is_dir():
        return True
    return any(
        path not in (first.parent, *besides)
        and not (path.parent == first.parent and path.match(f".{first.name}.*partial"))
        for path in folder.rglob("*")
    )
