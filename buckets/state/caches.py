"""The caches of shards that are kept between batches."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Protocol

from buckets.state.cache import ShardCache


class Caches(Protocol):
    """The caches of shards. One that is taken is nobody else's until it is kept: a failure leaves none behind."""

    def take(self, lineage: str, stamps: Collection[str]) -> ShardCache | None:
        """Take the cache of a shard, if there is one with one of some stamps.

        Args:
            lineage: of the shard.
            stamps: with which it is of use, the newest last.
        """

    def begin(self, lineage: str, is_complete: bool) -> ShardCache:
        """Return a cache that knows nothing.

        Args:
            lineage: of the shard.
            is_complete: whether the store holds nothing either.
        """

    def keep(self, cache: ShardCache, most: int) -> None:
        """Keep a cache for the next batch, and at most so many in all."""


class PrivateCaches:
    """Caches in the memory of this process."""

    def __init__(self) -> None:
        """Begin with none."""
        self._caches: OrderedDict[str, ShardCache] = OrderedDict()

    def take(self, lineage: str, stamps: Collection[str]) -> ShardCache | None:
        """Take the cache of a shard; one with another stamp is let go of."""
        cache = self._caches.pop(lineage, None)
        return cache if cache is not None and cache.stamp in stamps else None

    def begin(self, lineage: str, is_complete: bool) -> ShardCache:
        """Return a cache that knows nothing."""
        return ShardCache(lineage, is_complete)

    def keep(self, cache: ShardCache, most: int) -> None:
        """Keep a cache for the next batch, and at most so many in all."""
        self._caches[cache.lineage] = cache
        while len(self._caches) > most:
            self._caches.popitem(last=False)
