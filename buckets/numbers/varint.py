"""Integers as bytes: LEB128 varints, seven bits a byte, the lowest first; signed ones zigzagged. And CRC-32, as zlib's.

Source: Protocol Buffers' encoding, https://protobuf.dev/programming-guides/encoding/
"""

import zlib
from typing import Final

import numpy as np

from buckets.compiled import inlined, leaf

LONGEST: Final = 10  # Bytes of the longest 64-bit varint
LONGEST_PAIR: Final = 14  # Bytes of the longest pair, of 96 bits


@inlined
def write(out, at, number):
    """Write a non-negative number (as uint64); returns the position after it."""
    rest = np.uint64(number)
    while rest >= np.uint64(128):
        out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@inlined
def size_of(number):
    """Return how many bytes a non-negative number takes."""
    rest, size = np.uint64(number) >> np.uint64(7), np.int64(1)
    while rest > np.uint64(0):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def read(data, at):
    """Read a varint as uint64; returns it and the position after it."""
    number = np.uint64(0)
    shift = np.uint64(0)
    while data[at] >= 128:
        number |= np.uint64(data[at] & 127) << shift
        shift += np.uint64(7)
        at += 1
    return number | (np.uint64(data[at]) << shift), at + 1


@inlined
def write_signed(out, at, number):
    """Write a signed number; returns the position after it."""
    whole = np.int64(number)
    return write(out, at, np.uint64((whole << 1) ^ (whole >> 63)))


@inlined
def read_signed(data, at):
    """Read a signed number as int64; returns it and the position after it."""
    number, at = read(data, at)
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), at


@inlined
def read_count(data, at):
    """Read a non-negative number as int64; returns it and the position after it."""
    number, at = read(data, at)
    return np.int64(number), at


@leaf
def write_pair(out, at, high, low):
    """Write a normal pair of `wide_sum` that is not negative; returns the position after it."""
    while high > 0 or low >= 128:
        out[at] = np.uint8(low & 127) | np.uint8(128)
        low = (low >> 7) | ((high & 127) << 25)
        high >>= 7
        at += 1
    out[at] = np.uint8(low)
    return at + 1


@leaf
def read_pair(data, at):
    """Read a pair; returns its members and the position after it."""
    high, low, shift = np.int64(0), np.int64(0), 0
    more = True
    while more:
        more = data[at] >= 128
        bits = np.int64(data[at] & 127)
        if shift < 32:
            low |= (bits << shift) & 0xFFFFFFFF
            high |= bits >> (32 - shift)
        else:
            high |= bits << (shift - 32)
        shift += 7
        at += 1
    return high, low, at


_CRC_OF_BYTE: Final = np.array([zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)], np.uint32)


@leaf
def crc32(data, begin, end, before):
    """Return the CRC-32 of bytes `[begin, end)` that follow others with CRC-32 `before`, 0 for none."""
    crc = np.uint32(before ^ 0xFFFFFFFF)
    for at in range(begin, end):
        crc = _CRC_OF_BYTE[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
    return np.uint32(crc ^ 0xFFFFFFFF)
