"""Maps of a state that can go back to how they were: what is written notes what was there before."""

from dataclasses import dataclass, field, fields

import numpy as np

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.shard_store import DriverStores, Entries, InColumns, ShardStore

Journal = list[tuple[Entries, ByteStrings, ByteStrings]]  # Writes, oldest first: where, the keys, what was there before

_NOTE_BYTES = 300  # Of two arrays, beside what they hold


@dataclass
class Undoing:
    """Notes what the maps that it has made write."""

    journal: Journal = field(default_factory=list)  # since the last `cut`

    def store(self, store: ShardStore) -> ShardStore:
        """Return a store over another one, whose writes are noted."""
        return ShardStore(
            **{each.name: UndoableEntries(getattr(store, each.name), self) for each in fields(ShardStore)}
        )

    def stores(self, stores: DriverStores) -> DriverStores:
        """Return stores over others, whose writes are noted."""
        return DriverStores(**{each.name: self.store(getattr(stores, each.name)) for each in fields(DriverStores)})

    def cut(self) -> Journal:
        """Return what was noted since the last time."""
        noted, self.journal = self.journal, []
        return noted


def size_of(journal: Journal) -> int:
    """Return how many bytes it takes to remember writes, about."""
    return sum(_NOTE_BYTES + int(each.start[-1] - each.start[0]) for _, *pair in journal for each in pair)


def undo(journal: Journal) -> None:
    """Let maps be as they were before a stretch of writes, after which there must have been none."""
    for entries, keys, before in reversed(journal):
        was_there = before.lengths > 0
        there, gone = np.flatnonzero(was_there), np.flatnonzero(~was_there & (entries.read(keys).lengths > 0))
        if len(gone):
            entries.remove(keys.take(gone))
        if len(there):
            entries.write(keys.take(there), before.take(there))


class UndoableEntries(InColumns):
    """A map from bytes to bytes over another one."""

    def __init__(self, entries: Entries, undoing: Undoing) -> None:
        self._entries, self._undoing = entries, undoing

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty where there is none."""
        return self._entries.read(keys)

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Keep values."""
        self._note(keys)
        self._entries.write(keys, values)

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""
        self._note(keys)
        self._entries.remove(keys)

    def list_keys(self) -> list[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return [*self._entries.list_keys()]

    def _note(self, keys: ByteStrings) -> None:
        self._undoing.journal.append((self._entries, keys, self._entries.read(keys)))
