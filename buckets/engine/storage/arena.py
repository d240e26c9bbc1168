"""Keys and values of a shard in one growing buffer, and an open-addressing table of numbers that finds them.

A dictionary would need a Python object for every key and value, which costs more time than scoring an event, and more
memory than their content.

An entry is a row of numbers: its hash, the position of its key, which its value follows, their lengths and room, its
`place` (in the store, changed, or the number of a log segment), and the epoch of its last use. Hashes are seeded, so
nobody outside can choose colliding keys. An entry that outgrows its room is appended; when half of the buffer is dead,
live entries are compacted in place. An arena is flat arrays in a given memory, and resumes from them and a few numbers.
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
    """The state of an arena besides its arrays."""

    counters: tuple[int, ...]  # its counters
    table_rows: int  # the size of its table
    seed: int  # of its hashes
    epoch: int  # the current one


class Arena:
    """The entries of a shard that are held in memory.

    Attributes:
        entries: int32 `(capacity, 8)`, a row for each entry.
        epoch: entries with `STORED` that were used neither in this epoch nor in the one before are forgotten.
    """

    def __init__(self, memory: ArenaMemory | None = None, numbers: ArenaNumbers | None = None) -> None:
        """Begin empty, or resume the arena in `memory` with its `numbers`; by default, use memory of this process."""
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
        """Return its state besides its arrays."""
        return ArenaNumbers(tuple(self._counters.tolist()), len(self._table), int(self._seed), self.epoch)

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of entries, including forgotten ones that are not compacted away yet."""
        return int(self._counters[_COUNT])

    @property
    def used_bytes(self) -> int:
        """The bytes of entries with `STORED` that were used since the epoch began."""
        return int(self._counters[_USED_BYTES])

    @property
    def logged_bytes(self) -> int:
        """The bytes of entries that differ from the store."""
        return int(self._counters[_LOGGED_BYTES])

    def find(self, keys: ByteStrings) -> Int64s:
        """Return the entry of each key, int64 `(keys,)`; ABSENT for an unknown key."""
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
        """Copy byte strings out of the buffer; `size` is the column with their lengths."""
        start = np.zeros(len(entries) + 1, np.int64)
        _add_up(self.entries, entries, size, start)
        data = np.empty(start[-1], np.uint8)
        _gather(self.entries, self._buffer, entries, size, start, data)
        return fixed(data, start)

    def outside_store(self) -> Int64s:
        """Return the entries that differ from the store."""
        return np.flatnonzero(self._rows[:, PLACE] != STORED)

    @property
    def changed(self) -> Int64s:
        """The entries that the running batch has changed, in the order of their first change."""
        return self._changed[: self._counters[_CHANGED]].astype(np.int64)

    # --- changing ---------------------------------------------------------------------------------------------

    def put(self, keys: ByteStrings, values: ByteStrings, place: int) -> Int64s:
        """Set the values of keys, and return their entries."""
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
        """Forget which entries the running batch has changed."""
        self._counters[_CHANGED], self._changed = 0, np.empty(0, np.int32)

    def settle(self, entries: Int64s) -> None:
        """Mark entries that differed from the store as `STORED`, and as just used."""
        size_bytes = self.entries[entries][:, [KEY_BYTES, VALUE_BYTES]].sum() + ENTRY_BYTES * len(entries)
        self.entries[entries, PLACE], self.entries[entries, USED] = STORED, self.epoch
        self._counters[_USED_BYTES] += size_bytes
        self._counters[_LOGGED_BYTES] -= size_bytes

    def begin_epoch(self) -> bool:
        """Begin an epoch, and return whether this lets go of entries."""
        forgets = bool(((self._rows[:, PLACE] == STORED) & (self._rows[:, USED] < self.epoch)).any())
        self.epoch += 1
        self._counters[_USED_BYTES] = 0
        return forgets

    def is_half_dead(self) -> bool:
        """Return whether half of the buffer is dead."""
        return bool(2 * self._counters[_DEAD] > self._counters[_END] > _FEWEST_BYTES)

    def compact(self) -> Int32s:
        """Compact the entries that are not forgotten in place, without a second arena.

        Returns:
            The new index of each entry; ABSENT for one that is gone.
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
        """Reserve room for more entries and their bytes."""
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
    """Return the table size for this many entries: a power of two, at most half full."""
    return 1 << (2 * entries - 1).bit_length()


@inlined
def _hash_of(data, start, end, seed):
    """Hash bytes with a seed: word by word, then the rest byte by byte as FNV-1a, with a final mix."""
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
    """Return the entry of a key, or the complement of the free slot of the table for it."""
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
    """Find the entries of keys; this marks entries with `STORED` as used."""
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
    """Add up the lengths of entries' byte strings to offsets; an ABSENT entry has length 0."""
    for index in range(chosen.shape[0]):
        entry = chosen[index]
        start[index + 1] = start[index] + (0 if entry == ABSENT else entries[entry, size])


@compiled
def _gather(entries, buffer, chosen, size, start, data):
    """Copy byte strings of entries to offsets `start` of `data`."""
    for index in range(chosen.shape[0]):
        entry = chosen[index]
        at = np.int64(entries[entry, AT]) * _UNIT
        if size == VALUE_BYTES:
            at += entries[entry, KEY_BYTES]
        copy_bytes(data, start[index], buffer, at, start[index + 1] - start[index])


@compiled
def _put(table, entries, buffer, counters, changed, data, start, values, value_start, seed, epoch, place, found):
    """Set the values of keys."""
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
    """Move rows to their new indices, none of which is greater than the old one."""
    for entry in range(moved.shape[0]):
        if moved[entry] != ABSENT:
            for column in range(entries.shape[1]):
                entries[moved[entry], column] = entries[entry, column]


@compiled
def _move_together(entries, buffer, order, counters):
    """Move the bytes of entries, in buffer order, to the beginning of the buffer, without gaps."""
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
    """Clear a table, and insert entries into it."""
    for slot in range(table.shape[0]):
        table[slot] = ABSENT
    mask = table.shape[0] - 1
    for entry in range(count):
        slot = entries[entry, HASH] & mask
        while table[slot] != ABSENT:
            slot = (slot + 1) & mask
        table[slot] = entry
