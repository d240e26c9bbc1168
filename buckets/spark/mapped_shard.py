"""A shard's cache in a folder of mapped files, for all processes of a machine.

    FOLDER/9f86d081884c7d65/        a shard, by a hash of its lineage
        mark                        says what lies here; locked by the process that has the shard
        entries, table, ...         the arrays

The first byte of the mark is 1 where the arrays are what the rest of it says. It is 0 from before something is changed
until all is: a process that is killed, in whatever it does, leaves a 0, and what lies there is not looked at again. Nor
is it where any of it is of another release, another start of the machine or another size.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from buckets import __version__
from buckets.clock import machine_start
from buckets.engine.storage.arena import BUFFER, ENTRIES, TABLE, ArenaNumbers
from buckets.spark.mapped_memory import MARK, OWN_FILE, MappedMemory
from buckets.state.cache import CacheNumbers
from buckets.state.live_log import HELD, SEGMENTS

MARK_VERSION = 1  # Of the mark, and of what the numbers in the arrays say
PRIVATE = 0o700
_DIRTY, _CLEAN = b"\0", b"\1"
_CHECK_BYTES = 4
_LARGEST_MARK = 1 << 16


@cache
def _made_by() -> dict[str, Any]:
    """Return what the arrays have to be made by: this release, since the machine was started."""
    layout = [[part.name, np.dtype(part.dtype).str, part.columns] for part in (ENTRIES, TABLE, BUFFER, HELD, SEGMENTS)]
    return {"version": MARK_VERSION, "release": __version__, "layout": layout, "start": machine_start()}


class MappedShard:
    """The folder of a shard, and its arrays as this process has them mapped.

    Attributes:
        memory: its arrays.
    """

    def __init__(self, folder: Path, lineage: str) -> None:
        """Open the folder, which is made where there is none.

        Args:
            folder: of all shards.
            lineage: of the shard.

        Raises:
            OSError: it cannot be opened.
        """
        self._lineage = lineage
        self._path = folder / hashlib.blake2b(lineage.encode(), digest_size=16).hexdigest()
        self._path.mkdir(PRIVATE, exist_ok=True)
        self.memory = MappedMemory(self._path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._mark = os.open(self._path / MARK, flags, OWN_FILE)

    def lock(self) -> bool:
        """Take the shard for this process; returns False where another one has it, or the folder is gone."""
        try:
            fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat((self._path / MARK).lstat(), os.fstat(self._mark)):
                return True
            self.unlock()
        except OSError:
            pass
        return False

    def unlock(self) -> None:
        """Let others have the shard."""
        fcntl.flock(self._mark, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of all of it."""
        os.close(self._mark)

    def read(self) -> CacheNumbers | None:
        """Return the numbers of the cache that lies here; None where there is none that can be gone on with."""
        data = os.pread(self._mark, _LARGEST_MARK, 0)
        check, text = data[1 : 1 + _CHECK_BYTES], data[1 + _CHECK_BYTES :]
        if data[:1] != _CLEAN or check != _check(text):
            return None
        read = json.loads(text)
        if read["made_by"] != _made_by() or read["cache"]["lineage"] != self._lineage:
            return None
        return _numbers_of(read["cache"]) if self.memory.resume(read["sizes"]) else None

    def begin_changes(self) -> None:
        """Mark what lies here as not to be looked at, until `end_changes`."""
        os.pwrite(self._mark, _DIRTY, 0)

    def end_changes(self, numbers: CacheNumbers) -> bool:
        """Mark what lies here as right, and return True; where there was no room for some of it, it stays as it is."""
        if self.memory.has_failed:
            return False
        written = {"made_by": _made_by(), "sizes": self.memory.sizes(), "cache": dataclasses.asdict(numbers)}
        text = json.dumps(written, separators=(",", ":")).encode()
        os.ftruncate(self._mark, 1)
        os.pwrite(self._mark, _check(text) + text, 1)
        os.pwrite(self._mark, _CLEAN, 0)
        return True

    def remove(self) -> None:
        """Remove the folder, which this process has locked."""
        shutil.rmtree(self._path, ignore_errors=True)


def remove_oldest(folder: Path, most: int) -> None:
    """Leave the folders of at most so many shards; one that is in use stays."""
    marks = sorted(folder.glob(f"*/{MARK}"), key=lambda mark: mark.lstat().st_mtime)
    for mark in marks[: max(0, len(marks) - most)]:
        with mark.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            shutil.rmtree(mark.parent, ignore_errors=True)


def _check(text: bytes) -> bytes:
    return zlib.crc32(text).to_bytes(_CHECK_BYTES, "little")


def _numbers_of(read: dict[str, Any]) -> CacheNumbers:
    arena = read["arena"] | {"counters": tuple(read["arena"]["counters"])}
    return CacheNumbers(**read | {"arena": ArenaNumbers(**arena), "log": tuple(read["log"])})
