"""The caches of shards, one for all Python workers of a machine.

Whichever worker has a shard maps its cache. It outlives the worker, and a shard that changes workers is where it was.
Where it cannot be had, since another attempt has it or there is no room, a worker has a cache of its own, as
on a machine of its own.
"""

import contextlib
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from buckets.spark.mapped_memory import IS_KNOWN
from buckets.spark.mapped_shard import PRIVATE, MappedShard, remove_oldest
from buckets.spark.session_places import SHARDS
from buckets.state.cache import PrivateCaches, ShardCache

OF_EXECUTOR = "SPARK_LOCAL_DIRS"  # That in which Spark tells a worker the folders of its executor, which go with it
MOST_MAPPED = 64  # Of how many shards a worker leaves the files mapped between batches: each takes some descriptors


class MachineCaches:
    """The caches of shards that this worker shares with others. It is at one shard at a time."""

    def __init__(self, folder: Path | None) -> None:
        """Begin with what lies in a folder; None: there is none."""
        self._folder = folder
        self._private = PrivateCaches()
        self._mapped: OrderedDict[str, MappedShard] = OrderedDict()
        self._taken: tuple[str, MappedShard] | None = None
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
            self._let_go()
            return
        try:
            is_kept = shard.end_changes(cache.numbers())
        except OSError:
            is_kept = False
        if is_kept:
            self._let_go()
            self._bound(most)
        else:
            self._give_up(cache.lineage, shard)

    def _lock(self, lineage: str) -> MappedShard | None:
        """Return the shared cache of a shard, locked; None where it cannot be had."""
        if self._taken is not None and self._taken[0] == lineage:
            return self._taken[1]
        self._let_go()
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
            self._taken = lineage, shard
            return shard
        return None

    def _let_go(self) -> None:
        """Let others have the shard that this worker was at."""
        if self._taken is not None:
            self._taken[1].unlock()
            self._taken = None

    def _give_up(self, lineage: str, shard: MappedShard) -> None:
        """Do without the shared cache of a shard from now on."""
        self._without_room.add(lineage)
        shard.remove()
        shard.close()
        self._taken = None
        del self._mapped[lineage]

    def _bound(self, most: int) -> None:
        """Leave the folders of at most so many shards, and not more than some mapped."""
        if self._folder is not None and self._has_begun:
            with contextlib.suppress(OSError):  # another worker removes it at the same time
                remove_oldest(self._folder, most)
            self._has_begun = False
        while len(self._mapped) > min(most, MOST_MAPPED):
            self._mapped.popitem(last=False)[1].close()


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
