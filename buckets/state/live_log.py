"""What a cache knows of the live segments of a shard's log: which entries' keys each holds, and how large it is.

Segments are numbered one after the other. The newest is written again while it is small, the oldest goes first. So
what they hold lies one behind the other in an array, in the memory of the arena.
"""

import numpy as np
import numpy.typing as npt

from buckets.engine.storage.arena import ABSENT
from buckets.engine.storage.arena_memory import ArenaMemory, MemoryPart

HELD, SEGMENTS = MemoryPart("held", np.int32), MemoryPart("segments", np.int64, 2)
_ENDS, _BYTES = range(2)
"""The columns of a segment: where what it holds ends, and how large it is."""
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
