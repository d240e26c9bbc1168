"""A segment: many entries of the state as one value.

Little-endian: the version as 1 byte, the number of entries as 4, the lengths of all keys and then of all values as 4
each, the keys one after the other, the values. A value of no bytes says that the key holds nothing any more.
"""

import struct
from collections.abc import Iterator

import numpy as np

from buckets.byte_strings import ByteStrings, fixed
from buckets.errors import BucketsError

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
