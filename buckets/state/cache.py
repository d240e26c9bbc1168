"""What a worker remembers of shards, in memory, from one batch to the next."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from buckets.state.segment import KeyValue, cut_into_segments, decode_segment, encode_segment

SEGMENT_BYTES = 1 << 18
"""About how large a segment becomes at the most: a larger value costs the JVM more a byte."""
OPEN_BYTES = 1 << 14
"""The last segment is written again, with what the next batch changes, until it is so large."""
OVERHEAD_BYTES = 200
"""What Python needs for an entry besides its bytes."""


@dataclass(frozen=True)
class LiveSegment:
    """What is known of a live segment.

    Attributes:
        keys: those that it holds, also those that a later one has replaced.
        size_bytes: how large it is.
    """

    keys: tuple[bytes, ...]
    size_bytes: int

    @property
    def memory_bytes(self) -> int:
        """About how much memory its entries take."""
        return self.size_bytes + OVERHEAD_BYTES * len(self.keys)


@dataclass(frozen=True)
class Moved:
    """What goes from the oldest segments to the store.

    Attributes:
        puts: entries.
        removes: keys that hold nothing.
        emptied: numbers of segments of which nothing is left.
    """

    puts: list[KeyValue]
    removes: list[bytes]
    emptied: list[int]


@dataclass
class ShardCache:
    """What a worker knows of a shard: all of its log, and some of what the store holds besides.

    Attributes:
        lineage: of the shard.
        is_complete: whether a key that is not known here is not in the store either.
        stamp: of the batch after which all this is right.
        logged: what the live segments hold, the newest value of each key.
        segment_of: the segment that has it.
        segments: the live segments by number, oldest first.
        recent: what the store holds, as far as it was used since `older` was begun.
        older: what was used before that; the next to be forgotten.
        moved: how many entries of the oldest segment have gone to the store.
    """

    lineage: str
    is_complete: bool = False
    stamp: str = ""
    logged: dict[bytes, bytes] = field(default_factory=dict)
    segment_of: dict[bytes, int] = field(default_factory=dict)
    segments: dict[int, LiveSegment] = field(default_factory=dict)
    recent: dict[bytes, bytes] = field(default_factory=dict)
    older: dict[bytes, bytes] = field(default_factory=dict)
    recent_bytes: int = 0
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

    def find(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
        """Look keys up: their values, and the indexes of keys that the store must be asked for."""
        values: list[bytes] = [*map(self.logged.get, keys)]  # type: ignore[list-item]
        unknown: list[int] = []
        recent, older = self.recent, self.older
        for index in [index for index, value in enumerate(values) if value is None]:
            key = keys[index]
            value = recent.get(key)
            if value is None:
                value = older.pop(key, None)
                if value is None:
                    unknown.append(index)
                    value = b""
                else:
                    self.remember(key, value)
            values[index] = value
        return values, [] if self.is_complete else unknown

    def remember(self, key: bytes, value: bytes) -> None:
        """Remember what the store holds."""
        self.recent[key] = value
        self.recent_bytes += len(key) + len(value) + OVERHEAD_BYTES

    def bound(self, most_bytes: int) -> None:
        """Forget what was not used lately."""
        if self.recent_bytes > most_bytes // 2:
            self.is_complete = self.is_complete and not self.older
            self.older, self.recent, self.recent_bytes = self.recent, {}, 0

    # --- following the log of other workers -------------------------------------------------------------------

    def learn(self, segments: Iterable[tuple[int, bytes]], first: int) -> None:
        """Take in what another worker has written from some segment on, oldest first; `first` is still live."""
        for number, data in segments:
            keys, values = decode_segment(data)
            self._add_segment(number, keys, len(data))
            self.logged.update(zip(keys, values, strict=True))
            self._forget(keys)
        for number in [segment for segment in self.segments if segment < first]:
            self._drop_segment(number)
        self.moved = 0

    # --- what a batch changes ---------------------------------------------------------------------------------

    def change(self, entries: Iterable[KeyValue]) -> None:
        """Let what the running batch changes count at once; `append` writes it."""
        self.logged.update(entries)

    def append(self, changed: Iterable[bytes]) -> list[tuple[int, bytes]]:
        """Write into the log what `change` was told last of these keys; empty values hold nothing.

        Returns:
            Segments with their numbers, to be put into the state; the first may be one that is there already.
        """
        number, keys = self.next, [*changed]
        self._forget(key for key in keys if key not in self.segment_of)
        self.segment_of.update(dict.fromkeys(keys, number))
        if self._is_open():
            number -= 1
            keys = [*(key for key in self.segments[number].keys if self.segment_of[key] == number), *keys]
        values, written = [*map(self.logged.__getitem__, keys)], []
        for of_segment, held in cut_into_segments(keys, values, SEGMENT_BYTES):
            data = encode_segment(of_segment, held)
            self._add_segment(number, of_segment, len(data))
            written.append((number, data))
            number += 1
        return written

    def move_oldest(self, most: int, log_bytes: int) -> Moved:
        """Take up to `most` entries of the oldest segments that nothing has replaced, where the log is too long."""
        moved, live_bytes = Moved([], [], []), sum(segment.memory_bytes for segment in self.segments.values())
        # The newest segment stays: it may be written again.
        while live_bytes > log_bytes and most > 0 and len(self.segments) > 1:
            number = self.first
            keys = self.segments[number].keys
            looked_at = keys[self.moved : self.moved + most]
            for key in looked_at:
                if self.segment_of.get(key) == number:
                    value = self._settle(key)
                    if value:
                        moved.puts.append((key, value))
                    else:
                        moved.removes.append(key)
            most -= len(looked_at)
            self.moved += len(looked_at)
            if self.moved == len(keys):
                live_bytes -= self.segments[number].memory_bytes
                moved.emptied.append(number)
                self._drop_segment(number)
        return moved

    # --- parts ------------------------------------------------------------------------------------------------

    def _add_segment(self, number: int, keys: Sequence[bytes], size_bytes: int) -> None:
        self.segments[number] = LiveSegment(tuple(keys), size_bytes)
        self.segment_of.update(dict.fromkeys(keys, number))

    def _drop_segment(self, number: int) -> None:
        """Let go of a segment; what it alone has is in the store by now."""
        for key in self.segments.pop(number).keys:
            if self.segment_of.get(key) == number:
                self._settle(key)
        self.moved = 0

    def _settle(self, key: bytes) -> bytes:
        """Take what a key holds out of the log: it is in the store from now on."""
        del self.segment_of[key]
        value = self.logged.pop(key)
        self.remember(key, value)
        return value

    def _forget(self, keys: Iterable[bytes]) -> None:
        """Forget what the store holds of keys: it does not count any more."""
        if not self.recent and not self.older:
            return
        for key in keys:
            if self.recent.pop(key, None) is None:
                self.older.pop(key, None)


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
