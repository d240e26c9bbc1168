"""Walks through messages of one type by its program: where the wanted values lie, and which messages are broken.

Source: Protocol Buffers' encoding, https://protobuf.dev/programming-guides/encoding/

A message is read from its first byte to its last, also what nobody wants: its messages inside must be whole, its texts
valid UTF-8, its packed lists lists of their type. A field that the schema does not know is passed over; one that is
wanted, or leads to one that is, and is written in another way than its type, makes the message broken.

The stack has the messages and groups that are being read, each with where it ends:

    [payment, to byte 60] [payment.customer, to byte 31] [address, to byte 29]
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import compiled, inlined, leaf, read_word
from buckets.events.protobuf.program import (
    BOOLEAN,
    BYTES,
    FIXED32,
    FIXED64,
    GROUP,
    INT64,
    MESSAGE,
    NO_SLOT,
    SFIXED32,
    SINT32,
    SINT64,
    TEXT,
    UINT32,
    UNKNOWN,
)
from buckets.events.utf8 import is_text
from buckets.events.varint import CUT, SOUND, WIDE, varint, zigzag

DEEPEST: Final = 100
"""Levels of nesting that are read, as the vendor's decoder does."""
VARINT: Final = 0
EIGHT_BYTES: Final = 1
SIZED: Final = 2
GROUP_BEGIN: Final = 3
GROUP_END: Final = 4
FOUR_BYTES: Final = 5
BAD_TAG: Final = 3
BAD_LENGTH: Final = 4
BAD_TEXT: Final = 5
BAD_GROUP: Final = 6
DEEP: Final = 7
OTHER_TYPE: Final = 8
BAD_LIST: Final = 9
FAULTS: Final = {
    CUT: "ends in the middle of a value",
    WIDE: "a number has more than 64 bits",
    BAD_TAG: "a field has no number, or no type that there is",
    BAD_LENGTH: "a length reaches beyond its message",
    BAD_TEXT: "a text is not valid UTF-8",
    BAD_GROUP: "a group ends that has not begun",
    DEEP: f"is nested deeper than {DEEPEST} levels",
    OTHER_TYPE: "a field is written in another type than the schema says",
    BAD_LIST: "a packed list does not end with a value",
}
"""By code, what is wrong with a message."""
Int64s = npt.NDArray[np.int64]


class Items(NamedTuple):
    """The items of lists that are asked for.

    Attributes:
        wanted: int64 `(slots, rows)`, how many of a list; without slots for none of any.
        start: int64 `(slots, rows)`, where these begin in what follows.
        values: int64 `(items,)`, out: a number, or where bytes begin.
        lengths: int64 `(items,)`, out: how many bytes there are.
    """

    wanted: Int64s
    start: Int64s
    values: Int64s
    lengths: Int64s


NO_ITEMS: Final = Items(*np.zeros((2, 0, 0), np.int64), *np.zeros((2, 0), np.int64))
"""Asks for no item of any list."""


@leaf
def _wire_type(kind):
    """Return how a value of a kind is written."""
    if kind in (TEXT, BYTES, MESSAGE):
        return SIZED
    if kind == GROUP:
        return GROUP_BEGIN
    if kind == FIXED64:
        return EIGHT_BYTES
    if kind in (FIXED32, SFIXED32):
        return FOUR_BYTES
    return VARINT


@inlined
def _as_kind(bits, kind):
    """Return the number that bits of a varint mean: numbers of 32 bits are the lower half of them."""
    if kind == INT64:
        return np.int64(bits)
    if kind == BOOLEAN:
        return np.int64(bits != np.uint64(0))
    if kind == SINT64:
        return zigzag(bits)
    low = bits & np.uint64(0xFFFFFFFF)
    if kind == UINT32:
        return np.int64(low)
    if kind == SINT32:
        return zigzag(low)
    return np.int64(np.int32(np.uint32(low)))


@inlined
def _little_endian(data, at, kind):
    """Return a number of four or eight bytes; of floating point the bits."""
    if kind == FIXED64:
        return np.int64(read_word(data, at))
    number = np.int64(0)
    for byte in range(3, -1, -1):
        number = number << np.int64(8) | np.int64(data[at + byte])
    if kind == SFIXED32 and number > 0x7FFFFFFF:
        number -= np.int64(0x100000000)
    return number


@leaf
def _is_packed(data, at, end, kind):
    """Return whether bytes are values of a kind, one after the other."""
    wire_type = _wire_type(kind)
    if wire_type == FOUR_BYTES:
        return (end - at) % 4 == 0
    if wire_type == EIGHT_BYTES:
        return (end - at) % 8 == 0
    while at < end:
        _, at, code = varint(data, at, end)
        if code != SOUND:
            return False
    return True


@inlined
def _place(program, node, number, hint):
    """Return the place of a field of a message in the program; -1 for one that it does not know."""
    first, end = program.first[node], program.first[node + 1]
    # Fields come in the order of their numbers, those of lists again and again.
    if first <= hint < end and program.number[hint] == number:
        return hint
    if first < hint <= end and program.number[hint - 1] == number:
        return hint - 1
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if program.number[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < end and program.number[low] == number else np.int64(-1)


@inlined
def _kind_of(program, place, wire_type):
    """Return as what a value is read, whether its field has it, and whether it is a packed list of the field."""
    if place < 0:
        return np.int64(UNKNOWN), False, False
    kind = program.kind[place]
    if _wire_type(kind) == wire_type:
        return kind, True, False
    is_list = program.repeated[place] != 0 and wire_type == SIZED and kind not in (TEXT, BYTES, MESSAGE, GROUP)
    return (kind if is_list else np.int64(UNKNOWN)), False, is_list


@inlined
def _sized(data, at, end, kind, is_list):
    """Read a length and go over its bytes, but not over those of a message; returns as `_value`."""
    start = at
    size, at, code = varint(data, at, end)
    if code != SOUND:
        return np.int64(0), np.int64(0), at, code
    if size > np.uint64(end - at):
        return np.int64(0), np.int64(0), start, BAD_LENGTH
    length = np.int64(size)
    if kind == TEXT and not is_text(data, at, at + length):
        return np.int64(0), length, start, BAD_TEXT
    if is_list and not _is_packed(data, at, at + length, kind):
        return np.int64(0), length, start, BAD_LIST
    return np.int64(at), length, at if kind == MESSAGE else at + length, SOUND


@inlined
def _value(data, at, end, wire_type, kind, is_list):
    """Read a value; returns its number or where its bytes begin, their length, the position, and a code."""
    if wire_type == VARINT:
        bits, at, code = varint(data, at, end)
        return _as_kind(bits, kind), np.int64(0), at, code
    if wire_type == SIZED:
        return _sized(data, at, end, kind, is_list)
    if wire_type == GROUP_BEGIN:
        return np.int64(0), np.int64(0), at, SOUND
    width = 8 if wire_type == EIGHT_BYTES else 4
    if width > end - at:
        return np.int64(0), np.int64(0), end, CUT
    return _little_endian(data, at, kind), np.int64(0), at + width, SOUND


@inlined
def _put(program, place, row, value, length, there, values, lengths, items):
    """Put a value down, and take out what other fields of its oneof have left, since this one comes later.

    Of a list its length is put down, and the value with the items of it that are asked for.
    """
    for at in range(program.clears[place, 0], program.clears[place, 1]):
        slot = program.cleared[at]
        there[slot, row], values[slot, row], lengths[slot, row] = False, 0, 0
    slot = program.slot[place]
    if slot != NO_SLOT:
        if program.repeated[place] != 0:
            count = values[slot, row]
            if items.wanted.shape[0] > 0 and count < items.wanted[slot, row]:
                at = items.start[slot, row] + count
                items.values[at], items.lengths[at] = value, length
            value, length = count + 1, np.int64(0)
        there[slot, row], values[slot, row], lengths[slot, row] = True, value, length


@leaf
def _put_packed(program, place, row, data, at, end, there, values, lengths, items):
    """Put down the values of a packed list, which is known to be one."""
    kind = program.kind[place]
    while at < end:
        value, length, at, _ = _value(data, at, end, _wire_type(kind), kind, False)
        _put(program, place, row, value, length, there, values, lengths, items)


@inlined
def _tag(data, at, end):
    """Read the number of a field and how it is written; returns these, the position, and a code."""
    start = at
    tag, at, code = varint(data, at, end)
    number, wire_type = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
    if code != SOUND:
        return number, wire_type, at, code
    if tag > np.uint64(0xFFFFFFFF) or at - start > 5 or number == 0 or wire_type > FOUR_BYTES:
        return number, wire_type, start, BAD_TAG
    return number, wire_type, at, SOUND


@leaf
def _walk(program, data, begin, end, row, there, values, lengths, items, stack):
    """Read one message; returns a code, and where it is broken.

    Args:
        program: of its type.
        data: uint8, the bytes of all messages.
        begin: where the message begins.
        end: where it ends.
        row: of the message in what follows.
        there: bool `(slots, rows)`, whether a slot has a value.
        values: int64 `(slots, rows)`, a number, where bytes begin, or how long a list is.
        lengths: int64 `(slots, rows)`, how many bytes there are.
        items: the items of lists that are asked for.
        stack: int64 `(3, DEEPEST)`, for nodes, where each ends, and the number of a group.
    """
    nodes, ends, groups = stack[0], stack[1], stack[2]
    nodes[0], ends[0], groups[0] = program.first.shape[0] - 2, end, 0
    depth, at, hint = 0, begin, np.int64(-1)
    while True:
        last = ends[depth]
        if at == last:
            if groups[depth] != 0:
                return CUT, at
            if depth == 0:
                return SOUND, at
            depth -= 1
            continue
        tag_at = at
        number, wire_type, at, code = _tag(data, at, last)
        if code != SOUND:
            return code, at
        if wire_type == GROUP_END:
            if groups[depth] != number:
                return BAD_GROUP, tag_at
            depth -= 1
            continue
        place = _place(program, nodes[depth], number, hint)
        hint = place + 1
        kind, is_known, is_list = _kind_of(program, place, wire_type)
        if place >= 0 and not is_known and not is_list and program.strict[place] != 0:
            return OTHER_TYPE, tag_at
        value, length, at, code = _value(data, at, last, wire_type, kind, is_list)
        if code != SOUND:
            return CUT if code == BAD_LENGTH and depth == 0 else code, at
        if is_known:
            _put(program, place, row, value, length, there, values, lengths, items)
        elif is_list and program.slot[place] != NO_SLOT:
            _put_packed(program, place, row, data, value, value + length, there, values, lengths, items)
        if wire_type == GROUP_BEGIN or kind == MESSAGE:
            if depth == DEEPEST - 1:
                return DEEP, tag_at
            depth += 1
            nodes[depth] = program.child[place] if is_known else 0
            ends[depth] = last if wire_type == GROUP_BEGIN else at + length
            groups[depth] = number if wire_type == GROUP_BEGIN else 0


@leaf
def _scan(program, data, begin, end, there, values, lengths, items, faults, stack):
    for row in range(begin.shape[0]):
        code, at = _walk(program, data, begin[row], end[row], row, there, values, lengths, items, stack)
        faults[row, 0], faults[row, 1] = code, at - begin[row]


@compiled
def scan(program, data, begin, end, there, values, lengths, items, faults, stack):
    """Read messages; those that are broken have whatever was found of them.

    Args:
        program: of their type.
        data: uint8, the bytes of all messages.
        begin: int64 `(rows,)`, where each begins.
        end: int64 `(rows,)`, where each ends.
        there: bool `(slots, rows)`, out: whether a slot has a value; filled with False.
        values: int64 `(slots, rows)`, out: a number, where its bytes begin, or how long a list is; filled with 0.
        lengths: int64 `(slots, rows)`, out: how many bytes there are; filled with 0.
        items: the items of lists that are asked for.
        faults: int64 `(rows, 2)`, out: what is wrong, as a code, and after how many bytes.
        stack: int64 `(3, DEEPEST)`, to work with.
    """
    _scan(program, data, begin, end, there, values, lengths, items, faults, stack)


@leaf
def _read_indexes(data, begin, end, keys, begins):
    for row in range(begin.shape[0]):
        keys[row], at = -1, begin[row]
        bits, at, code = varint(data, at, end[row])
        left = np.int64(bits >> np.uint64(1))
        if code != SOUND or bits & np.uint64(1) != np.uint64(0) or left > 7:
            continue
        while left > 0 and code == SOUND:
            _, at, code = varint(data, at, end[row])
            left -= 1
        length = at - begin[row]
        if code != SOUND or length > 7:
            continue
        key = length
        for byte in range(begin[row], at):
            key = key << np.int64(8) | np.int64(data[byte])
        keys[row], begins[row] = key, at


@compiled
def read_indexes(data, begin, end, keys, begins):
    """Read the indexes that say which message of a schema follows, which lie between the prefix and the message.

    Args:
        data: uint8, the bytes of all messages.
        begin: int64 `(rows,)`, where the indexes begin.
        end: int64 `(rows,)`, where each message ends.
        keys: int64 `(rows,)`, out: a number for each way that they are written; -1 for none that can be read.
        begins: int64 `(rows,)`, out: where the message begins behind them.
    """
    _read_indexes(data, begin, end, keys, begins)
