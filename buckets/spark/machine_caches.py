"""Shard caches in memory-mapped files, shared by all Python workers of a machine.

A worker maps the cache of its current shard. The cache outlives the worker, so a shard keeps it on another worker. If
another attempt holds it, or space runs out, the worker uses a private cache.
"""

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import shutil
import zlib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from buckets import __version__
from buckets.clock import machine_start
from buckets.engine.storage.arena import BUFFER, ENTRIES, TABLE, ArenaNumbers
from buckets.engine.storage.key import Array, MemoryPart
from buckets.spark.session_folder import OWN_FILE, PRIVATE, SHARDS
from buckets.state.live_log import HELD, SEGMENTS, CacheNumbers, PrivateCaches, ShardCache

MARK = "mark"  # The one file in a folder that is not an array
IS_KNOWN = hasattr(os, "posix_fallocate")  # Whether this system can reserve space for a file


class MappedMemory:
    """Arrays in the files of a folder.

    Attributes:
        has_failed: whether space ran out, so that some arrays are in this process's own memory.
    """

    def __init__(self, folder: Path) -> None:
        """Map nothing yet."""
        self._folder = folder
        self._arrays: dict[str, Array] = {}
        self.has_failed = False

    def sizes(self) -> dict[str, int]:
        """Return the size of each file by name."""
        return {name: array.nbytes for name, array in self._arrays.items()}

    def resume(self, sizes: Mapping[str, int]) -> bool:
        """Reuse the arrays in the files; return whether the files have the given sizes.

        A file whose size has changed is mapped again on its next use.
        """
        try:
            if any((self._folder / name).lstat().st_size != size for name, size in sizes.items()):
                return False
        except OSError:
            return False
        self._arrays = {name: array for name, array in self._arrays.items() if array.nbytes == sizes.get(name)}
        return True

    def clear(self) -> None:
        """Empty the files."""
        self._arrays.clear()
        for path in self._folder.iterdir():
            if path.name != MARK:
                os.truncate(path, 0)

    def grow(self, part: MemoryPart, kept: int, rows: int) -> Array:
        """Return an array with at least `rows` rows, without a copy; raises OSError if its file cannot be created."""
        array = self._arrays.get(part.name)
        if array is not None and rows <= len(array):
            return array
        wanted = rows if array is None else max(rows, len(array) * 9 // 8)
        try:
            grown = self._map(part, wanted)
        except OSError:
            if array is None:
                raise
            self.has_failed = True
            grown = part.empty(max(wanted, rows * 3 // 2))
            grown[:kept] = array[:kept]
        self._arrays[part.name] = grown
        return grown

    def fit(self, part: MemoryPart, kept: int) -> Array:
        """Shrink an array that is less than half full, and return it; the end of its file is freed."""
        array = self._arrays[part.name]
        if self.has_failed or len(array) <= 2 * kept:
            return array
        try:
            os.truncate(self._folder / part.name, _in_pages(part, kept))
            array = self._arrays[part.name] = self._map(part, kept)
        except OSError:
            self.has_failed = True  # the existing mapping still has these rows
        return array

    def _map(self, part: MemoryPart, rows: int) -> Array:
        """Map a file as rows, extending it if it is too short."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._folder / part.name, flags, OWN_FILE)
        try:
            size_bytes, needed_bytes = os.fstat(descriptor).st_size, _in_pages(part, rows)
            if size_bytes < needed_bytes:
                os.posix_fallocate(descriptor, size_bytes, needed_bytes - size_bytes)
            mapped = mmap.mmap(descriptor, max(size_bytes, needed_bytes))
        finally:
            os.close(descriptor)
        return part.shaped(np.frombuffer(mapped, part.dtype))


def _in_pages(part: MemoryPart, rows: int) -> int:
    return -(-rows * part.row_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


MARK_VERSION = 1  # The format of the mark, and of the numbers in the arrays
_DIRTY, _CLEAN = b"\0", b"\1"
_CHECK_BYTES = 4
_LARGEST_MARK = 1 << 16


@cache
def _made_by() -> dict[str, Any]:
    """Return what must match to reuse a cache: its format, this release, and the machine's start."""
    layout = [[part.name, np.dtype(part.dtype).str, part.columns] for part in (ENTRIES, TABLE, BUFFER, HELD, SEGMENTS)]
    return {"version": MARK_VERSION, "release": __version__, "layout": layout, "start": machine_start()}


class MappedShard:
    """The folder of a shard, and its arrays as mapped by this process.

    Attributes:
        memory: its arrays.
    """

    def __init__(self, folder: Path, lineage: str) -> None:
        """Open the folder, creating it if necessary; raises OSError if it cannot be opened."""
        self._lineage = lineage
        self._path = folder / hashlib.blake2b(lineage.encode(), digest_size=16).hexdigest()
        self._path.mkdir(PRIVATE, exist_ok=True)
        self.memory = MappedMemory(self._path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._mark = os.open(self._path / MARK, flags, OWN_FILE)

    def lock(self) -> bool:
        """Lock the shard for this process; return False if another process holds it or the folder is gone."""
        try:
            fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat((self._path / MARK).lstat(), os.fstat(self._mark)):
                return True
            self.unlock()
        except OSError:
            pass
        return False

    def unlock(self) -> None:
        """Release the shard to other processes."""
        fcntl.flock(self._mark, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._mark)

    def read(self) -> CacheNumbers | None:
        """Return the numbers of the stored cache; None if there is no usable cache."""
        data = os.pread(self._mark, _LARGEST_MARK, 0)
        check, text = data[1 : 1 + _CHECK_BYTES], data[1 + _CHECK_BYTES :]
        if data[:1] != _CLEAN or check != _check(text):
            return None
        read = json.loads(text)
        if read["made_by"] != _made_by() or read["cache"]["lineage"] != self._lineage:
            return None
        if not self.memory.resume(read["sizes"]):
            return None
        arena = read["cache"]["arena"] | {"counters": tuple(read["cache"]["arena"]["counters"])}
        return CacheNumbers(**read["cache"] | {"arena": ArenaNumbers(**arena), "log": tuple(read["cache"]["log"])})

    def begin_changes(self) -> None:
        """Mark the stored cache as unusable until `end_changes`."""
        os.pwrite(self._mark, _DIRTY, 0)

    def end_changes(self, numbers: CacheNumbers) -> bool:
        """Mark the stored cache as usable and return True; if space ran out, leave it unusable and return False."""
        if self.memory.has_failed:
            return False
        cache = vars(numbers) | {"arena": vars(numbers.arena)}
        written = {"made_by": _made_by(), "sizes": self.memory.sizes(), "cache": cache}
        text = json.dumps(written, separators=(",", ":")).encode()
        os.ftruncate(self._mark, 1)
        os.pwrite(self._mark, _check(text) + text, 1)
        os.pwrite(self._mark, _CLEAN, 0)
        return True

    def remove(self) -> None:
        """Delete the folder, which this process has locked."""
        shutil.rmtree(self._path, ignore_errors=True)


def remove_oldest(folder: Path, most: int) -> None:
    """Delete the oldest shard folders until `most` remain, except those in use."""
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


OF_EXECUTOR = "SPARK_LOCAL_DIRS"  # Where Spark names a worker its executor's folders, which go with the executor
MOST_MAPPED = 64  # The most shards whose files stay mapped between batches, since each takes some descriptors


class MachineCaches:
    """The shard caches that this worker shares with others, each held exclusively between `take` and `keep`."""

    def __init__(self, folder: Path | None) -> None:
        """Use the caches in a folder; None: only private ones."""
        self._folder = folder
        self._private = PrivateCaches()
        self._mapped: OrderedDict[str, MappedShard] = OrderedDict()
        self._taken: dict[str, MappedShard] = {}
        self._has_begun = False
        self._without_room: set[str] = set()

    def take(self, lineage: str, stamps: Collection[str]) -> ShardCache | None:
        """Take the cache of a shard, preferring the shared one unless this worker's private one is newer."""
        of_this_worker = self._private.take(lineage, stamps)
        shard, ages = self._lock(lineage), [*stamps]
        numbers = shard.read() if shard is not None else None
        if shard is None or numbers is None or numbers.stamp not in ages:
            return of_this_worker
        if of_this_worker is not None and ages.index(of_this_worker.stamp) > ages.index(numbers.stamp):
            return of_this_worker
        try:
            shard.begin_changes()
            return ShardCache.resumed(shard.memory, numbers)
        except OSError:
            self._give_up(lineage, shard)
            return None

    def begin(self, lineage: str, is_complete: bool) -> ShardCache:
        """Return an empty cache."""
        shard = self._lock(lineage)
        if shard is None:
            return self._private.begin(lineage, is_complete)
        self._has_begun = True
        try:
            shard.begin_changes()
            shard.memory.clear()
            return ShardCache(lineage, is_complete, memory=shard.memory)
        except OSError:
            self._give_up(lineage, shard)
            return self._private.begin(lineage, is_complete)

    def keep(self, cache: ShardCache, most: int) -> None:
        """Keep a cache for the next batch, and at most `most` of them in total."""
        shard = self._mapped.get(cache.lineage)
        if shard is None or cache.memory is not shard.memory:
            self._private.keep(cache, most)
            self._let_go(cache.lineage)
            return
        try:
            is_kept = shard.end_changes(cache.numbers())
        except OSError:
            is_kept = False
        if is_kept:
            self._let_go(cache.lineage)
            self._bound(most)
        else:
            self._give_up(cache.lineage, shard)

    def let_go(self) -> None:
        """Release caches that were taken but not kept, as after a failure."""
        for lineage in [*self._taken]:
            self._let_go(lineage)

    def _lock(self, lineage: str) -> MappedShard | None:
        """Lock and return the shared cache of a shard; None if it is unavailable."""
        if lineage in self._taken:
            return self._taken[lineage]
        if self._folder is None or lineage in self._without_room:
            return None
        shard = self._mapped.pop(lineage, None)
        with contextlib.suppress(OSError):
            if shard is None or not shard.lock():
                if shard is not None:
                    shard.close()
                shard = MappedShard(self._folder, lineage)
                if not shard.lock():
                    shard.close()
                    return None
            self._mapped[lineage] = shard
            self._taken[lineage] = shard
            return shard
        return None

    def _let_go(self, lineage: str) -> None:
        if lineage in self._taken:
            self._taken.pop(lineage).unlock()

    def _give_up(self, lineage: str, shard: MappedShard) -> None:
        """Stop using the shared cache of a shard."""
        self._without_room.add(lineage)
        shard.remove()
        shard.close()
        self._taken.pop(lineage, None)
        del self._mapped[lineage]

    def _bound(self, most: int) -> None:
        """Limit the shard folders to `most`, and the shards that stay mapped as well."""
        if self._folder is not None and self._has_begun:
            with contextlib.suppress(OSError):  # another worker removes it at the same time
                remove_oldest(self._folder, most)
            self._has_begun = False
        others = [lineage for lineage in self._mapped if lineage not in self._taken]
        for lineage in others[: max(0, len(self._mapped) - min(most, MOST_MAPPED))]:
            self._mapped.pop(lineage).close()


@cache
def caches_of_worker() -> MachineCaches:
    """Return the caches of this worker process."""
    return MachineCaches(shards_folder(os.environ))


def shards_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder for shard caches, of the session or else of its executor; None if there can be none."""
    of_executor = environment.get(OF_EXECUTOR, "").partition(",")[0]
    folder = environment.get(SHARDS) or (of_executor and f"{of_executor}/shards")
    if not IS_KNOWN or not folder:
        return None
    with contextlib.suppress(OSError):
        Path(folder).mkdir(PRIVATE, exist_ok=True)
        return Path(folder)
    return None
