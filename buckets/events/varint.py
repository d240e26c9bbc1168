"""Numbers of seven bits a byte, as Avro and Protobuf write them, for compiled loops over messages."""

from typing import Final

import numpy as np

from buckets.compiled import inlined

SOUND: Final = 0
CUT: Final = 1
WIDE: Final = 2
"""What is wrong with a number: nothing, it ends in the middle, it has more than 64 bits."""


@inlined
def varint(data, at, end):
    """Read a number; returns its bits, the position after it, and a code."""
    number = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        byte = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return number, at - 1, WIDE
        number |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return number, at, SOUND
        shift += np.uint64(7)
    return number, at, CUT


@inlined
def zigzag(bits):
    """Return the number, which may be negative, that is written so that small ones have few bits."""
    return np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1))
