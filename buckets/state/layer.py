"""The layer between the scorer and the store: a batch pays for its changes, not for every key that it touches.

Reading or writing an entry of the store goes through a socket, which costs more than scoring an event. So a batch reads
from a cache in memory, which survives between batches, and writes its changes as a few entries with many pairs each:
*segments* of a log that is part of the state. When the log becomes too long, pairs of its oldest segments that have not
changed since move to the store one by one, about as many in a batch as it has changed.

Everything in the log is in the cache too. So a key that the cache does not know is read from the store.

A cache is valid if its stamp is that of the manifest (`live_log`): it has followed the state up to the previous batch.
If its stamp is one of the last few, another machine had the shard in between, and the segments written since then bring
the cache up to date. Otherwise the cache is dropped, and all live segments are read. So after a failure, for a repeated
attempt or on another machine, a cache is slow at worst, and never wrong.

The length of the log and the size of the cache bound the memory, for all shards that share the caches together.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from buckets.byte_strings import ByteStrings
from buckets.engine.stages.accounting import ShardMemory
from buckets.engine.storage.shard_store import LOG, Entries, InColumns, section_of
from buckets.state.live_log import Caches, LogManifest, ShardCache

HISTORY = 16  # How many batches a cache may be behind
READ_AT_ONCE = 32  # How many segments are read before they are taken in, which bounds memory
SPARE_MOVES = 64
_NUMBER_BYTES = 8
_RANDOM_TEXT = partial(secrets.token_hex, 8)


@dataclass(frozen=True)
class Bounds:
    """Bounds on the memory of the caches of shards."""

    # the most memory for the entries of a shard's log; beyond it, the oldest move to the store one by one
    log_bytes: int
    cache_bytes: int  # the most memory for other cached entries of a shard
    shards: int  # the most shards that have a cache

    @classmethod
    def of_each(cls, log_bytes: int, cache_bytes: int, shards: int) -> "Bounds":
        """Divide the bounds of all shards together among the shards."""
        return cls(log_bytes // shards, cache_bytes // shards, shards)


def _segment_key(number: int) -> bytes:
    return LOG + number.to_bytes(_NUMBER_BYTES, "big")


def begin_log(store: Entries) -> None:
    """Begin the log of a shard whose store already has entries; without a log, a shard counts as empty."""
    store.put([(LOG, LogManifest(_RANDOM_TEXT(), 0, 0, False, ((_RANDOM_TEXT(), 0),)).encode())])


class Layer(InColumns):
    """The state of a shard during one batch; `commit` ends it.

    A layer without a `commit`, as after a failure, leaves nothing behind but a cold cache.
    """

    def __init__(
        self,
        store: Entries,
        caches: Caches,
        bounds: Bounds,
        new_text: Callable[[], str] = _RANDOM_TEXT,
    ) -> None:
        """Begin without reading the shard's entries; `new_text` makes stamps, which must be unique."""
        self._store, self._caches, self._bounds, self._new_text = store, caches, bounds, new_text
        self._opened: tuple[ShardCache, LogManifest] | None = None

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty for a missing key."""
        cache, _ = self._open()
        values, unknown = cache.find(keys)
        if not len(unknown):
            return values
        asked = keys.take(unknown)
        cache.remember(asked, self._store.read(asked))
        return cache.find(keys)[0]

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Store entries; an empty value removes its key."""
        self._open()[0].change(keys, values)

    def remove(self, keys: ByteStrings) -> None:
        """Remove keys."""
        self.write(keys, ByteStrings.empties(keys.size))

    def list_keys(self) -> list[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        arena = self._open()[0].arena
        entries = arena.outside_store()
        is_gone = arena.values_of(entries).lengths == 0
        held = {key for key in self._store.list_keys() if section_of(key) != LOG}
        held.difference_update(arena.keys_of(entries[is_gone]).to_list())
        held.update(arena.keys_of(entries[~is_gone]).to_list())
        return list(held)

    def commit(self) -> ShardMemory | None:
        """Write the changes, and keep the cache for the next batch; returns its size, None if it was not used."""
        if self._opened is None:
            return None
        cache, before = self._opened
        if changed := len(cache.arena.changed):
            segments = cache.append()
            puts, removes, emptied = cache.move_oldest(2 * changed + SPARE_MOVES, self._bounds.log_bytes)
            cache.stamp = self._new_text()
            history = (*before.history, (cache.stamp, cache.resumes_at))[-HISTORY:]
            is_whole = before.is_whole and not puts
            manifest = LogManifest(cache.lineage, cache.log.first, cache.log.next, is_whole, history)
            written = [(_segment_key(number), data) for number, data in segments if number >= cache.log.first]
            self._store.put([*puts, *written, (LOG, manifest.encode())])
            self._store.remove(ByteStrings.of([*removes, *map(_segment_key, emptied)]))
            cache.bound(self._bounds.cache_bytes)
        self._caches.keep(cache, self._bounds.shards)
        self._opened = None
        return ShardMemory(cache.arena.logged_bytes, cache.arena.used_bytes)

    def _open(self) -> tuple[ShardCache, LogManifest]:
        """Return the shard's cache, brought up to date, and its manifest."""
        if self._opened is None:
            (stored,) = self._store.get([LOG])
            if stored:
                manifest = LogManifest.decode(stored)
                self._opened = self._followed(manifest), manifest
            else:
                lineage = self._new_text()
                self._opened = self._caches.begin(lineage, is_complete=True), LogManifest(lineage, 0, 0, True, ())
        return self._opened

    def _followed(self, manifest: LogManifest) -> ShardCache:
        """Return the shard's cache, brought up to its manifest."""
        known = self._caches.take(manifest.lineage, manifest.useful_stamps)
        if known is not None and known.stamp == manifest.stamp:
            return known
        read_from = manifest.first if known is None else manifest.resumes_at(known.stamp)
        known = known or self._caches.begin(manifest.lineage, is_complete=False)
        for begin in range(read_from, manifest.next, READ_AT_ONCE):
            numbers = range(begin, min(begin + READ_AT_ONCE, manifest.next))
            segments = self._store.get([*map(_segment_key, numbers)])
            known.learn(zip(numbers, segments, strict=True))
        known.let_go(manifest.first)
        known.stamp, known.is_complete = manifest.stamp, known.is_complete or manifest.is_whole
        return known
