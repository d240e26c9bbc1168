"""The heads of some keys of a group, as the store of their shard has them, and the pages that they refer to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from buckets.engine.storage.shard_store import ShardStore, head_keys, page_key
from buckets.kernel.score import Scored
from buckets.timeline.inspection import pages_of


@dataclass(frozen=True)
class StoredHeads:
    """The heads of keys, read from a store.

    Attributes:
        store: the shard's state.
        keys: the keys.
        state_keys: the state key of each head.
        heads: the heads; empty bytes for a key that is new.
    """

    store: ShardStore
    keys: Sequence[str]
    state_keys: Sequence[bytes]
    heads: Sequence[bytes]

    @classmethod
    def read(cls, store: ShardStore, group_id: str, keys: Sequence[str]) -> "StoredHeads":
        """Read the heads of keys of a group."""
        return cls.read_groups(store, {group_id: keys})[0]

    @classmethod
    def read_groups(cls, store: ShardStore, keys_of: Mapping[str, Sequence[str]]) -> list["StoredHeads"]:
        """Read the heads of keys of some groups, all in one call.

        Args:
            store: the shard's state.
            keys_of: by group, the keys.
        """
        state_keys = [head_keys(group_id, keys) for group_id, keys in keys_of.items()]
        heads = iter(store.heads.get([*chain.from_iterable(state_keys)]))
        return [
            cls(store, keys, mine, [*islice(heads, len(mine))])
            for keys, mine in zip(keys_of.values(), state_keys, strict=True)
        ]

    def chosen(self, keys: npt.NDArray[np.bool_]) -> "StoredHeads":
        """Return those of some of the keys, `(keys,)`."""
        mine = np.flatnonzero(keys).tolist()
        return StoredHeads(
            self.store,
            [self.keys[index] for index in mine],
            [self.state_keys[index] for index in mine],
            [self.heads[index] for index in mine],
        )

    def read_pages(self, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read pages.

        Args:
            wanted: for each page the index of its key, and its number.
        """
        return self.store.pages.get([page_key(self.state_keys[key], number) for key, number in wanted])

    def write(self, scored: Scored) -> None:
        """Write what has changed of the timelines.

        Args:
            scored: heads and pages as they are now.
        """
        heads = zip(self.state_keys, self.heads, scored.heads, strict=True)
        self.store.heads.put([(state_key, new) for state_key, old, new in heads if new != old])
        pages = [(page_key(self.state_keys[page.key], page.number), page.data) for page in scored.pages]
        self.store.pages.put([(state_key, data) for state_key, data in pages if data is not None])
        self.store.pages.remove([state_key for state_key, data in pages if data is None])

    def remove(self) -> None:
        """Remove the timelines."""
        pages = [page_key(self.state_keys[index], number) for index, number in pages_of(self.heads)]
        self.store.pages.remove(pages)
        self.store.heads.remove([key for key, head in zip(self.state_keys, self.heads, strict=True) if head])
