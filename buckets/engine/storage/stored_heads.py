"""The heads of some keys of a group, as the store of their shard has them, and the pages that they refer to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.byte_strings import ByteStrings, concatenated
from buckets.engine.storage.shard_store import ShardStore, page_key
from buckets.engine.storage.text_column import strings_of
from buckets.kernel.score import Scored
from buckets.timeline.inspection import pages_of


@dataclass(frozen=True)
class StoredHeads:
    """The heads of keys, read from a store.

    Attributes:
        store: the shard's state.
        keys: the keys, Arrow string `(keys,)`.
        state_keys: the state key of each head.
        heads: the heads; empty for a key that is new.
    """

    store: ShardStore
    keys: pa.Array
    state_keys: ByteStrings
    heads: ByteStrings

    @classmethod
    def read(cls, store: ShardStore, group_id: str, keys: pa.Array) -> "StoredHeads":
        """Read the heads of keys of a group."""
        return cls.read_groups(store, {group_id: keys})[0]

    @classmethod
    def read_groups(cls, store: ShardStore, keys_of: Mapping[str, pa.Array]) -> list["StoredHeads"]:
        """Read the heads of keys of some groups, all in one call.

        Args:
            store: the shard's state.
            keys_of: by group, the keys, Arrow string.
        """
        if not keys_of:
            return []
        groups = [strings_of(keys).with_prefix(bytes.fromhex(group_id)) for group_id, keys in keys_of.items()]
        heads = store.heads.read(concatenated(groups))
        ends = pairwise(accumulate((state_keys.size for state_keys in groups), initial=0))
        return [
            cls(store, keys, state_keys, heads.slice(*of_group))
            for keys, state_keys, of_group in zip(keys_of.values(), groups, ends, strict=True)
        ]

    def chosen(self, keys: npt.NDArray[np.bool_]) -> "StoredHeads":
        """Return those of some of the keys, `(keys,)`."""
        chosen = np.flatnonzero(keys)
        keys_chosen = self.keys.take(pa.array(chosen))
        return StoredHeads(self.store, keys_chosen, self.state_keys.take(chosen), self.heads.take(chosen))

    def read_pages(self, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read pages.

        Args:
            wanted: for each page the index of its key, and its number.
        """
        return self.store.pages.get(self._page_keys(wanted))

    def write(self, scored: Scored) -> None:
        """Write what has changed of the timelines.

        Args:
            scored: heads and pages as they are now.
        """
        changed = np.flatnonzero(scored.heads.differs_from(self.heads))
        if len(changed) == self.heads.size:
            self.store.heads.write(self.state_keys, scored.heads)
        elif len(changed):
            self.store.heads.write(self.state_keys.take(changed), scored.heads.take(changed))
        if not scored.pages:
            return
        page_keys = self._page_keys([(page.key, page.number) for page in scored.pages])
        pages = [*zip(page_keys, (page.data for page in scored.pages), strict=True)]
        self.store.pages.put([(state_key, data) for state_key, data in pages if data is not None])
        self.store.pages.remove([state_key for state_key, data in pages if data is None])

    def remove(self) -> None:
        """Remove the timelines."""
        self.store.pages.remove(self._page_keys(pages_of(self.heads)))
        self.store.heads.remove(self.state_keys.take(np.flatnonzero(self.heads.lengths)).to_list())

    def _page_keys(self, pages: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return where pages lie, each given as the index of its key, and its number."""
        heads = self.state_keys.take(np.array([key for key, _ in pages], np.int64)).to_list()
        return [page_key(head, number) for head, (_, number) in zip(heads, pages, strict=True)]
