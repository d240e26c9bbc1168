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
    if not isinstance(path, StorePath):
        _write_through_names(path.parent)


def replace_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by another one of its name; after a crash of the machine it may be the one before."""
    if isinstance(path, StorePath):
        path.write_bytes(_as_bytes(content))
        return
    partial = partial_of(path)
    _write_through(partial, content)
    partial.replace(path)


def write_first(path: Path, content: bytes) -> bool:
    """Write a file as `write_whole` does, unless it is there; return whether it was written.

    Of processes that do so at the same time, one writes it.
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
    """Replace a file so that who reads it sees it whole; a crash of the machine may take it along."""
    if isinstance(path, StorePath):
        path.write_bytes(content)
        return
    partial = partial_of(path)
    partial.write_bytes(content)
    partial.replace(path)


def append_whole(path: Path, content: bytes) -> None:
    """Add to a file, if it is there, to the disk; in a store, which cannot do that, the object is written anew."""
    if isinstance(path, StorePath):
        path.write_bytes((path.read_bytes() if path.is_file() else b"") + content)
        return
    _write_through(path, content, "ab")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Let a large file be written elsewhere first, and to the disk, and put it in its place when it is whole."""
    if isinstance(path, StorePath):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / path.name
            path.write_bytes((Path(folder) / path.name).read_bytes())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    yield partial_of(path)
    partial_of(path).replace(path)


def numbers_in(folder: Path, ending: str) -> list[int]:
    """Return the numbers by which files of a folder are named that have an ending, ascending. Cost: of a listing."""
    if isinstance(folder, StorePath):
        return sorted(int(path.stem) for path in folder.glob(f"[0-9]*{ending}"))
    try:
        names = os.listdir(folder)  # With less work than `glob`, some times in each batch
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name.removesuffix(ending)) for name in names if name[:1].isdecimal() and name.endswith(ending))


def sizes_in(folder: Path, pattern: str) -> dict[Path, int]:
    """Return the files of a folder whose names match, with their sizes in bytes. Cost: of a listing, in a store."""
    if isinstance(folder, StorePath):
        return {path: size for path, size in folder.sizes() if path.match(pattern)}
    return {path: path.stat().st_size for path in folder.glob(pattern)}


def remove_tree(folder: Path) -> None:
    """Remove a folder with its contents, as far as that can be done."""
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
    """Return whether a folder holds more than what a start leaves that died before its first file was whole."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        return True
    return any(
        path not in (first.parent, *besides)
        and not (path.parent == first.parent and path.match(f".{first.name}.*partial"))
        for path in folder.rglob("*")
    )
