"""Chunks of the eviction schedule: JSON lists of keys, read and written in columns.

An entry is a key, `"k"`, or a key with its clock, `["k", 1700000000000]`. What is written has no spaces, and only what
JSON must escape is escaped.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings, fixed
from buckets.compiled import compiled, copy_bytes, leaf
from buckets.errors import BucketsError

Int64s = npt.NDArray[np.int64]
NOT_NOTED: Final = 2**63 - 1  # Stands for the clock of a key whose clock is not noted: later than any
_OPEN, _CLOSE, _QUOTE, _BACKSLASH, _COMMA, _MINUS, _ZERO, _UNICODE = map(ord, '[]"\\,-0u')
_SHORT: Final = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}
_LONG: Final = {character: letter for letter, character in _SHORT.items()}
_ESCAPED: Final = np.array([ord(_SHORT.get(chr(byte), "u" if byte < 32 else "\0")) for byte in range(256)], np.uint8)
"""By byte, what stands for it behind a backslash; 0 where it stands for itself."""
_MEANT: Final = np.array([ord(_LONG.get(chr(byte), chr(byte))) for byte in range(256)], np.uint8)
"""By what stands behind a backslash, the byte that is meant."""
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_NUMBER_BYTES: Final = 20
_LONGEST: Final = 6  # Bytes that one byte of a key takes at most
_QUOTES, _COMMAS, _BRACKETS = 2, 1, 2  # Bytes of what stands around a key, between two, and around a list


def read_chunks(chunks: ByteStrings, groups: ByteStrings) -> tuple[ByteStrings, Int64s, Int64s]:
    """Read chunks.

    Returns:
        Where the heads of their keys lie; the clock that is noted of each, int64 `(keys,)`, NOT_NOTED for none; and
        where the keys of each chunk begin, int64 `(chunks + 1,)`.

    Raises:
        BucketsError: one is no list of keys.
    """
    most = len(chunks.data) // _QUOTES
    data = np.empty(len(chunks.data) + most * int(groups.lengths.max(initial=0)), np.uint8)
    start, noted_ms, first = np.zeros(most + 1, np.int64), np.empty(most, np.int64), np.zeros(chunks.size + 1, np.int64)
    keys = _read(*chunks, *groups, data, start, noted_ms, first)
    if keys < 0:
        message = "the shard's eviction schedule has a chunk that is no list of keys; start with a new checkpoint"
        raise BucketsError(message)
    return fixed(data[: start[keys]], start[: keys + 1]), noted_ms[:keys], first


def write_chunks(
    begun: ByteStrings, keys: ByteStrings, noted_ms: Int64s, first: Int64s, passed_over: int
) -> ByteStrings:
    """Write chunks.

    Args:
        begun: what is there of each; empty for a new one.
        keys: where the heads of the keys lie that come into them, chunk by chunk.
        noted_ms: int64 `(keys,)`, the clock that is noted of each; NOT_NOTED for none.
        first: int64 `(chunks + 1,)`, where the keys of each chunk begin.
        passed_over: how many bytes stand before a key, where its head lies.
    """
    of_key = _QUOTES + _COMMAS + _BRACKETS + _COMMAS + _NUMBER_BYTES
    most = len(begun.data) + _BRACKETS * begun.size + _LONGEST * len(keys.data) + of_key * keys.size
    data, start = np.empty(most, np.uint8), np.zeros(begun.size + 1, np.int64)
    _write(*begun, *keys, noted_ms, first, passed_over, data, start)
    return fixed(data[: start[-1]], start)


@compiled
def _read(text, text_start, groups, group_start, data, start, noted_ms, first):
    """Read chunks, and return how many keys they have; -1 where one is no list of keys."""
    key = np.int64(0)
    for chunk in range(text_start.shape[0] - 1):
        end = text_start[chunk + 1]
        at = _pass_space(text, text_start[chunk], end)
        if at == end or text[at] != _OPEN:
            return np.int64(-1)
        at = _pass_space(text, at + 1, end)
        while at < end and text[at] != _CLOSE:
            is_noted = text[at] == _OPEN
            if is_noted:
                at = _pass_space(text, at + 1, end)
            if at == end or text[at] != _QUOTE:
                return np.int64(-1)
            group_bytes = group_start[chunk + 1] - group_start[chunk]
            copy_bytes(data, start[key], groups, group_start[chunk], group_bytes)
            at, start[key + 1] = _read_string(text, at + 1, end, data, start[key] + group_bytes)
            noted_ms[key] = NOT_NOTED
            if is_noted:
                at, noted_ms[key] = _read_number(text, _pass_space(text, at, end), end)
                at = _pass_space(text, at, end)
                if at == end or text[at] != _CLOSE:
                    return np.int64(-1)
                at += 1
            at = _pass_space(text, at, end)
            key += 1
        if at == end:
            return np.int64(-1)
        first[chunk + 1] = key
    return key


@leaf
def _pass_space(text, at, end):
    """Return the next position at which something else stands than space or a comma."""
    while at < end and (text[at] <= 32 or text[at] == _COMMA):
        at += 1
    return at


@leaf
def _read_string(text, at, end, data, to):
    """Copy a string that begins behind its quote; returns the positions after it, in the text and in the copy."""
    while at < end and text[at] != _QUOTE:
        if text[at] != _BACKSLASH or at + 1 >= end:
            data[to] = text[at]
            at, to = at + 1, to + 1
        elif text[at + 1] != _UNICODE:
            data[to] = _MEANT[text[at + 1]]
            at, to = at + 2, to + 1
        else:
            point = _read_hex(text, at + 2, end)
            at += _LONGEST
            if 0xD800 <= point < 0xDC00:
                point = 0x10000 + ((point - 0xD800) << 10) + (_read_hex(text, at + 2, end) - 0xDC00)
                at += _LONGEST
            to = _write_point(data, to, point)
    return min(at + 1, end), to


@leaf
def _read_hex(text, at, end):
    """Return the number of four digits."""
    number = np.int64(0)
    for place in range(at, min(at + 4, end)):
        digit = np.int64(text[place])
        number = 16 * number + (digit - _ZERO if digit <= 57 else (digit | 32) - 87)
    return number


@leaf
def _write_point(data, to, point):
    """Write a character in UTF-8; returns the position after it."""
    if point < 0x80:
        data[to] = point
        return to + 1
    more = np.int64(1) if point < 0x800 else np.int64(2) if point < 0x10000 else np.int64(3)
    data[to] = ((0xFF00 >> (more + 1)) & 0xFF) | (point >> (6 * more))
    for place in range(1, more + 1):
        data[to + place] = 0x80 | ((point >> (6 * (more - place))) & 0x3F)
    return to + more + 1


@leaf
def _read_number(text, at, end):
    """Return the position after an integer, and the integer."""
    is_negative = at < end and text[at] == _MINUS
    if is_negative:
        at += 1
    number = np.int64(0)
    while at < end and _ZERO <= text[at] <= _ZERO + 9:
        number = 10 * number - (np.int64(text[at]) - _ZERO)
        at += 1
    return at, number if is_negative else -number


@compiled
def _write(begun, begun_start, keys, key_start, noted_ms, first, passed_over, data, start):
    """Write chunks to `data`, where `start` gets where each begins."""
    to = np.int64(0)
    for chunk in range(begun_start.shape[0] - 1):
        is_new = begun_start[chunk] == begun_start[chunk + 1]
        if is_new:
            data[to] = _OPEN
            to += 1
        else:  # all but the bracket that closes it
            length = begun_start[chunk + 1] - begun_start[chunk] - 1
            copy_bytes(data, to, begun, begun_start[chunk], length)
            to += length
        for key in range(first[chunk], first[chunk + 1]):
            if key > first[chunk] or not is_new:
                data[to] = _COMMA
                to += 1
            is_noted = noted_ms[key] != NOT_NOTED
            if is_noted:
                data[to] = _OPEN
                to += 1
            to = _write_string(data, to, keys, key_start[key] + passed_over, key_start[key + 1])
            if is_noted:
                data[to] = _COMMA
                to = _write_number(data, to + 1, noted_ms[key])
                data[to] = _CLOSE
                to += 1
        data[to] = _CLOSE
        to += 1
        start[chunk + 1] = to


@leaf
def _write_string(data, to, text, begin, end):
    """Write a string; returns the position after it."""
    data[to] = _QUOTE
    to += 1
    for at in range(begin, end):
        byte = text[at]
        escaped = _ESCAPED[byte]
        if escaped == 0:
            data[to] = byte
            to += 1
            continue
        data[to] = _BACKSLASH
        data[to + 1] = escaped
        to += 2
        if escaped == _UNICODE:
            data[to] = data[to + 1] = _ZERO
            data[to + 2] = _HEX[byte >> 4]
            data[to + 3] = _HEX[byte & 15]
            to += 4
    data[to] = _QUOTE
    return to + 1


@leaf
def _write_number(data, to, number):
    """Write an integer; returns the position after it."""
    if number < 0:
        data[to] = _MINUS
        to += 1
    rest = number if number < 0 else -number  # the least integer has no counterpart
    size, tens = np.int64(1), -(rest // -10)
    while tens != 0:
        size, tens = size + 1, -(tens // -10)
    for place in range(to + size - 1, to - 1, -1):
        tens = -(rest // -10)
        data[place] = _ZERO + 10 * tens - rest
        rest = tens
    return to + size
