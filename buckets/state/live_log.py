"""What a cache knows of the live segments of a shard's log: which entries' keys each holds, and how large it is.

Segments are numbered one after the other. The newest is written again while it is small, the oldest goes first. So
what they hold lies one behind the other in an array, in the memory of the arena.

The manifest of a shard's log.
A segment.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings, fixed
from buckets.engine.storage.arena import ABSENT
from buckets.engine.storage.key import ArenaMemory, MemoryPart
from buckets.errors import BucketsError

HELD, SEGMENTS = MemoryPart("held", np.int32), MemoryPart("segments", np.int64, 2)
_ENDS, _BYTES = range(2)  # The columns of a segment: where what it holds ends, and how large it is
_FEWEST = 64

Int64s = npt.NDArray[np.int64]


class LiveLog:
    """The live segments.

    Attributes:
        first: the number of the oldest one; 0 before there is one.
        next: the number of the next new one.
    """

    def __init__(self, memory: ArenaMemory, numbers: tuple[int, ...] = (0, 0, 0, 0)) -> None:
        """Begin without any, or go on with what lies in a memory.

        Args:
            memory: where the arrays lie.
            numbers: those of the log that lies there.
        """
        self._memory = memory
        self.first, self.next, self._row, self._begun = numbers
        rows = self._row_of(self.next)
        self._segments = memory.grow(SEGMENTS, rows, max(rows, _FEWEST))
        end = int(self._segments[rows - 1, _ENDS]) if rows else 0
        self._held = memory.grow(HELD, end, max(end, _FEWEST))

    def numbers(self) -> tuple[int, ...]:
        """Return what it is besides its arrays."""
        return self.first, self.next, self._row, self._begun

    @property
    def size_bytes(self) -> int:
        """How large all segments are together."""
        return int(self._segments[self._row : self._row_of(self.next), _BYTES].sum())

    def bytes_of(self, number: int) -> int:
        """Return how large a segment is."""
        return int(self._segments[self._row_of(number), _BYTES])

    def held_by(self, number: int) -> Int64s:
        """Return the entries whose keys a segment holds, also such that a later one has replaced."""
        return self._held[self._begin_of(number) : self._segments[self._row_of(number), _ENDS]].astype(np.int64)

    def write(self, number: int, entries: Int64s, size_bytes: int) -> None:
        """Let a segment hold entries: a new one, or the newest again."""
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
        """Let go of the oldest segment; what is left moves to the front when it is the smaller part."""
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
        """Take in where entries have moved to: by entry, ABSENT where it is gone."""
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
        """Return where what a segment holds begins."""
        return int(self._segments[self._row_of(number) - 1, _ENDS]) if number > self.first else self._begun


MANIFEST_VERSION = 1


@dataclass(frozen=True)
class LogManifest:
    """What a shard's log is, after a batch."""

    lineage: str  # the shard's, random; copies of a checkpoint share it, until their stamps part
    first: int  # the number of the oldest live segment
    next: int  # the number of the next new one
    is_whole: bool  # whether the log holds all there is, so that nothing has to be asked of the store
    # the last stamps, oldest first, each with the segment from which all that came after it can be read
    history: tuple[tuple[str, int], ...]

    @property
    def stamp(self) -> str:
        """The stamp of the batch that wrote it."""
        return self.history[-1][0]

    @property
    def useful_stamps(self) -> list[str]:
        """The stamps with which a cache can be brought up to date, the newest last."""
        return [stamp for stamp, segment in self.history if segment >= self.first]

    def resumes_at(self, stamp: str) -> int:
        """Return the segment from which a cache of a useful stamp is brought up to date."""
        return dict(self.history)[stamp]

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps({"version": MANIFEST_VERSION} | asdict(self), separators=(",", ":")).encode()

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
    """Write entries as a segment."""
    lengths = np.concatenate([keys.lengths, values.lengths]).astype("<u4")
    header = _HEADER.pack(SEGMENT_VERSION, keys.size)
    return b"".join((header, lengths.tobytes(), keys.data.tobytes(), values.data.tobytes()))


def decode_segment(data: bytes) -> tuple[ByteStrings, ByteStrings]:
    """Read the keys and values of a segment.

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
    """Cut keys and values into runs of about so many bytes, each from one index to another; an entry is never cut."""
    ends = np.cumsum(keys.lengths + values.lengths + 2 * LENGTH_BYTES)
    begun, before = 0, 0
    while begun < keys.size:
        end = min(int(np.searchsorted(ends, before + most_bytes)) + 1, keys.size)
        yield begun, end
        begun, before = end, ends[end - 1]
