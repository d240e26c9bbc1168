"""What is known of a shard from one batch to the next.

The caches of shards that are kept between batches.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.arena import ABSENT, PENDING, PLACE, STORED, Arena, ArenaNumbers
from buckets.engine.storage.key import ArenaMemory, PrivateMemory
from buckets.state.live_log import LiveLog, cut_into_segments, decode_segment, encode_segment

SEGMENT_BYTES = 1 << 18  # About how large a segment becomes at the most: a larger value costs the JVM more a byte
OPEN_BYTES = 1 << 14  # The last segment is written again, with what the next batch changes, until it is so large
_PLACES = 1 << 30  # Places of entries are numbers of segments modulo that: far fewer are live at a time

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CacheNumbers:
    """What a cache is besides its arrays."""

    lineage: str  # of the shard
    is_complete: bool  # whether a key that is not known here is not in the store either
    stamp: str  # of the batch after which all this is right
    moved: int  # how many entries of the oldest segment have gone to the store
    arena: ArenaNumbers  # the numbers of the arena
    log: tuple[int, ...]  # those of the live segments


@dataclass(frozen=True)
class Moved:
    """What goes from the oldest segments to the store."""

    puts: list[tuple[bytes, bytes]]  # keys and values
    removes: list[bytes]  # keys that hold nothing
    emptied: list[int]  # numbers of segments of which nothing is left


class ShardCache:
    """What is known of a shard: all of its log, and some of what the store holds besides.

    The place of an entry in the arena is the number of the segment that has its newest value.

    Attributes:
        lineage: of the shard.
        memory: where all of it lies.
        is_complete: whether a key that is not known here is not in the store either.
        stamp: of the batch after which all this is right.
        arena: keys and values.
        log: the live segments.
    """

    def __init__(
        self, lineage: str, is_complete: bool = False, stamp: str = "", memory: ArenaMemory | None = None
    ) -> None:
        """Begin without knowing anything."""
        self.lineage, self.is_complete, self.stamp = lineage, is_complete, stamp
        self.memory = memory or PrivateMemory()
        self.arena, self.log, self._moved = Arena(self.memory), LiveLog(self.memory), 0

    @classmethod
    def resumed(cls, memory: ArenaMemory, numbers: CacheNumbers) -> "ShardCache":
        """Return the cache that lies in a memory."""
        cache = cls.__new__(cls)
        cache.lineage, cache.is_complete, cache.stamp = numbers.lineage, numbers.is_complete, numbers.stamp
        cache.memory, cache._moved = memory, numbers.moved
        cache.arena, cache.log = Arena(memory, numbers.arena), LiveLog(memory, numbers.log)
        return cache

    def numbers(self) -> CacheNumbers:
        """Return what it is besides its arrays."""
        return CacheNumbers(
            self.lineage, self.is_complete, self.stamp, self._moved, self.arena.numbers(), self.log.numbers()
        )

    @property
    def resumes_at(self) -> int:
        """The segment from which all that later batches change can be read."""
        return self.log.next - 1 if self._is_open() else self.log.next

    def _is_open(self) -> bool:
        return self.log.first < self.log.next and self.log.bytes_of(self.log.next - 1) < OPEN_BYTES

    # --- reading ----------------------------------------------------------------------------------------------

    def find(self, keys: ByteStrings) -> tuple[ByteStrings, Int64s]:
        """Look keys up: their values, and the indexes of keys that the store must be asked for."""
        entries = self.arena.find(keys)
        unknown = np.empty(0, np.int64) if self.is_complete else np.flatnonzero(entries == ABSENT)
        return self.arena.values_of(entries), unknown

    def remember(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Remember what the store holds."""
        self.arena.put(keys, values, STORED)

    def bound(self, most_bytes: int) -> None:
        """Forget what was not used lately, and let go of dead memory."""
        if forgets := self.arena.used_bytes > most_bytes // 2:
            self.is_complete = not self.arena.begin_epoch() and self.is_complete
        if forgets or self.arena.is_half_dead():
            self.log.follow(self.arena.compact())
            self._moved = 0

    # --- following the log of others --------------------------------------------------------------------------

    def learn(self, segments: Iterable[tuple[int, bytes]]) -> None:
        """Take in segments that others have written, one after the other; there is room for all before the first."""
        decoded = [(number, *decode_segment(data), len(data)) for number, data in segments]
        entries = sum(keys.size for _, keys, _, _ in decoded)
        self.arena.reserve(entries, sum(size_bytes for *_, size_bytes in decoded))
        for number, keys, values, size_bytes in decoded:
            self.log.write(number, self.arena.put(keys, values, number % _PLACES), size_bytes)

    def let_go(self, first: int) -> None:
        """Let go of the segments before one that is still live."""
        while self.log.first < first:
            self._drop_first()
        self._moved = 0

    # --- what a batch changes ---------------------------------------------------------------------------------

    def change(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Let what the running batch changes count at once; `append` writes it. Empty values hold nothing."""
        self.arena.put(keys, values, PENDING)

    @property
    def has_changed(self) -> int:
        """How many entries the running batch has changed."""
        return len(self.arena.changed)

    def append(self) -> list[tuple[int, bytes]]:
        """Write into the log what the running batch has changed.

        Returns:
            Segments with their numbers, to be put into the state; the first may be one that is there already.
        """
        number, entries, written = self.log.next, self.arena.changed, []
        if self._is_open():
            number -= 1
            entries = np.concatenate([self._of_segment(number), entries])
        self.arena.settle_changes()
        keys, values = self.arena.keys_of(entries), self.arena.values_of(entries)
        for begin, end in cut_into_segments(keys, values, SEGMENT_BYTES):
            data = encode_segment(keys.slice(begin, end), values.slice(begin, end))
            self.arena.entries[entries[begin:end], PLACE] = number % _PLACES
            self.log.write(number, entries[begin:end], len(data))
            written.append((number, data))
            number += 1
        return written

    def move_oldest(self, most: int, log_bytes: int) -> Moved:
        """Take up to `most` entries of the oldest segments that nothing has replaced, where the log is too long.

        Args:
            most: how many entries are looked at.
            log_bytes: how much memory its newest values may take; with those that were replaced it may have twice that.
        """
        moved, written_bytes = Moved([], [], []), self.log.size_bytes
        # The newest segment stays: it may be written again.
        while (
            (self.arena.logged_bytes > log_bytes or written_bytes > 2 * log_bytes)
            and most > 0
            and self.log.next - self.log.first > 1
        ):
            number, held = self.log.first, self.log.held_by(self.log.first)
            looked_at = held[self._moved : self._moved + most]
            settled = self._newest_of(number, looked_at)
            self.arena.settle(settled)
            entries = zip(self.arena.keys_of(settled).to_list(), self.arena.values_of(settled).to_list(), strict=True)
            for key, value in entries:
                if value:
                    moved.puts.append((key, value))
                else:
                    moved.removes.append(key)
            most -= len(looked_at)
            self._moved += len(looked_at)
            if self._moved == len(held):
                written_bytes -= self.log.bytes_of(number)
                moved.emptied.append(number)
                self._drop_first()
        return moved

    # --- parts ------------------------------------------------------------------------------------------------

    def _of_segment(self, number: int) -> Int64s:
        """Return the entries of a segment that nothing has replaced."""
        return self._newest_of(number, self.log.held_by(number))

    def _newest_of(self, number: int, entries: Int64s) -> Int64s:
        """Return those of entries whose newest value a segment has."""
        newest: Int64s = entries[self.arena.entries[entries, PLACE] == number % _PLACES]
        return newest

    def _drop_first(self) -> None:
        """Let go of the oldest segment; what it alone has is in the store by now."""
        self.arena.settle(self._of_segment(self.log.first))
        self.log.drop_first()
        self._moved = 0


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
