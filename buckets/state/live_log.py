"""The log of a shard in memory: its live segments, the entries in each of them, and the cache.

Segments are numbered consecutively. The newest is rewritten while it is small, and the oldest is dropped first. So
their entries are consecutive in one array, in the memory of the arena.
"""

import json
import struct
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from buckets.arrays import Int64s
from buckets.byte_strings import ByteStrings, fixed
from buckets.engine.storage.arena import ABSENT, PENDING, PLACE, STORED, Arena, ArenaNumbers
from buckets.engine.storage.key import ArenaMemory, MemoryPart, PrivateMemory
from buckets.errors import BucketsError

HELD, SEGMENTS = MemoryPart("held", np.int32), MemoryPart("segments", np.int64, 2)
_ENDS, _BYTES = range(2)  # The columns of a segment: where its entries end, and its size in bytes
_FEWEST = 64


class LiveLog:
    """The live segments.

    Attributes:
        first: the number of the oldest one; 0 before there is one.
        next: the number of the next new one.
    """

    def __init__(self, memory: ArenaMemory, numbers: tuple[int, ...] = (0, 0, 0, 0)) -> None:
        """Begin without segments, or resume from `memory` and `numbers`."""
        self._memory = memory
        self.first, self.next, self._row, self._begun = numbers
        rows = self._row_of(self.next)
        self._segments = memory.grow(SEGMENTS, rows, max(rows, _FEWEST))
        end = int(self._segments[rows - 1, _ENDS]) if rows else 0
        self._held = memory.grow(HELD, end, max(end, _FEWEST))

    def numbers(self) -> tuple[int, ...]:
        """Return its state besides its arrays."""
        return self.first, self.next, self._row, self._begun

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return int(self._segments[self._row : self._row_of(self.next), _BYTES].sum())

    def bytes_of(self, number: int) -> int:
        """Return the bytes of a segment."""
        return int(self._segments[self._row_of(number), _BYTES])

    def held_by(self, number: int) -> Int64s:
        """Return the entries of a segment, including those that a later one has replaced."""
        return self._held[self._begin_of(number) : self._segments[self._row_of(number), _ENDS]].astype(np.int64)

    def write(self, number: int, entries: Int64s, size_bytes: int) -> None:
        """Record the entries of a segment: the next new one, or the newest again."""
        if self.first == self.next:
            self.first = self.next = number
        assert self.next - 1 <= number <= self.next
        row, begin = self._row_of(number), self._begin_of(number)
        end = begin + len(entries)
        self._segments = self._memory.grow(SEGMENTS, row, row + 1)
        self._held = self._memory.grow(HELD, begin, end)
        self._held[begin:end] = entries
        self._segments[row] = end, size_bytes
        self.next = number + 1

    def drop_first(self) -> None:
        """Drop the oldest segment; the rest moves to the front once it is less than half of the array."""
        self._begun = int(self._segments[self._row, _ENDS])
        self._row += 1
        self.first += 1
        end, rows = self._begin_of(self.next), self._row_of(self.next)
        if 2 * self._begun > end:
            self._held[: end - self._begun] = self._held[self._begun : end]
            self._segments[: rows - self._row] = self._segments[self._row : rows]
            self._segments[: rows - self._row, _ENDS] -= self._begun
            self._row = self._begun = 0

    def follow(self, moved: npt.NDArray[np.int32]) -> None:
        """Renumber entries after a compaction: `moved` has the new index of each, ABSENT for one that is gone."""
        rows, end = self._row_of(self.next), self._begin_of(self.next)
        held = moved[self._held[self._begun : end]]
        lives = held != ABSENT
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lives)])
        self._segments[self._row : rows, _ENDS] = ends[self._segments[self._row : rows, _ENDS] - self._begun]
        self._segments[: rows - self._row] = self._segments[self._row : rows]
        self._held[: ends[-1]] = held[lives]
        self._row = self._begun = 0
        self._segments = self._memory.fit(SEGMENTS, max(self._row_of(self.next), _FEWEST))
        self._held = self._memory.fit(HELD, max(int(ends[-1]), _FEWEST))

    def _row_of(self, number: int) -> int:
        return self._row + number - self.first

    def _begin_of(self, number: int) -> int:
        """Return where the entries of a segment begin."""
        return int(self._segments[self._row_of(number) - 1, _ENDS]) if number > self.first else self._begun


MANIFEST_VERSION = 1


@dataclass(frozen=True)
class LogManifest:
    """The description of a shard's log after a batch."""

    lineage: str  # the shard's random id; copies of a checkpoint share it, until their stamps differ
    first: int  # the number of the oldest live segment
    next: int  # the number of the next new one
    is_whole: bool  # whether the log holds every entry, so that the store need not be read
    # the last stamps, oldest first, each with the segment from which all later changes can be read
    history: tuple[tuple[str, int], ...]

    @property
    def stamp(self) -> str:
        """The stamp of the batch that wrote it."""
        return self.history[-1][0]

    @property
    def useful_stamps(self) -> list[str]:
        """The stamps from which a cache can be brought up to date, newest last."""
        return [stamp for stamp, segment in self.history if segment >= self.first]

    def resumes_at(self, stamp: str) -> int:
        """Return the segment from which a cache with a useful stamp has to read."""
        return dict(self.history)[stamp]

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps({"version": MANIFEST_VERSION} | vars(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "LogManifest":
        """Read what `encode` wrote.

        Raises:
            BucketsError: a later release wrote it.
        """
        read = json.loads(data)
        version = read.pop("version")
        if version != MANIFEST_VERSION:
            message = (
                f"the state's log has a manifest of version {version}, and this release reads "
                f"{MANIFEST_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
            )
            raise BucketsError(message)
        history = tuple((stamp, segment) for stamp, segment in read.pop("history"))
        return cls(history=history, **read)


SEGMENT_VERSION = 1
LENGTH_BYTES = 4
_HEADER = struct.Struct("<BI")


def encode_segment(keys: ByteStrings, values: ByteStrings) -> bytes:
    """Encode entries as a segment."""
    lengths = np.concatenate([keys.lengths, values.lengths]).astype("<u4")
    header = _HEADER.pack(SEGMENT_VERSION, keys.size)
    return b"".join((header, lengths.tobytes(), keys.data.tobytes(), values.data.tobytes()))


def decode_segment(data: bytes) -> tuple[ByteStrings, ByteStrings]:
    """Decode the keys and values of a segment.

    Raises:
        BucketsError: a later release wrote it.
    """
    version, count = _HEADER.unpack_from(data)
    if version != SEGMENT_VERSION:
        message = (
            f"the state's log was written in version {version}, and this release reads {SEGMENT_VERSION}; run the "
            "release that wrote the checkpoint, or start with a new checkpoint"
        )
        raise BucketsError(message)
    start = np.zeros(2 * count + 1, np.int64)
    np.cumsum(np.frombuffer(data, "<u4", 2 * count, _HEADER.size), out=start[1:])
    both = fixed(np.frombuffer(data, np.uint8, offset=_HEADER.size + 2 * LENGTH_BYTES * count), start)
    return both.slice(0, count), both.slice(count, 2 * count)


def cut_into_segments(keys: ByteStrings, values: ByteStrings, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut entries into ranges `[begin, end)` of about `most_bytes` each; an entry is never divided."""
    ends = np.cumsum(keys.lengths + values.lengths + 2 * LENGTH_BYTES)
    begun, before = 0, 0
    while begun < keys.size:
        end = min(int(np.searchsorted(ends, before + most_bytes)) + 1, keys.size)
        yield begun, end
        begun, before = end, ends[end - 1]


SEGMENT_BYTES = 1 << 18  # About the largest size of a segment: larger values cost the JVM more per byte
OPEN_BYTES = 1 << 14  # Below this size, the last segment is rewritten with the changes of the next batch
_PLACES = 1 << 30  # Places of entries are segment numbers modulo this; far fewer are live at a time


@dataclass(frozen=True)
class CacheNumbers:
    """The state of a cache besides its arrays."""

    lineage: str  # of the shard
    is_complete: bool  # whether a key that is unknown here is not in the store either
    stamp: str  # of the batch to whose state it corresponds
    moved: int  # how many entries of the oldest segment have moved to the store
    arena: ArenaNumbers  # the numbers of the arena
    log: tuple[int, ...]  # the numbers of the log


class ShardCache:
    """The cache of a shard: its whole log, and some other entries of the store.

    The place of an entry in the arena is the number of the segment that has its newest value.

    Attributes are as in `CacheNumbers`; `memory` holds the arrays of the arena and the log.
    """

    def __init__(self, lineage: str, is_complete: bool = False, memory: ArenaMemory | None = None) -> None:
        """Begin empty."""
        self.lineage, self.is_complete, self.stamp = lineage, is_complete, ""
        self.memory = memory or PrivateMemory()
        self.arena, self.log, self._moved = Arena(self.memory), LiveLog(self.memory), 0

    @classmethod
    def resumed(cls, memory: ArenaMemory, numbers: CacheNumbers) -> "ShardCache":
        """Resume the cache in `memory`."""
        cache = cls.__new__(cls)
        cache.lineage, cache.is_complete, cache.stamp = numbers.lineage, numbers.is_complete, numbers.stamp
        cache.memory, cache._moved = memory, numbers.moved
        cache.arena, cache.log = Arena(memory, numbers.arena), LiveLog(memory, numbers.log)
        return cache

    def numbers(self) -> CacheNumbers:
        """Return its state besides its arrays."""
        return CacheNumbers(
            self.lineage, self.is_complete, self.stamp, self._moved, self.arena.numbers(), self.log.numbers()
        )

    @property
    def resumes_at(self) -> int:
        """The segment from which the changes of all later batches can be read."""
        return self.log.next - 1 if self._is_open() else self.log.next

    def _is_open(self) -> bool:
        return self.log.first < self.log.next and self.log.bytes_of(self.log.next - 1) < OPEN_BYTES

    # --- reading ----------------------------------------------------------------------------------------------

    def find(self, keys: ByteStrings) -> tuple[ByteStrings, Int64s]:
        """Look keys up; return their values, and the indices of keys that have to be read from the store."""
        entries = self.arena.find(keys)
        unknown = np.empty(0, np.int64) if self.is_complete else np.flatnonzero(entries == ABSENT)
        return self.arena.values_of(entries), unknown

    def remember(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Add entries that were read from the store."""
        self.arena.put(keys, values, STORED)

    def bound(self, most_bytes: int) -> None:
        """Forget entries that were not used lately if they take too much memory, and release dead memory."""
        if forgets := self.arena.used_bytes > most_bytes // 2:
            self.is_complete = not self.arena.begin_epoch() and self.is_complete
        if forgets or self.arena.is_half_dead():
            self.log.follow(self.arena.compact())
            self._moved = 0

    # --- following the log of others --------------------------------------------------------------------------

    def learn(self, segments: Iterable[tuple[int, bytes]]) -> None:
        """Take in consecutive segments that others have written, after reserving room for all of them."""
        decoded = [(number, *decode_segment(data), len(data)) for number, data in segments]
        entries = sum(keys.size for _, keys, _, _ in decoded)
        self.arena.reserve(entries, sum(size_bytes for *_, size_bytes in decoded))
        for number, keys, values, size_bytes in decoded:
            self.log.write(number, self.arena.put(keys, values, number % _PLACES), size_bytes)

    def let_go(self, first: int) -> None:
        """Drop the segments before `first`."""
        while self.log.first < first:
            self._drop_first()
        self._moved = 0

    # --- what a batch changes ---------------------------------------------------------------------------------

    def change(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Apply changes of the running batch, which `append` writes; an empty value removes its key."""
        self.arena.put(keys, values, PENDING)

    def append(self) -> list[tuple[int, bytes]]:
        """Append the changes of the running batch to the log.

        Returns:
            Segments with their numbers, to be put into the state; the first may replace an existing one.
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

    def move_oldest(self, most: int, log_bytes: int) -> tuple[list[tuple[bytes, bytes]], list[bytes], list[int]]:
        """Move live entries of the oldest segments to the store while the log is too long; look at `most` entries.

        The log's newest values may take `log_bytes` of memory, and its segments, with replaced values, twice that.

        Returns:
            Keys and values for the store, keys to remove from it, and the numbers of segments without live entries.
        """
        puts, removes, emptied = list[tuple[bytes, bytes]](), list[bytes](), list[int]()
        written_bytes = self.log.size_bytes
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
                    puts.append((key, value))
                else:
                    removes.append(key)
            most -= len(looked_at)
            self._moved += len(looked_at)
            if self._moved == len(held):
                written_bytes -= self.log.bytes_of(number)
                emptied.append(number)
                self._drop_first()
        return puts, removes, emptied

    # --- parts ------------------------------------------------------------------------------------------------

    def _of_segment(self, number: int) -> Int64s:
        """Return the live entries of a segment, which no later one has replaced."""
        return self._newest_of(number, self.log.held_by(number))

    def _newest_of(self, number: int, entries: Int64s) -> Int64s:
        """Return the entries whose newest value is in this segment."""
        newest: Int64s = entries[self.arena.entries[entries, PLACE] == number % _PLACES]
        return newest

    def _drop_first(self) -> None:
        """Drop the oldest segment, whose live entries are in the store by now."""
        self.arena.settle(self._of_segment(self.log.first))
        self.log.drop_first()
        self._moved = 0


class Caches(Protocol):
    """The caches of shards. A cache that is taken is exclusive until it is kept, so a failure leaves none behind."""

    def take(self, lineage: str, stamps: Collection[str]) -> ShardCache | None:
        """Take the cache of a shard, if its stamp is one of these; otherwise None."""

    def begin(self, lineage: str, is_complete: bool) -> ShardCache:
        """Return an empty cache."""

    def keep(self, cache: ShardCache, most: int) -> None:
        """Keep a cache for the next batch, and at most `most` caches in all."""


class PrivateCaches:
    """Caches in the memory of this process."""

    def __init__(self) -> None:
        """Begin with none."""
        self._caches: OrderedDict[str, ShardCache] = OrderedDict()

    def take(self, lineage: str, stamps: Collection[str]) -> ShardCache | None:
        """Take the cache of a shard; one with another stamp is dropped."""
        cache = self._caches.pop(lineage, None)
        return cache if cache is not None and cache.stamp in stamps else None

    def begin(self, lineage: str, is_complete: bool) -> ShardCache:
        """Return an empty cache."""
        return ShardCache(lineage, is_complete)

    def keep(self, cache: ShardCache, most: int) -> None:
        """Keep a cache for the next batch, and at most `most` caches in all."""
        self._caches[cache.lineage] = cache
        while len(self._caches) > most:
            self._caches.popitem(last=False)
