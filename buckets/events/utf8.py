"""Whether bytes are valid UTF-8, for compiled loops over messages."""

from typing import Final

import numpy as np

from buckets.compiled import inlined, leaf, read_word

_ASCII: Final = np.uint64(0x8080808080808080)


@inlined
def _tail(data, at, end, count, least):
    """Return whether so many bytes of a character follow, the first of which is at least `least` and below 0xC0."""
    if at + count > end or data[at] < least or data[at] > 0xBF:
        return False
    sound = True
    for byte in range(at + 1, at + count):
        sound = sound and data[byte] & 0xC0 == 0x80
    return sound


@leaf
def is_text(data, at, end):
    """Return whether bytes are valid UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF."""
    while at < end:
        if at + 8 <= end and read_word(data, at) & _ASCII == np.uint64(0):
            at += 8
            continue
        byte = data[at]
        at += 1
        if byte < 0x80:
            continue
        if 0xC2 <= byte <= 0xDF:
            more, least = 1, 0x80
        elif 0xE0 <= byte <= 0xEF:
            more, least = 2, 0xA0 if byte == 0xE0 else 0x80
            if byte == 0xED and at < end and data[at] > 0x9F:
                return False
        elif 0xF0 <= byte <= 0xF4:
            more, least = 3, 0x90 if byte == 0xF0 else 0x80
            if byte == 0xF4 and at < end and data[at] > 0x8F:
                return False
        else:
            return False
        if not _tail(data, at, end, more, least):
            return False
        at += more
    return True
