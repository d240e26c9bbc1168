"""Keys and values of a shard in one growing buffer, and an open-addressing table of numbers that finds them.

A dictionary would need a Python object for every key and value, which costs more than all that is computed for an
event, and more memory than what they hold.

An entry is a row of numbers: its hash, where its key and its value lie and how long they are, how much room the value
has, where it counts (`place`), and when it was used last. Hashes are seeded: nobody outside chooses keys that collide.
A value that has grown beyond its room is appended; what nothing points at any more is left out when the arena is
copied, which is done when half of it is dead.
"""

import secrets
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings, fixed, same_bytes
from buckets.compiled import compiled, copy_bytes, inlined, read_word

HASH, KEY_AT, KEY_BYTES, VALUE_AT, VALUE_BYTES, ROOM, PLACE, USED = range(8)
"""The columns of an entry."""
STORED: Final = -1
"""The place of an entry that is as the store has it."""
PENDING: Final = -2
"""The place of an entry that the running batch has changed."""
ABSENT: Final = -1
_COUNT, _END, _DEAD, _USED_BYTES, _CHANGED, _LOGGED_BYTES = range(6)
"""The counters: entries, bytes in the buffer, those of them that nothing points at, bytes of what was used since the
epoch began, entries that the running batch has changed, and bytes of entries that are not as the store has them."""
ENTRY_BYTES: Final = 96
"""What an entry takes besides its bytes: its row of 64, up to four places of 4 in the table, and what is rounded up."""
_FEWEST, _FEWEST_BYTES, _ROUNDED = 64, 1 << 12, 16
_FNV_PRIME, _MIXER, _HALF = np.uint64(0x100000001B3), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)

Int64s = npt.NDArray[np.int64]


class Arena:
    """The entries of a shard that a worker knows.

    Attributes:
        entries: int64 `(capacity, 8)`, a row for each entry.
        epoch: entries with `STORED` that were used neither in this epoch nor in the one before are forgotten.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.entries = np.empty((_FEWEST, 8), np.int64)
        self.epoch = 1
        self._seed = np.uint64(secrets.randbits(63))
        self._table = np.full(2 * _FEWEST, ABSENT, np.int32)
        self._buffer = np.empty(_FEWEST_BYTES, np.uint8)
        self._counters = np.zeros(6, np.int64)
        self._changed = np.empty(_FEWEST, np.int64)

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many entries there are, with those that are forgotten and not yet left out."""
        return int(self._counters[_COUNT])

    @property
    def used_bytes(self) -> int:
        """How much memory the entries with `STORED` take that were used since the epoch began."""
        return int(self._counters[_USED_BYTES])

    @property
    def logged_bytes(self) -> int:
        """How much memory the entries take that are not as the store has them."""
        return int(self._counters[_LOGGED_BYTES])

    def find(self, keys: ByteStrings) -> Int64s:
        """Return the entry of each key, int64 `(keys,)`; ABSENT for one that is not known."""
        found = np.empty(keys.size, np.int64)
        _find(self._table, self.entries, self._buffer, self._counters, *keys, self._seed, self.epoch, found)
        return found

    def keys_of(self, entries: Int64s) -> ByteStrings:
        """Return the keys of entries."""
        return self._strings(entries, KEY_AT, KEY_BYTES)

    def values_of(self, entries: Int64s) -> ByteStrings:
        """Return the values of entries; empty where one is ABSENT."""
        return self._strings(entries, VALUE_AT, VALUE_BYTES)

    def _strings(self, entries: Int64s, at: int, size: int) -> ByteStrings:
        """Copy byte strings out of the buffer; `at` and `size` are the columns that say where they lie."""
        start = np.zeros(len(entries) + 1, np.int64)
        _add_up(self.entries, entries, size, start)
        data = np.empty(start[-1], np.uint8)
        _gather(self.entries, self._buffer, entries, at, start, data)
        return fixed(data, start)

    def outside_store(self) -> Int64s:
        """Return the entries that are not as the store has them."""
        return np.flatnonzero(self._rows[:, PLACE] != STORED)

    @property
    def changed(self) -> Int64s:
        """The entries that the running batch has changed, in the order in which it first did."""
        return self._changed[: self._counters[_CHANGED]]

    # --- changing ---------------------------------------------------------------------------------------------

    def put(self, keys: ByteStrings, values: ByteStrings, place: int) -> Int64s:
        """Let keys have values.

        Args:
            keys: the keys.
            values: of each.
            place: where they count from now on.

        Returns:
            Their entries.
        """
        self._reserve(keys.size, len(keys.data) + len(values.data) + _ROUNDED * keys.size)
        found = np.empty(keys.size, np.int64)
        _put(
            self._table, self.entries, self._buffer, self._counters, self._changed, *keys, *values,
            self._seed, self.epoch, place, found,
        )  # fmt: skip
        return found

    def settle_changes(self) -> None:
        """Let the running batch have changed nothing."""
        self._counters[_CHANGED] = 0

    def settle(self, entries: Int64s) -> None:
        """Let entries, which are not, be as the store has them, used just now."""
        size_bytes = self.entries[entries][:, [KEY_BYTES, VALUE_BYTES]].sum() + ENTRY_BYTES * len(entries)
        self.entries[entries, PLACE], self.entries[entries, USED] = STORED, self.epoch
        self._counters[_USED_BYTES] += size_bytes
        self._counters[_LOGGED_BYTES] -= size_bytes

    def begin_epoch(self) -> bool:
        """Begin an epoch, and return whether entries may be forgotten with that."""
        forgets = bool(((self._rows[:, PLACE] == STORED) & (self._rows[:, USED] < self.epoch)).any())
        self.epoch += 1
        self._counters[_USED_BYTES] = 0
        return forgets

    def is_half_dead(self) -> bool:
        """Return whether half of the buffer is dead."""
        return bool(2 * self._counters[_DEAD] > self._counters[_END] > _FEWEST_BYTES)

    def compact(self) -> Int64s:
        """Copy what is not forgotten into a buffer of its own.

        Returns:
            By entry, which one it is from now on; ABSENT where it is gone.
        """
        rows = self._rows
        lives = (rows[:, PLACE] != STORED) | (rows[:, USED] >= self.epoch - 1)
        moved = np.where(lives, np.cumsum(lives) - 1, ABSENT)
        old, self._buffer = self._buffer, np.empty(_FEWEST_BYTES, np.uint8)
        left = rows[lives]
        self.entries, self._counters[:3] = np.empty((max(_FEWEST, len(left)), 8), np.int64), 0
        self._table = np.full(2 * _FEWEST, ABSENT, np.int32)
        self._reserve(len(left), int(left[:, [KEY_BYTES, ROOM]].sum()))
        self.entries[: len(left)] = left
        _copy(old, self.entries, self._buffer, self._table, self._counters, len(left))
        return moved

    @property
    def _rows(self) -> Int64s:
        return self.entries[: self._counters[_COUNT]]

    def _reserve(self, entries: int, size_bytes: int) -> None:
        """Make room for more entries, and for their bytes."""
        count, end = int(self._counters[_COUNT]) + entries, int(self._counters[_END]) + size_bytes
        self.entries = _with_room(self.entries, int(self._counters[_COUNT]), count)
        self._buffer = _with_room(self._buffer, int(self._counters[_END]), end)
        self._changed = _with_room(self._changed, len(self.changed), len(self.changed) + entries)
        if 2 * count > len(self._table):
            self._table = np.full(1 << (2 * count - 1).bit_length(), ABSENT, np.int32)
            _fill_table(self._table, self.entries, self._counters[_COUNT])


def _with_room(array: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    """Return an array with room for so many rows, of which some are used; memory that is not is not taken either."""
    if needed <= len(array):
        return array
    larger = np.empty((max(needed, len(array) * 3 // 2), *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


@inlined
def _hash_of(data, start, end, seed):
    """Return a hash of bytes, word by word and then byte by byte as FNV-1a, over a seed; mixed at the end."""
    mixed, at = seed ^ np.uint64(0xCBF29CE484222325), start
    while at + 8 <= end:
        mixed = (mixed ^ read_word(data, at)) * _MIXER
        mixed ^= mixed >> _HALF
        at += 8
    while at < end:
        mixed = (mixed ^ np.uint64(data[at])) * _FNV_PRIME
        at += 1
    mixed ^= mixed >> _HALF
    mixed *= _MIXER
    mixed ^= mixed >> _HALF
    return np.int64(mixed)


@inlined
def _entry_of(table, entries, buffer, key_hash, data, start, end):
    """Return the entry of a key, or the complement of the slot in the table where it would be."""
    mask = table.shape[0] - 1
    slot = key_hash & mask
    while table[slot] != ABSENT:
        entry = table[slot]
        is_like = entries[entry, HASH] == key_hash and entries[entry, KEY_BYTES] == end - start
        if is_like and same_bytes(buffer, entries[entry, KEY_AT], data, start, end - start):
            return entry
        slot = (slot + 1) & mask
    return ~slot


@compiled
def _find(table, entries, buffer, counters, data, start, seed, epoch, found):
    """Find keys; what is as the store has it is used with that."""
    for key in range(found.shape[0]):
        key_hash = _hash_of(data, start[key], start[key + 1], seed)
        entry = _entry_of(table, entries, buffer, key_hash, data, start[key], start[key + 1])
        if entry < 0:
            entry = ABSENT
        elif entries[entry, PLACE] == STORED and entries[entry, USED] < epoch:
            if entries[entry, USED] < epoch - 1:
                entry = ABSENT
            else:
                entries[entry, USED] = epoch
                counters[_USED_BYTES] += entries[entry, KEY_BYTES] + entries[entry, VALUE_BYTES] + ENTRY_BYTES
        found[key] = entry


@compiled
def _add_up(entries, chosen, size, start):
    """Write where byte strings of entries begin one after the other; one that is ABSENT has none."""
    for index in range(chosen.shape[0]):
        entry = chosen[index]
        start[index + 1] = start[index] + (0 if entry == ABSENT else entries[entry, size])


@compiled
def _gather(entries, buffer, chosen, at, start, data):
    """Copy byte strings of entries to `start` in `data`."""
    for index in range(chosen.shape[0]):
        copy_bytes(data, start[index], buffer, entries[chosen[index], at], start[index + 1] - start[index])


@inlined
def _append(buffer, counters, data, begin, end, room):
    """Append bytes, and return where they lie."""
    at = counters[_END]
    counters[_END] += room
    copy_bytes(buffer, at, data, begin, end - begin)
    return at


@compiled
def _put(table, entries, buffer, counters, changed, data, start, values, value_start, seed, epoch, place, found):
    """Let keys have values."""
    for key in range(found.shape[0]):
        key_hash = _hash_of(data, start[key], start[key + 1], seed)
        entry = _entry_of(table, entries, buffer, key_hash, data, start[key], start[key + 1])
        length = value_start[key + 1] - value_start[key]
        if entry < 0:
            slot, entry = ~entry, counters[_COUNT]
            counters[_COUNT] += 1
            table[slot] = entry
            entries[entry, HASH] = key_hash
            entries[entry, KEY_BYTES] = start[key + 1] - start[key]
            entries[entry, KEY_AT] = _append(
                buffer, counters, data, start[key], start[key + 1], start[key + 1] - start[key]
            )
            entries[entry, ROOM] = 0
            entries[entry, VALUE_BYTES] = 0
            entries[entry, PLACE] = STORED
        if length > entries[entry, ROOM]:
            counters[_DEAD] += entries[entry, ROOM]
            entries[entry, ROOM] = (length + _ROUNDED - 1) // _ROUNDED * _ROUNDED
            entries[entry, VALUE_AT] = _append(
                buffer, counters, values, value_start[key], value_start[key + 1], entries[entry, ROOM]
            )
        else:
            copy_bytes(buffer, entries[entry, VALUE_AT], values, value_start[key], length)
        if entries[entry, PLACE] != STORED:
            counters[_LOGGED_BYTES] -= entries[entry, KEY_BYTES] + entries[entry, VALUE_BYTES] + ENTRY_BYTES
        if place != STORED:
            counters[_LOGGED_BYTES] += entries[entry, KEY_BYTES] + length + ENTRY_BYTES
        entries[entry, VALUE_BYTES] = length
        if place == PENDING and entries[entry, PLACE] != PENDING:
            changed[counters[_CHANGED]] = entry
            counters[_CHANGED] += 1
        entries[entry, PLACE] = place
        entries[entry, USED] = epoch
        if place == STORED:
            counters[_USED_BYTES] += entries[entry, KEY_BYTES] + length + ENTRY_BYTES
        found[key] = entry


@compiled
def _copy(old, entries, buffer, table, counters, count):
    """Copy the bytes of entries into another buffer, and enter them into an empty table."""
    for entry in range(count):
        key_at, key_bytes, room = entries[entry, KEY_AT], entries[entry, KEY_BYTES], entries[entry, ROOM]
        entries[entry, KEY_AT] = _append(buffer, counters, old, key_at, key_at + key_bytes, key_bytes)
        value_at, value_bytes = entries[entry, VALUE_AT], entries[entry, VALUE_BYTES]
        if room:
            entries[entry, VALUE_AT] = _append(buffer, counters, old, value_at, value_at + value_bytes, room)
    counters[_COUNT] = count
    _enter(table, entries, count)


@compiled
def _fill_table(table, entries, count):
    """Enter entries into an empty table."""
    _enter(table, entries, count)


@inlined
def _enter(table, entries, count):
    mask = table.shape[0] - 1
    for entry in range(count):
        slot = entries[entry, HASH] & mask
        while table[slot] != ABSENT:
            slot = (slot + 1) & mask
        table[slot] = entry
