"""A map from bytes to bytes in an arena: the timelines of a job in memory."""

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.arena import PENDING, STORED, Arena
from buckets.engine.storage.shard_store import InColumns


class ArenaEntries(InColumns):
    """A map from bytes to bytes in an arena."""

    def __init__(self) -> None:
        """Begin empty."""
        self._arena = Arena()
        self._removed = 0

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty where there is none."""
        return self._arena.values_of(self._arena.find(keys))

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Keep values."""
        self._arena.put(keys, values, PENDING)
        self._arena.settle_changes()
        if self._arena.is_half_dead():
            self._arena.compact()

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""
        self._arena.put(keys, ByteStrings.empties(keys.size), STORED)
        self._removed += keys.size
        if 2 * self._removed > self._arena.size:
            # What was used neither in this epoch nor in the one before is left out.
            self._arena.begin_epoch()
            self._arena.begin_epoch()
            self._arena.compact()
            self._removed = 0

    def list_keys(self) -> list[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return self._arena.keys_of(self._arena.outside_store()).to_list()
