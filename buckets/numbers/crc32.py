"""CRC-32 of bytes, as zlib has it, for kernels."""

import zlib
from typing import Final

import numpy as np

from buckets.compiled import leaf

_CRC_OF_BYTE: Final = np.array([zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)], np.uint32)


@leaf
def crc32(data, begin, end, before):
    """Return the CRC-32 of bytes `[begin, end)` behind others, whose CRC-32 is `before`; 0 for none."""
    crc = np.uint32(before ^ 0xFFFFFFFF)
    for at in range(begin, end):
        crc = _CRC_OF_BYTE[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
    return np.uint32(crc ^ 0xFFFFFFFF)
