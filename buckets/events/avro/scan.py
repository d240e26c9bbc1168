"""Walks through messages of one schema by its program: where the wanted values lie, and which messages are broken.

A message is read from its first byte to its last, also what nobody wants: it must be whole, its texts valid UTF-8, its
numbers no wider than their types, and nothing may follow it. So what is broken anywhere is no event.

Of a record that is being read the stack knows which part comes next, of an array or a map how many items are left of
the block:

    {"id": "e1", "lines": [{"sku": …}, {"sku": …}], …}
                            ^ here: [record, part 2 of 9] [array, 1 item left] [record, part 1 of 1]
"""

from typing import Final

import numpy as np

from buckets.compiled import compiled, inlined, leaf
from buckets.events.avro.program import (
    ARRAY,
    BOOLEAN,
    BYTES,
    ENUM,
    FIXED,
    FLOAT,
    INT,
    LONG,
    MAP,
    NO_SLOT,
    NULL,
    RECORD,
    STRING,
    UNION,
)
from buckets.events.utf8 import is_text
from buckets.events.varint import CUT, SOUND, WIDE, varint, zigzag

DEEPEST: Final = 500
"""Levels of nesting that are read, as in JSON."""
MOST_EMPTY_ITEMS: Final = 100_000
"""Items that a message may have beyond its bytes: nulls take none, and a few bytes may promise any number of them."""
NO_LEAF: Final = -1
NOT_INT: Final = 3
NOT_BOOLEAN: Final = 4
BAD_LENGTH: Final = 5
BAD_TEXT: Final = 6
BAD_SYMBOL: Final = 7
BAD_BRANCH: Final = 8
BAD_COUNT: Final = 9
DEEP: Final = 10
LEFT_OVER: Final = 11
FAULTS: Final = {
    CUT: "ends in the middle of a value",
    WIDE: "a number has more than 64 bits",
    NOT_INT: "a number does not fit its type int",
    NOT_BOOLEAN: "a boolean is neither 0 nor 1",
    BAD_LENGTH: "a length is negative",
    BAD_TEXT: "a text is not valid UTF-8",
    BAD_SYMBOL: "an enum has no such symbol",
    BAD_BRANCH: "a union has no such branch",
    BAD_COUNT: "an array or map has more items than there is room for",
    DEEP: f"is nested deeper than {DEEPEST} levels",
    LEFT_OVER: "has more bytes than its schema says",
}
"""By code, what is wrong with a message."""


@inlined
def _long(data, at, end):
    """Read a number; returns it, the position after it, and a code."""
    bits, at, code = varint(data, at, end)
    return zigzag(bits), at, code


@inlined
def _sized(data, at, end):
    """Read a length; returns it, where its bytes begin, and a code."""
    length, at, code = _long(data, at, end)
    if code == SOUND and length < 0:
        return length, at, BAD_LENGTH
    if code == SOUND and length > end - at:
        return length, at, CUT
    return length, at, code


@leaf
def _block(data, at, end, room):
    """Read the begin of a block of items, at most `room`; returns how many there are, the position, and a code."""
    count, at, code = _long(data, at, end)
    if code == SOUND and count < 0:
        if count == np.int64(-0x8000000000000000):
            return count, at, BAD_COUNT
        count = -count
        _, at, code = _sized(data, at, end)
    if code == SOUND and count > room:
        code = BAD_COUNT
    return count, at, code


@inlined
def _scalar(program, node, data, at, end):
    """Read a value without parts; returns its number or where its bytes begin, their length, the position, a code."""
    kind, start = program.kind[node], at
    number, length, code = np.int64(0), np.int64(0), SOUND
    if kind in (STRING, BYTES):
        length, number, code = _sized(data, at, end)
        if code != SOUND:
            return number, length, number, code
        at = number + length
        if kind == STRING and not is_text(data, number, at):
            return number, length, start, BAD_TEXT
    elif kind in (LONG, INT, ENUM):
        number, at, code = _long(data, at, end)
        if code != SOUND:
            return number, length, at, code
        if kind == INT and (number > 2147483647 or number < -2147483648):
            return number, length, start, NOT_INT
        if kind == ENUM and (number < 0 or number >= program.size[node]):
            return number, length, start, BAD_SYMBOL
    elif kind != NULL:
        length = np.int64(1) if kind == BOOLEAN else np.int64(4) if kind == FLOAT else np.int64(8)
        if kind == FIXED:
            length = program.size[node]
        if length > end - at:
            return number, length, end, CUT
        number, at = start, start + length
        if kind == BOOLEAN:
            number = np.int64(data[start])
            if number > 1:
                return number, length, start, NOT_BOOLEAN
    return number, length, at, code


@leaf
def _next(program, data, at, end, room, depth, stack):
    """Go on with what is being read, up to its next part.

    Returns:
        The node of the part, the position, what is left of `room`, the depth, and a code. At depth 0 nothing is left.
    """
    nodes, left, following = stack[0], stack[1], stack[2]
    while depth > 0:
        top = depth - 1
        kind = program.kind[nodes[top]]
        if left[top] == 0 and kind != RECORD:
            left[top], at, code = _block(data, at, end, room)
            if code != SOUND:
                return np.int64(0), at, room, depth, code
            room -= left[top]
        if left[top] == 0:
            depth -= 1
            continue
        left[top] -= 1
        part = following[top]
        if kind == RECORD:
            following[top] += 1
        elif kind == MAP:
            length, start, code = _sized(data, at, end)
            if code != SOUND:
                return np.int64(0), start, room, depth, code
            if not is_text(data, start, start + length):
                return np.int64(0), at, room, depth, BAD_TEXT
            at = start + length
        return program.parts[part], at, room, depth, SOUND
    return np.int64(0), at, room, depth, SOUND


@leaf
def _walk(program, data, begin, end, row, leaves, values, lengths, stack):
    """Read one value; returns a code, and where it ends or is broken.

    Args:
        program: of its schema.
        data: uint8, the bytes of all messages.
        begin: where the value begins.
        end: where its message ends.
        row: of the value in what follows.
        leaves: int64 `(slots, rows)`, the node whose value a slot has.
        values: int64 `(slots, rows)`, a number, or where bytes begin.
        lengths: int64 `(slots, rows)`, how many bytes there are.
        stack: int64 `(3, DEEPEST)`, for nodes, what is left of each, and where the next part is named.
    """
    # An item that is not empty has a byte of its own, also among items of items.
    depth, at, room = 0, begin, MOST_EMPTY_ITEMS + end - begin
    node = np.int64(program.kind.shape[0] - 1)
    while True:
        kind, slot = program.kind[node], program.slot[node]
        number, length = np.int64(0), np.int64(0)
        if kind == UNION:
            start = at
            number, at, code = _long(data, at, end)
            if code != SOUND:
                return code, at
            if number < 0 or number >= program.size[node]:
                return BAD_BRANCH, start
            node = program.parts[program.first[node] + number]
            continue
        if kind in (RECORD, ARRAY, MAP):
            if depth == DEEPEST:
                return DEEP, at
            stack[0, depth], stack[2, depth] = node, program.first[node]
            # The first block of items is read when the first item is.
            stack[1, depth] = program.size[node] if kind == RECORD else 0
            depth += 1
            number = at  # Where the items of an array begin.
        else:
            number, length, at, code = _scalar(program, node, data, at, end)
            if code != SOUND:
                return code, at
        if slot != NO_SLOT and kind != NULL:
            leaves[slot, row], values[slot, row], lengths[slot, row] = node, number, length
        node, at, room, depth, code = _next(program, data, at, end, room, depth, stack)
        if code != SOUND:
            return code, at
        if depth == 0:
            return SOUND, at


@leaf
def _scan(program, data, begin, end, leaves, values, lengths, faults, stack):
    for row in range(begin.shape[0]):
        code, at = _walk(program, data, begin[row], end[row], row, leaves, values, lengths, stack)
        if code == SOUND and at != end[row]:
            code = LEFT_OVER
        faults[row, 0], faults[row, 1] = code, at - begin[row]


@compiled
def scan(program, data, begin, end, leaves, values, lengths, faults, stack):
    """Read messages; those that are broken have whatever was found of them.

    Args:
        program: of their schema.
        data: uint8, the bytes of all messages.
        begin: int64 `(rows,)`, where each begins.
        end: int64 `(rows,)`, where each ends.
        leaves: int64 `(slots, rows)`, out: the node whose value a slot has; filled with `NO_LEAF`.
        values: int64 `(slots, rows)`, out: a number, or where its bytes begin; of an array where its items begin.
        lengths: int64 `(slots, rows)`, out: how many bytes there are.
        faults: int64 `(rows, 2)`, out: what is wrong, as a code, and after how many bytes.
        stack: int64 `(3, DEEPEST)`, to work with.
    """
    _scan(program, data, begin, end, leaves, values, lengths, faults, stack)


@leaf
def _scan_items(program, data, begin, is_counting, counts, leaves, values, lengths, stack):
    end, item = data.shape[0], 0
    for row in range(begin.shape[0]):
        at, counted = begin[row], np.int64(0)
        while True:
            # The message was read before, and is known to be sound.
            left, at, _ = _block(data, at, end, np.int64(0x7FFFFFFFFFFFFFFF))
            if left == 0:
                break
            for _ in range(left):
                _, at = _walk(program, data, at, end, item, leaves, values, lengths, stack)
                if not is_counting:
                    item += 1
            counted += left
        counts[row] = counted


@compiled
def scan_items(program, data, begin, is_counting, counts, leaves, values, lengths, stack):
    """Read the items of arrays of sound messages, or only count them, with one item to write on.

    Args:
        program: of the type of items.
        data: uint8, the bytes of all messages.
        begin: int64 `(rows,)`, where each array begins.
        is_counting: whether they are only counted.
        counts: int64 `(rows,)`, out: how many items each array has.
        leaves: int64 `(slots, items)`, out: the node whose value a slot has; filled with `NO_LEAF`.
        values: int64 `(slots, items)`, out: as in `scan`.
        lengths: int64 `(slots, items)`, out: as in `scan`.
        stack: int64 `(3, DEEPEST)`, to work with.
    """
    _scan_items(program, data, begin, is_counting, counts, leaves, values, lengths, stack)


@leaf
def _read_big_endian(data, at, lengths, words, fits):
    for row in range(at.shape[0]):
        length, begin = lengths[row], at[row]
        end = begin + length
        negative = length > 0 and data[begin] >= 128
        fill = np.uint64(0xFFFFFFFFFFFFFFFF) if negative else np.uint64(0)
        low, high = fill, fill
        wide = max(begin, end - 16)
        for byte in range(wide, end):
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[byte])
        fits[row] = True
        for byte in range(begin, wide):
            fits[row] = fits[row] and data[byte] == (255 if negative else 0)
        if wide > begin:
            fits[row] = fits[row] and (high >> np.uint64(63) == np.uint64(1)) == negative
        words[row, 0], words[row, 1] = np.int64(low), np.int64(high)


@compiled
def read_big_endian(data, at, lengths, words, fits):
    """Read whole numbers in two's complement, the highest byte first; one without bytes is 0.

    Args:
        data: uint8, the bytes.
        at: int64 `(rows,)`, where each begins.
        lengths: int64 `(rows,)`, how many bytes it has.
        words: int64 `(rows, 2)`, out: the low and the high half.
        fits: bool `(rows,)`, out: whether 128 bits are enough.
    """
    _read_big_endian(data, at, lengths, words, fits)
