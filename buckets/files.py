"""Writes files so that they exist whole or not at all, even after a crash."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from buckets.stores.store_path import StorePath


def partial_of(path: Path) -> Path:
    """Return the path at which a file is written until it is complete."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder, so that only one writer at a time, in any process, changes files in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it exists whole or not at all, even after a crash."""
    replace_whole(path, content)
    if not isinstance(path, StorePath):
        _write_through_names(path.parent)


def replace_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by a new one of the same name; after a crash of the machine, it may be the old one."""
    if isinstance(path, StorePath):
        path.write_bytes(_as_bytes(content))
        return
    partial = partial_of(path)
    _write_through(partial, content)
    partial.replace(path)


def write_first(path: Path, content: bytes) -> bool:
    """Write a file as `write_whole` does, unless it exists; return whether it was written.

    If several processes try at the same time, exactly one writes it.
    """
    if isinstance(path, StorePath):
        return path.write_first(content) is not None
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


def show_whole(path: Path, content: bytes) -> None:
    """Replace a file so that readers see it complete; a crash of the machine may lose it."""
    if isinstance(path, StorePath):
        path.write_bytes(content)
        return
    partial = partial_of(path)
    partial.write_bytes(content)
    partial.replace(path)


def append_whole(path: Path, content: bytes) -> None:
    """Append to a file, made if missing, and sync it; in an object store, which cannot append, rewrite the object."""
    if isinstance(path, StorePath):
        path.write_bytes((path.read_bytes() if path.is_file() else b"") + content)
        return
    _write_through(path, content, "ab")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield where to write a large file first, and move it into place after the `with`; the writer has to sync it."""
    if isinstance(path, StorePath):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / path.name
            path.write_bytes((Path(folder) / path.name).read_bytes())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    yield partial_of(path)
    partial_of(path).replace(path)


def numbers_in(folder: Path, ending: str) -> list[int]:
    """Return the numbers that name the files of a folder with this ending, ascending. Cost: one listing."""
    if isinstance(folder, StorePath):
        return sorted(int(path.stem) for path in folder.glob(f"[0-9]*{ending}"))
    try:
        names = os.listdir(folder)  # With less work than `glob`, some times in each batch
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name.removesuffix(ending)) for name in names if name[:1].isdecimal() and name.endswith(ending))


def sizes_in(folder: Path, pattern: str) -> dict[Path, int]:
    """Return the files of a folder whose names match, with their sizes in bytes. Cost: one listing, in a store."""
    if isinstance(folder, StorePath):
        return {path: size for path, size in folder.sizes() if path.match(pattern)}
    return {path: path.stat().st_size for path in folder.glob(pattern)}


def remove_tree(folder: Path) -> None:
    """Remove a folder with its contents, as far as possible."""
    if isinstance(folder, StorePath):
        with contextlib.suppress(OSError):
            for path in folder.rglob("*"):
                path.unlink()
        return
    shutil.rmtree(folder, ignore_errors=True)


def _as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _write_through(path: Path, content: str | bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write(_as_bytes(content))
        file.flush()
        os.fsync(file.fileno())


def _write_through_names(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def holds_more_than(folder: Path, first: Path, besides: Collection[Path] = ()) -> bool:
    """Return whether a folder holds more than the remains of a start that died before its first file was complete."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        return True
    return any(
        path not in (first.parent, *besides)
        and not (path.parent == first.parent and path.match(f".{first.name}.*partial"))
        for path in folder.rglob("*")
    )
