"""Chunks of the eviction schedule: lists of keys as bytes, read and written in columns.

An entry is a varint of twice the key's length, plus 1 if a clock follows; the key; and its clock in ms, if noted.
"""

from typing import Final

import numpy as np

from buckets.arrays import Int64s
from buckets.byte_strings import ByteStrings, fixed
from buckets.compiled import compiled, copy_bytes, leaf
from buckets.errors import BucketsError
from buckets.numbers.varint import LONGEST, read_count, read_signed, write, write_signed

NOT_NOTED: Final = 2**63 - 1  # Stands for the clock of a key whose clock is not noted: later than any


def read_chunks(chunks: ByteStrings, groups: ByteStrings) -> tuple[ByteStrings, Int64s, Int64s]:
    """Read chunks.

    Returns:
        The state keys of their keys' heads; the noted clock of each, int64 `(keys,)`, or NOT_NOTED; and where the keys
        of each chunk begin, int64 `(chunks + 1,)`.

    Raises:
        BucketsError: a chunk is not a list of keys.
    """
    most = len(chunks.data)
    data = np.empty(most + most * int(groups.lengths.max(initial=0)), np.uint8)
    start, noted_ms, first = np.zeros(most + 1, np.int64), np.empty(most, np.int64), np.zeros(chunks.size + 1, np.int64)
    keys = _read(*chunks, *groups, data, start, noted_ms, first)
    if keys < 0:
        message = "the shard's eviction schedule has a chunk that is not a list of keys; start with a new checkpoint"
        raise BucketsError(message)
    return fixed(data[: start[keys]], start[: keys + 1]), noted_ms[:keys], first


def write_chunks(
    begun: ByteStrings, keys: ByteStrings, noted_ms: Int64s, first: Int64s, passed_over: int
) -> ByteStrings:
    """Append keys to chunks.

    Args:
        begun: the present bytes of each chunk; empty for a new one.
        keys: the state keys of the heads of the keys to append, chunk by chunk.
        noted_ms: int64 `(keys,)`, the clock to note for each key, or NOT_NOTED.
        first: int64 `(chunks + 1,)`, where the keys of each chunk begin.
        passed_over: the length of the prefix of a state key, which is not written.
    """
    most = len(begun.data) + len(keys.data) + 2 * LONGEST * keys.size
    data, start = np.empty(most, np.uint8), np.zeros(begun.size + 1, np.int64)
    _write(*begun, *keys, noted_ms, first, passed_over, data, start)
    return fixed(data[: start[-1]], start)


@compiled
def _read(text, text_start, groups, group_start, data, start, noted_ms, first):
    """Read chunks, and return their number of keys; -1 if one is not a list of keys."""
    key = np.int64(0)
    for chunk in range(text_start.shape[0] - 1):
        at, end = text_start[chunk], text_start[chunk + 1]
        group_bytes = group_start[chunk + 1] - group_start[chunk]
        if at == end:
            return np.int64(-1)
        while at < end:
            if not _has_varint(text, at, end):
                return np.int64(-1)
            number, at = read_count(text, at)
            size = number >> 1
            if size < 0 or size > end - at:
                return np.int64(-1)
            copy_bytes(data, start[key], groups, group_start[chunk], group_bytes)
            copy_bytes(data, start[key] + group_bytes, text, at, size)
            start[key + 1] = start[key] + group_bytes + size
            at += size
            noted_ms[key] = NOT_NOTED
            if number & 1:
                if not _has_varint(text, at, end):
                    return np.int64(-1)
                noted_ms[key], at = read_signed(text, at)
            key += 1
        first[chunk + 1] = key
    return key


@leaf
def _has_varint(text, at, end):
    """Return whether the varint at this position ends before `end`."""
    last = min(end, at + LONGEST)
    while at < last and text[at] >= 128:
        at += 1
    return at < last


@compiled
def _write(begun, begun_start, keys, key_start, noted_ms, first, passed_over, data, start):
    """Write chunks to `data`, and where each begins to `start`."""
    to = np.int64(0)
    for chunk in range(begun_start.shape[0] - 1):
        length = begun_start[chunk + 1] - begun_start[chunk]
        copy_bytes(data, to, begun, begun_start[chunk], length)
        to += length
        for key in range(first[chunk], first[chunk + 1]):
            begin = key_start[key] + passed_over
            size, is_noted = key_start[key + 1] - begin, noted_ms[key] != NOT_NOTED
            to = write(data, to, 2 * size + is_noted)
            copy_bytes(data, to, keys, begin, size)
            to += size
            if is_noted:
                to = write_signed(data, to, noted_ms[key])
        start[chunk + 1] = to
