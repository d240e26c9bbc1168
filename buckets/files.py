"""Writes files so that they exist whole or not at all, even after a crash."""

import os
from pathlib import Path


def partial_of(path: Path) -> Path:
    """Where a file is written before it is whole."""
    return path.with_name(f".{path.name}.partial")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it exists whole or not at all, even after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(path)
    with partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def holds_more_than(folder: Path, first: Path) -> bool:
    """Whether a folder holds more than what a start leaves that died before its first file was whole."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        return True
    return any(path not in (partial_of(first), first.parent) for path in folder.rglob("*"))
