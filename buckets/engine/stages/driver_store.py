"""State on the driver, as it is after each batch: what rules over alerts keep, and rules whose parts meet there.

A batch begins from the state after the batch before it, however often it is run. What it changes lies apart until the
batch is kept. The changes are written, and the state is read back, by somebody else (`StateFiles`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Protocol

from buckets.byte_strings import ByteStrings
from buckets.engine.stages.in_memory import MemoryEntries
from buckets.engine.storage.shard_store import DriverStores, InObjects, ShardStore

Values = Mapping[tuple[str, bytes], bytes]
"""By the names of a store and of a map in it, and a key."""
Changes = Mapping[tuple[str, bytes], bytes | None]
"""The same; None where an entry is gone."""
_STORES = [field.name for field in fields(DriverStores)]
_MAPS = [field.name for field in fields(ShardStore)]


class StateFiles(Protocol):
    """Where the state lies between batches."""

    def read(self, batch_id: int) -> Values:
        """Return the state after a batch."""

    def write(self, batch_id: int, changes: Changes, whole: Callable[[], Values]) -> None:
        """Write what a batch has changed, and forget what later ones had.

        Args:
            batch_id: the batch.
            changes: what it has changed.
            whole: gives the state after it.
        """


class ChangedEntries(InObjects):
    """A map from bytes to bytes over one in memory, which stays as it is.

    Attributes:
        before: the map in memory.
        changes: what is different; None where an entry is gone.
    """

    def __init__(self, before: MemoryEntries) -> None:
        """Begin without a difference."""
        self.before = before
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes where there is none."""
        changes, data = self.changes, self.before.data
        return [(changes[key] or b"") if key in changes else data.get(key, b"") for key in keys]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""
        self.changes.update(entries)

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""
        self.changes.update(dict.fromkeys(keys.to_list()))

    def list_keys(self) -> Iterator[bytes]:
        """Yield all keys, in no particular order. Cost: O(entries)."""
        yield from (key for key in self.before.data if key not in self.changes)
        yield from (key for key, value in self.changes.items() if value is not None)

    def settle(self) -> None:
        """Take the differences into the map in memory."""
        for key, value in self.changes.items():
            if value is None:
                self.before.data.pop(key, None)
            else:
                self.before.data[key] = value
        self.changes = {}


class DriverStore:
    """The state on the driver, batch by batch."""

    def __init__(self, files: StateFiles) -> None:
        """Read nothing yet.

        Args:
            files: where the state lies.
        """
        self._files = files
        self._maps: dict[str, ChangedEntries] = {}
        self._after: int | None = None

    def of_batch(self, batch_id: int) -> DriverStores:
        """Return the state after the batch before, for a batch to change; what was not kept before is forgotten."""
        if self._after is None or self._after >= batch_id:
            loaded = {f"{store}.{name}": MemoryEntries() for store in _STORES for name in _MAPS}
            for (name, key), value in self._files.read(batch_id - 1).items():
                loaded[name].data[key] = value
            self._maps = {name: ChangedEntries(entries) for name, entries in loaded.items()}
            self._after = batch_id - 1
        self._maps = {name: ChangedEntries(entries.before) for name, entries in self._maps.items()}
        stores = ({name: self._maps[f"{store}.{name}"] for name in _MAPS} for store in _STORES)
        return DriverStores(*(ShardStore(**maps) for maps in stores))

    def keep(self, batch_id: int) -> None:
        """Write what a batch has changed, and go on from there."""
        changes = {
            (name, key): value
            for name, entries in self._maps.items()
            for key, value in entries.changes.items()
            if value != entries.before.data.get(key)
        }
        self._files.write(batch_id, changes, lambda: self._whole(changes))
        for entries in self._maps.values():
            entries.settle()
        self._after = batch_id

    def _whole(self, changes: Changes) -> dict[tuple[str, bytes], bytes]:
        before = {(name, key): value for name, maps in self._maps.items() for key, value in maps.before.data.items()}
        return {at: value for at, value in (before | dict(changes)).items() if value is not None}
