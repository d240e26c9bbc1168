"""The caches of shards in mapped files, one for all Python workers of a machine.

Whichever worker has a shard maps its cache. It outlives the worker, and a shard that changes workers is where it was.
Where it cannot be had, since another attempt has it or there is no room, a worker has a cache of its own.
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

MARK = "mark"  # The file of a folder that is not an array
IS_KNOWN = hasattr(os, "posix_fallocate")  # Whether this system can promise room in a file


class MappedMemory:
    """Arrays in the files of a folder.

    Attributes:
        has_failed: whether there was no room: some of it lies in this process alone.
    """

    def __init__(self, folder: Path) -> None:
        """Map nothing yet."""
        self._folder = folder
        self._arrays: dict[str, Array] = {}
        self.has_failed = False

    def sizes(self) -> dict[str, int]:
        """Return how large each file is, by its name."""
        return {name: array.nbytes for name, array in self._arrays.items()}

    def resume(self, sizes: Mapping[str, int]) -> bool:
        """Go on with the arrays that lie in the files; return whether they are so large.

        What was mapped in another size is mapped again when it is asked for.
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
        """Return an array with at least so many rows; nothing is copied. Raises OSError where a file cannot be."""
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
        """Return an array of which at least half is used; the end of its file is given back."""
        array = self._arrays[part.name]
        if self.has_failed or len(array) <= 2 * kept:
            return array
        try:
            os.truncate(self._folder / part.name, _in_pages(part, kept))
            array = self._arrays[part.name] = self._map(part, kept)
        except OSError:
            self.has_failed = True  # what was mapped has these rows still
        return array

    def _map(self, part: MemoryPart, rows: int) -> Array:
        """Return a file as rows, made longer where it is too short."""
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


MARK_VERSION = 1  # Of the mark, and of what the numbers in the arrays say
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
        """Open the folder, which is made where there is none; raises OSError if it cannot be opened."""
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
        if not self.memory.resume(read["sizes"]):
            return None
        arena = read["cache"]["arena"] | {"counters": tuple(read["cache"]["arena"]["counters"])}
        return CacheNumbers(**read["cache"] | {"arena": ArenaNumbers(**arena), "log": tuple(read["cache"]["log"])})

    def begin_changes(self) -> None:
        """Mark what lies here as not to be looked at, until `end_changes`."""
        os.pwrite(self._mark, _DIRTY, 0)

    def end_changes(self, numbers: CacheNumbers) -> bool:
        """Mark what lies here as right, and return True; where there was no room for some of it, it stays as it is."""
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


OF_EXECUTOR = "SPARK_LOCAL_DIRS"  # That in which Spark tells a worker the folders of its executor, which go with it
MOST_MAPPED = 64  # Of how many shards a worker leaves the files mapped between batches: each takes some descriptors


class MachineCaches:
    """The caches of shards that this worker shares with others, each of which it has to itself until it is kept."""

    def __init__(self, folder: Path | None) -> None:
        """Begin with what lies in a folder; None: there is none."""
        self._folder = folder
        self._private = PrivateCaches()
        self._mapped: OrderedDict[str, MappedShard] = OrderedDict()
        self._taken: dict[str, MappedShard] = {}
        self._has_begun = False
        self._without_room: set[str] = set()

    def take(self, lineage: str, stamps: Collection[str]) -> ShardCache | None:
        """Take the cache of a shard, the shared one where it is as new as one of this worker alone."""
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
        """Return a cache that knows nothing."""
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
        """Keep a cache for the next batch, and at most so many in all."""
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
        """Let others have what was taken and not kept, as after a failure."""
        for lineage in [*self._taken]:
            self._let_go(lineage)

    def _lock(self, lineage: str) -> MappedShard | None:
        """Return the shared cache of a shard, locked; None where it cannot be had."""
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
        """Do without the shared cache of a shard from now on."""
        self._without_room.add(lineage)
        shard.remove()
        shard.close()
        self._taken.pop(lineage, None)
        del self._mapped[lineage]

    def _bound(self, most: int) -> None:
        """Leave the folders of at most so many shards, and not more than some mapped."""
        if self._folder is not None and self._has_begun:
            with contextlib.suppress(OSError):  # another worker removes it at the same time
                remove_oldest(self._folder, most)
            self._has_begun = False
        others = [lineage for lineage in self._mapped if lineage not in self._taken]
        for lineage in others[: max(0, len(self._mapped) - min(most, MOST_MAPPED))]:
            self._mapped.pop(lineage).close()


@cache
def caches_of_worker() -> MachineCaches:
    """Return the caches of this process."""
    return MachineCaches(shards_folder(os.environ))


def shards_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the shards of a session, as its workers are told; None where there can be none."""
    of_executor = environment.get(OF_EXECUTOR, "").partition(",")[0]
    folder = environment.get(SHARDS) or (of_executor and f"{of_executor}/shards")
    if not IS_KNOWN or not folder:
        return None
    with contextlib.suppress(OSError):
        Path(folder).mkdir(PRIVATE, exist_ok=True)
        return Path(folder)
    return None
