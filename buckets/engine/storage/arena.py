"""Keys and values of a shard in one growing buffer, and an open-addressing table of numbers that finds them.

A dictionary would need a Python object for every key and value, which costs more than all that is computed for an
event, and more memory than what they hold.

An entry is a row of numbers: its hash, where its key lies with its value behind it, how long they are and how much room
they have, where it counts (`place`), and when it was used last. Hashes are seeded: nobody outside chooses keys that
collide. An entry that has grown beyond its room is appended; when half of the buffer is dead, what lives moves together
in place. All of it are flat arrays in a memory that is handed in, and a few numbers, with which an arena is resumed.
"""

import secrets
from dataclasses import dataclass
from typing import Final

import numpy as np

from buckets.arrays import Int32s, Int64s
from buckets.byte_strings import ByteStrings, fixed, same_bytes
from buckets.compiled import compiled, copy_bytes, inlined, read_word
from buckets.engine.storage.key import ArenaMemory, MemoryPart, PrivateMemory

HASH, AT, KEY_BYTES, VALUE_BYTES, ROOM, PLACE, USED = range(7)
"""The columns of an entry. With one that is empty a row never lies in two lines of the processor's cache."""
STORED: Final = -1  # The place of an entry that is as the store has it
PENDING: Final = -2  # The place of an entry that the running batch has changed
ABSENT: Final = -1
_COUNT, _END, _DEAD, _USED_BYTES, _CHANGED, _LOGGED_BYTES = range(6)
"""The counters: entries, bytes in the buffer, those of them that nothing points at, bytes of what was used since the
epoch began, entries that the running batch has changed, and bytes of entries that are not as the store has them."""
ENTRY_BYTES: Final = 68
"""What an entry takes besides its bytes: its row of 32, up to four places of 4 in the table, what is rounded up, and 4
in the list of its segment."""
_FEWEST, _FEWEST_BYTES, _UNIT = 64, 1 << 12, 16  # An entry lies at a multiple of `_UNIT` bytes, in which `AT` counts
_FNV_PRIME, _MIXER, _HALF = np.uint64(0x100000001B3), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)
_31_BITS = np.uint64(0x7FFFFFFF)
ENTRIES, TABLE = MemoryPart("entries", np.int32, 8), MemoryPart("table", np.int32)
BUFFER = MemoryPart("buffer", np.uint8)


@dataclass(frozen=True)
class ArenaNumbers:
    """What an arena is besides its arrays."""

    counters: tuple[int, ...]  # its counters
    table_rows: int  # how large its table is
    seed: int  # of its hashes
    epoch: int  # the running one


class Arena:
    """The entries of a shard that are known.

    Attributes:
        entries: int32 `(capacity, 8)`, a row for each entry.
        epoch: entries with `STORED` that were used neither in this epoch nor in the one before are forgotten.
    """

    def __init__(self, memory: ArenaMemory | None = None, numbers: ArenaNumbers | None = None) -> None:
        """Begin empty, or go on with what lies in a memory; without one in this process."""
        self._memory = memory or PrivateMemory()
        begun = numbers or ArenaNumbers((0,) * 6, 2 * _FEWEST, secrets.randbits(63), 1)
        self.epoch, self._seed = begun.epoch, np.uint64(begun.seed)
        self._counters = np.array(begun.counters, np.int64)
        count, end = int(self._counters[_COUNT]), int(self._counters[_END])
        self.entries: Int32s = self._memory.grow(ENTRIES, count, max(count, _FEWEST))
        self._buffer = self._memory.grow(BUFFER, end, max(end, _FEWEST_BYTES))
        self._table = self._memory.grow(TABLE, begun.table_rows, begun.table_rows)[: begun.table_rows]
        self._changed = np.empty(0, np.int32)
        if numbers is None:
            self._table.fill(ABSENT)

    def numbers(self) -> ArenaNumbers:
        """Return what it is besides its arrays."""
        return ArenaNumbers(tuple(self._counters.tolist()), len(self._table), int(self._seed), self.epoch)

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
        return self._strings(entries, KEY_BYTES)

    def values_of(self, entries: Int64s) -> ByteStrings:
        """Return the values of entries; empty where one is ABSENT."""
        return self._strings(entries, VALUE_BYTES)

    def _strings(self, entries: Int64s, size: int) -> ByteStrings:
        """Copy byte strings out of the buffer; `size` is the column that says how long they are."""
        start = np.zeros(len(entries) + 1, np.int64)
        _add_up(self.entries, entries, size, start)
        data = np.empty(start[-1], np.uint8)
        _gather(self.entries, self._buffer, entries, size, start, data)
        return fixed(data, start)

    def outside_store(self) -> Int64s:
        """Return the entries that are not as the store has them."""
        return np.flatnonzero(self._rows[:, PLACE] != STORED)

    @property
    def changed(self) -> Int64s:
        """The entries that the running batch has changed, in the order in which it first did."""
        return self._changed[: self._counters[_CHANGED]].astype(np.int64)

    # --- changing ---------------------------------------------------------------------------------------------

    def put(self, keys: ByteStrings, values: ByteStrings, place: int) -> Int64s:
        """Let keys have values, and return their entries."""
        size_bytes = int(keys.start[-1] - keys.start[0] + values.start[-1] - values.start[0])
        self.reserve(keys.size, size_bytes)
        if place == PENDING:
            self._reserve_changes(keys.size)
        found = np.empty(keys.size, np.int64)
        _put(
            self._table, self.entries, self._buffer, self._counters, self._changed, *keys, *values,
            self._seed, self.epoch, place, found,
        )  # fmt: skip
        return found

    def settle_changes(self) -> None:
        """Let the running batch have changed nothing."""
        self._counters[_CHANGED], self._changed = 0, np.empty(0, np.int32)

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

    def compact(self) -> Int32s:
        """Move what is not forgotten together, in place: no second arena is needed.

        Returns:
            By entry, which one it is from now on; ABSENT where it is gone.
        """
        rows = self._rows
        lives = (rows[:, PLACE] != STORED) | (rows[:, USED] >= self.epoch - 1)
        moved = np.where(lives, np.cumsum(lives, dtype=np.int32) - np.int32(1), np.int32(ABSENT))
        _move_rows(self.entries, moved)
        count = int(lives.sum())
        _move_together(self.entries, self._buffer, np.argsort(self.entries[:count, AT]), self._counters)
        self.entries = self._memory.fit(ENTRIES, max(count, _FEWEST))
        self._buffer = self._memory.fit(BUFFER, max(int(self._counters[_END]), _FEWEST_BYTES))
        rows_needed = _table_rows(max(count, _FEWEST))
        self._table = self._memory.fit(TABLE, rows_needed)[:rows_needed]
        _fill_table(self._table, self.entries, count)
        return moved

    @property
    def _rows(self) -> Int32s:
        return self.entries[: self._counters[_COUNT]]

    def reserve(self, entries: int, size_bytes: int) -> None:
        """Make room for more entries, and for their bytes."""
        used, end = int(self._counters[_COUNT]), int(self._counters[_END])
        count, new_end = used + entries, end + size_bytes + _UNIT * entries
        if count > len(self.entries):
            self.entries = self._memory.grow(ENTRIES, used, count)
        if new_end > len(self._buffer):
            self._buffer = self._memory.grow(BUFFER, end, new_end)
        if 2 * count > len(self._table):
            rows_needed = _table_rows(count)
            self._table = self._memory.grow(TABLE, 0, rows_needed)[:rows_needed]
            _fill_table(self._table, self.entries, used)

    def _reserve_changes(self, entries: int) -> None:
        changed = int(self._counters[_CHANGED])
        if changed + entries > len(self._changed):
            larger = np.empty(max(changed + entries, len(self._changed) * 3 // 2), np.int32)
            larger[:changed] = self._changed[:changed]
            self._changed = larger


def _table_rows(entries: int) -> int:
    """Return how large the table of so many entries is: a power of two, of which at most half is taken."""
    return 1 << (2 * entries - 1).bit_length()


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
    return np.int32(mixed & _31_BITS)


@inlined
def _entry_of(table, entries, buffer, key_hash, data, start, end):
    """Return the entry of a key, or the complement of the slot in the table where it would be."""
    mask = table.shape[0] - 1
    slot = key_hash & mask
    while table[slot] != ABSENT:
        entry = table[slot]
        is_like = entries[entry, HASH] == key_hash and entries[entry, KEY_BYTES] == end - start
        if is_like and same_bytes(buffer, np.int64(entries[entry, AT]) * _UNIT, data, start, end - start):
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
def _gather(entries, buffer, chosen, size, start, data):
    """Copy byte strings of entries to `start` in `data`."""
    for index in range(chosen.shape[0]):
        entry = chosen[index]
        at = np.int64(entries[entry, AT]) * _UNIT
        if size == VALUE_BYTES:
            at += entries[entry, KEY_BYTES]
        copy_bytes(data, start[index], buffer, at, start[index + 1] - start[index])


@compiled
def _put(table, entries, buffer, counters, changed, data, start, values, value_start, seed, epoch, place, found):
    """Let keys have values."""
    for key in range(found.shape[0]):
        key_bytes, length = start[key + 1] - start[key], value_start[key + 1] - value_start[key]
        key_hash = _hash_of(data, start[key], start[key + 1], seed)
        entry = _entry_of(table, entries, buffer, key_hash, data, start[key], start[key + 1])
        if entry < 0:
            slot, entry = ~entry, counters[_COUNT]
            counters[_COUNT] += 1
            table[slot] = entry
            entries[entry, HASH] = key_hash
            entries[entry, KEY_BYTES] = key_bytes
            entries[entry, AT] = 0
            entries[entry, ROOM] = 0
            entries[entry, VALUE_BYTES] = 0
            entries[entry, PLACE] = STORED
        if key_bytes + length > entries[entry, ROOM]:
            room = (key_bytes + length + _UNIT - 1) // _UNIT * _UNIT
            copy_bytes(buffer, counters[_END], data, start[key], key_bytes)
            counters[_DEAD] += entries[entry, ROOM]
            entries[entry, AT] = counters[_END] // _UNIT
            entries[entry, ROOM] = room
            counters[_END] += room
        copy_bytes(buffer, np.int64(entries[entry, AT]) * _UNIT + key_bytes, values, value_start[key], length)
        if entries[entry, PLACE] != STORED:
            counters[_LOGGED_BYTES] -= key_bytes + entries[entry, VALUE_BYTES] + ENTRY_BYTES
        if place != STORED:
            counters[_LOGGED_BYTES] += key_bytes + length + ENTRY_BYTES
        entries[entry, VALUE_BYTES] = length
        if place == PENDING and entries[entry, PLACE] != PENDING:
            changed[counters[_CHANGED]] = entry
            counters[_CHANGED] += 1
        entries[entry, PLACE] = place
        entries[entry, USED] = epoch
        if place == STORED:
            counters[_USED_BYTES] += key_bytes + length + ENTRY_BYTES
        found[key] = entry


@compiled
def _move_rows(entries, moved):
    """Move rows to where they are from now on, which is never behind where they were."""
    for entry in range(moved.shape[0]):
        if moved[entry] != ABSENT:
            for column in range(entries.shape[1]):
                entries[moved[entry], column] = entries[entry, column]


@compiled
def _move_together(entries, buffer, order, counters):
    """Move the bytes of entries to the beginning of the buffer, in the order in which they lie, without gaps."""
    end = 0
    for index in range(order.shape[0]):
        entry = order[index]
        at, size = np.int64(entries[entry, AT]) * _UNIT, entries[entry, KEY_BYTES] + entries[entry, VALUE_BYTES]
        if end + size <= at:
            copy_bytes(buffer, end, buffer, at, size)
        elif end < at:
            for byte in range(size):
                buffer[end + byte] = buffer[at + byte]
        entries[entry, AT] = end // _UNIT
        end += entries[entry, ROOM]
    counters[_COUNT], counters[_END], counters[_DEAD] = order.shape[0], end, 0


@compiled
def _fill_table(table, entries, count):
    """Empty a table, and enter entries into it."""
    for slot in range(table.shape[0]):
        table[slot] = ABSENT
    mask = table.shape[0] - 1
    for entry in range(count):
        slot = entries[entry, HASH] & mask
        while table[slot] != ABSENT:
            slot = (slot + 1) & mask
        table[slot] = entry
