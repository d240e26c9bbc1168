"""A segment: many entries of the state as one value.

Little-endian: the version as 1 byte, the number of entries as 4, the lengths of all keys and then of all values as 4
each, the keys one after the other, the values. A value of no bytes says that the key holds nothing any more.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import numpy as np

from buckets.errors import BucketsError

SEGMENT_VERSION = 1
LENGTH_BYTES = 4
KeyValue = tuple[bytes, bytes]
"""A key and its value."""
_HEADER = struct.Struct("<BI")


def encode_segment(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    """Write entries as a segment."""
    lengths = np.fromiter(map(len, chain(keys, values)), "<u4", 2 * len(keys))
    return b"".join((_HEADER.pack(SEGMENT_VERSION, len(keys)), lengths.tobytes(), *keys, *values))


def decode_segment(data: bytes) -> tuple[list[bytes], list[bytes]]:
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
    ends = np.cumsum(np.frombuffer(data, "<u4", 2 * count, _HEADER.size), dtype=np.int64)
    first = _HEADER.size + 2 * LENGTH_BYTES * count
    cut = [data[start:end] for start, end in pairwise([first, *(ends + first).tolist()])]
    return cut[:count], cut[count:]


def cut_into_segments(
    keys: Sequence[bytes], values: Sequence[bytes], most_bytes: int
) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Cut keys and values into runs of about so many bytes; an entry is never cut."""
    lengths = np.fromiter(map(len, chain(keys, values)), np.int64, 2 * len(keys)).reshape(2, -1)
    ends = np.cumsum(lengths.sum(axis=0) + 2 * LENGTH_BYTES)
    begun, before = 0, 0
    while begun < len(keys):
        end = min(int(np.searchsorted(ends, before + most_bytes)) + 1, len(keys))
        yield keys[begun:end], values[begun:end]
        begun, before = end, ends[end - 1]
