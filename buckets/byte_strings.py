"""Many byte strings as two arrays: keys, heads and ids on their way between Arrow, the kernels and the state."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Flags, Int64s, read_only, starts_of
from buckets.compiled import compiled, copy_bytes, inlined, leaf, read_word

_FEWEST_SLOTS = 16


class ByteStrings(NamedTuple):
    """Concatenated byte strings. Both arrays are read-only: for writable ones, numba would compile kernels again."""

    data: npt.NDArray[np.uint8]  # uint8, the bytes of all
    start: Int64s  # int64 `(strings + 1,)`, where each begins in `data`, and where the last one ends

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "ByteStrings":
        """Join byte strings."""
        start = starts_of(np.fromiter(map(len, strings), np.int64, len(strings)))
        return fixed(np.frombuffer(b"".join(strings), np.uint8), start)

    @classmethod
    def empties(cls, count: int) -> "ByteStrings":
        """Return this many empty byte strings."""
        return fixed(np.empty(0, np.uint8), np.zeros(count + 1, np.int64))

    @property
    def size(self) -> int:
        """The number of byte strings."""
        return len(self.start) - 1

    @property
    def lengths(self) -> Int64s:
        """The length of each in bytes, int64 `(strings,)`."""
        lengths: Int64s = self.start[1:] - self.start[:-1]
        return lengths

    def to_list(self) -> list[bytes]:
        """Return them as Python objects."""
        data, first = self.data[self.start[0] : self.start[-1]].tobytes(), int(self.start[0])
        return [data[begin - first : end - first] for begin, end in pairwise(self.start.tolist())]

    def take(self, indices: Int64s) -> "ByteStrings":
        """Return the byte strings at these indices, int64, none of which may be below 0.

        Raises:
            IndexError: an index is too large.
        """
        return fixed(*_taken(self.data, self.start, read_only(np.ascontiguousarray(indices, np.int64))))

    def slice(self, begin: int, end: int) -> "ByteStrings":
        """Return the byte strings at indices `[begin, end)`, without a copy."""
        first = self.start[begin]
        return fixed(self.data[first : self.start[end]], self.start[begin : end + 1] - first)

    def with_prefix(self, prefix: bytes) -> "ByteStrings":
        """Prepend the same bytes to each."""
        start = self.start - self.start[0] + np.arange(len(self.start)) * len(prefix)
        data = np.empty(start[-1], np.uint8)
        _prefix_each(np.frombuffer(prefix, np.uint8), self.data, self.start, data)
        return fixed(data, start)

    def followed_by(self, others: "ByteStrings") -> "ByteStrings":
        """Append the byte string of the same index in `others` to each."""
        start = self.start - self.start[0] + others.start - others.start[0]
        data = np.empty(start[-1], np.uint8)
        _join_pairs(self.data, self.start, others.data, others.start, start, data)
        return fixed(data, start)

    def differs_from(self, other: "ByteStrings") -> Flags:
        """Return which of them differ from those in `other`, bool `(strings,)`."""
        return _differing(self.data, self.start, other.data, other.start)


def fixed(data: npt.NDArray[np.uint8], start: Int64s) -> ByteStrings:
    """Return byte strings over these arrays, which must not be changed any more."""
    return ByteStrings(read_only(data), read_only(start))


def concatenated(parts: Sequence[ByteStrings]) -> ByteStrings:
    """Concatenate several sets of byte strings."""
    if len(parts) == 1:
        return parts[0]
    data = [part.data[part.start[0] : part.start[-1]] for part in parts]
    start, at = [np.zeros(1, np.int64)], 0
    for part in parts:
        start.append(part.start[1:] - (part.start[0] - at))
        at += int(part.start[-1] - part.start[0])
    return fixed(np.concatenate([np.empty(0, np.uint8), *data]), np.concatenate(start))


@inlined
def same_bytes(one, at, other, other_at, length):
    """Return whether two stretches of bytes are equal."""
    byte = 0
    while byte + 8 <= length:
        if read_word(one, at + byte) != read_word(other, other_at + byte):
            return False
        byte += 8
    while byte < length:
        if one[at + byte] != other[other_at + byte]:
            return False
        byte += 1
    return True


@leaf
def slots_for(entries):
    """Return the slots of a hash table for this many entries: at least twice as many, and a power of two."""
    slots = np.int64(_FEWEST_SLOTS)
    while slots < 2 * entries:
        slots *= 2
    return slots


@inlined
def hash_bytes(pool, start, length):
    """Hash bytes; the result is never 0."""
    mixed, factor = np.uint64(length), np.uint64(0x9E3779B97F4A7C15)
    byte = 0
    while byte + 8 <= length:
        mixed = (mixed ^ read_word(pool, start + byte)) * factor
        mixed ^= mixed >> np.uint64(29)
        byte += 8
    while byte < length:
        mixed = (mixed ^ np.uint64(pool[start + byte])) * factor
        mixed ^= mixed >> np.uint64(29)
        byte += 1
    return mixed | np.uint64(1)


@compiled
def _taken(pool, pool_start, indices):
    """Copy the byte strings at some indices; return their concatenated bytes, and where each begins."""
    start = np.zeros(indices.shape[0] + 1, np.int64)
    for index in range(indices.shape[0]):
        if not 0 <= indices[index] < pool_start.shape[0] - 1:
            raise IndexError
        start[index + 1] = start[index] + pool_start[indices[index] + 1] - pool_start[indices[index]]
    data = np.empty(start[-1], np.uint8)
    for index in range(indices.shape[0]):
        copy_bytes(data, start[index], pool, pool_start[indices[index]], start[index + 1] - start[index])
    return data, start


@compiled
def _prefix_each(prefix, pool, pool_start, data):
    """Copy byte strings into `data`, with a prefix before each."""
    to = 0
    for index in range(pool_start.shape[0] - 1):
        length = pool_start[index + 1] - pool_start[index]
        copy_bytes(data, to, prefix, 0, prefix.shape[0])
        copy_bytes(data, to + prefix.shape[0], pool, pool_start[index], length)
        to += prefix.shape[0] + length


@compiled
def _join_pairs(one, one_start, other, other_start, start, data):
    """Copy pairs of byte strings to offsets `start` of `data`, the second of each after the first."""
    for index in range(one_start.shape[0] - 1):
        length = one_start[index + 1] - one_start[index]
        copy_bytes(data, start[index], one, one_start[index], length)
        copy_bytes(data, start[index] + length, other, other_start[index], other_start[index + 1] - other_start[index])


@compiled
def _differing(one, one_start, other, other_start):
    """Return which byte strings differ between two sets, bool `(strings,)`."""
    differs = np.zeros(one_start.shape[0] - 1, np.bool_)
    for index in range(differs.shape[0]):
        length = one_start[index + 1] - one_start[index]
        has_length = other_start[index + 1] - other_start[index] == length
        differs[index] = not (has_length and same_bytes(one, one_start[index], other, other_start[index], length))
    return differs
