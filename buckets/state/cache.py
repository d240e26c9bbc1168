"""What a worker remembers of shards, in memory, from one batch to the next."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.arena import ABSENT, PENDING, PLACE, STORED, Arena
from buckets.state.segment import cut_into_segments, decode_segment, encode_segment

SEGMENT_BYTES = 1 << 18
"""About how large a segment becomes at the most: a larger value costs the JVM more a byte."""
OPEN_BYTES = 1 << 14
"""The last segment is written again, with what the next batch changes, until it is so large."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LiveSegment:
    """What is known of a live segment.

    Attributes:
        entries: int64, those of the arena whose keys it holds, also such that a later one has replaced.
        size_bytes: how large it is.
    """

    entries: Int64s
    size_bytes: int


@dataclass(frozen=True)
class Moved:
    """What goes from the oldest segments to the store.

    Attributes:
        puts: keys and values.
        removes: keys that hold nothing.
        emptied: numbers of segments of which nothing is left.
    """

    puts: list[tuple[bytes, bytes]]
    removes: list[bytes]
    emptied: list[int]


@dataclass
class ShardCache:
    """What a worker knows of a shard: all of its log, and some of what the store holds besides.

    The place of an entry in the arena is the number of the segment that has its newest value.

    Attributes:
        lineage: of the shard.
        is_complete: whether a key that is not known here is not in the store either.
        stamp: of the batch after which all this is right.
        arena: keys and values.
        segments: the live segments by number, oldest first.
        moved: how many entries of the oldest segment have gone to the store.
    """

    lineage: str
    is_complete: bool = False
    stamp: str = ""
    arena: Arena = field(default_factory=Arena)
    segments: dict[int, LiveSegment] = field(default_factory=dict)
    moved: int = 0

    @property
    def first(self) -> int:
        """The number of the oldest live segment; 0 before there is one."""
        return next(iter(self.segments), 0)

    @property
    def next(self) -> int:
        """The number of the next new segment."""
        return next(reversed(self.segments), -1) + 1

    @property
    def resumes_at(self) -> int:
        """The segment from which all that later batches change can be read."""
        return self.next - 1 if self._is_open() else self.next

    def _is_open(self) -> bool:
        return bool(self.segments) and self.segments[self.next - 1].size_bytes < OPEN_BYTES

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
            moved = self.arena.compact()
            for number, segment in self.segments.items():
                entries = moved[segment.entries]
                self.segments[number] = LiveSegment(entries[entries != ABSENT], segment.size_bytes)
            self.moved = 0

    # --- following the log of other workers -------------------------------------------------------------------

    def learn(self, segments: Iterable[tuple[int, bytes]], first: int) -> None:
        """Take in what another worker has written from some segment on, oldest first; `first` is still live."""
        for number, data in segments:
            self.segments[number] = LiveSegment(self.arena.put(*decode_segment(data), number), len(data))
        for number in [segment for segment in self.segments if segment < first]:
            self._drop_segment(number)
        self.moved = 0

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
        number, entries, written = self.next, self.arena.changed.copy(), []
        if self._is_open():
            number -= 1
            entries = np.concatenate([self._of_segment(number), entries])
        self.arena.settle_changes()
        keys, values = self.arena.keys_of(entries), self.arena.values_of(entries)
        for begin, end in cut_into_segments(keys, values, SEGMENT_BYTES):
            data = encode_segment(keys.slice(begin, end), values.slice(begin, end))
            self.arena.entries[entries[begin:end], PLACE] = number
            self.segments[number] = LiveSegment(entries[begin:end], len(data))
            written.append((number, data))
            number += 1
        return written

    def move_oldest(self, most: int, log_bytes: int) -> Moved:
        """Take up to `most` entries of the oldest segments that nothing has replaced, where the log is too long.

        Args:
            most: how many entries are looked at.
            log_bytes: how much memory its newest values may take; with those that were replaced it may have twice that.
        """
        moved, written_bytes = Moved([], [], []), sum(segment.size_bytes for segment in self.segments.values())
        # The newest segment stays: it may be written again.
        while (
            (self.arena.logged_bytes > log_bytes or written_bytes > 2 * log_bytes)
            and most > 0
            and len(self.segments) > 1
        ):
            number, segment = self.first, self.segments[self.first]
            looked_at = segment.entries[self.moved : self.moved + most]
            settled = looked_at[self.arena.entries[looked_at, PLACE] == number]
            self.arena.settle(settled)
            entries = zip(self.arena.keys_of(settled).to_list(), self.arena.values_of(settled).to_list(), strict=True)
            for key, value in entries:
                if value:
                    moved.puts.append((key, value))
                else:
                    moved.removes.append(key)
            most -= len(looked_at)
            self.moved += len(looked_at)
            if self.moved == len(segment.entries):
                written_bytes -= segment.size_bytes
                moved.emptied.append(number)
                self._drop_segment(number)
        return moved

    # --- parts ------------------------------------------------------------------------------------------------

    def _of_segment(self, number: int) -> Int64s:
        """Return the entries of a segment that nothing has replaced."""
        entries = self.segments[number].entries
        left: Int64s = entries[self.arena.entries[entries, PLACE] == number]
        return left

    def _drop_segment(self, number: int) -> None:
        """Let go of a segment; what it alone has is in the store by now."""
        self.arena.settle(self._of_segment(number))
        del self.segments[number]
        self.moved = 0


class WorkerCaches:
    """The caches of the shards that a worker has had lately."""

    def __init__(self) -> None:
        """Begin with none."""
        self._caches: OrderedDict[str, ShardCache] = OrderedDict()

    def take(self, lineage: str) -> ShardCache | None:
        """Take the cache of a shard, which is gone from here until it is kept: nothing is known after a failure."""
        return self._caches.pop(lineage, None)

    def keep(self, cache: ShardCache, most: int) -> None:
        """Keep a cache for the next batch, and at most so many in all."""
        self._caches[cache.lineage] = cache
        while len(self._caches) > most:
            self._caches.popitem(last=False)


WORKER_CACHES = WorkerCaches()
"""Those of this process."""
