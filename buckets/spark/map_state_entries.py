"""All entries of a shard, as they lie in Spark's state."""

from collections.abc import Iterator, Sequence

from pyspark.sql.streaming.stateful_processor import MapState

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.shard_store import InObjects
from buckets.spark.state_client import StateEntries


class MapStateEntries(InObjects):
    """All entries of the shard that Spark is at, in its `binary -> binary` map state."""

    def __init__(self, state: MapState) -> None:
        """Use a map state."""
        self._state, self._entries = state, StateEntries(state)

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes where there is none."""
        return self._entries.get(keys)

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""
        self._entries.put(entries)

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""
        self._entries.remove(keys.to_list())

    def list_keys(self) -> Iterator[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return map(bytes, (row[0] for row in iter(self._state.keys())))
