"""The heads of some keys, as the store of their shard has them, and the pages that they refer to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings
from buckets.engine.storage.shard_store import ShardStore, page_keys
from buckets.kernel.score import Scored, ScoredGroups
from buckets.timeline.inspection import pages_of

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StoredHeads:
    """The heads of keys, read from a store.

    Attributes:
        store: the shard's state.
        state_keys: where each head lies.
        heads: the heads; empty for a key that is new.
    """

    store: ShardStore
    state_keys: ByteStrings
    heads: ByteStrings

    @classmethod
    def read(cls, store: ShardStore, state_keys: ByteStrings) -> "StoredHeads":
        """Read heads, by where they lie."""
        return cls(store, state_keys, store.heads.read(state_keys))

    def take(self, indices: Int64s) -> "StoredHeads":
        """Return those of some of the keys, in the order of their indices."""
        return StoredHeads(self.store, self.state_keys.take(indices), self.heads.take(indices))

    def slice(self, keys: slice) -> "StoredHeads":
        """Return those of a stretch of the keys."""
        if keys.start == 0 and keys.stop == self.heads.size:
            return self
        of_keys = self.state_keys.slice(keys.start, keys.stop), self.heads.slice(keys.start, keys.stop)
        return StoredHeads(self.store, *of_keys)

    def read_pages(self, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read pages.

        Args:
            wanted: for each page the index of its key, and its number.
        """
        return self.store.pages.get(self._page_keys(*_columns(wanted)).to_list())

    def write(self, scored: Scored | ScoredGroups) -> None:
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
        keys = self._page_keys(*_columns([(page.key, page.number) for page in scored.pages]))
        pages = [(key, page.data) for key, page in zip(keys.to_list(), scored.pages, strict=True)]
        self.store.pages.put([(key, data) for key, data in pages if data is not None])
        self.store.pages.remove(ByteStrings.of([key for key, data in pages if data is None]))

    def remove(self) -> None:
        """Remove the timelines."""
        keys, numbers = pages_of(self.heads)
        if len(numbers):
            self.store.pages.remove(self._page_keys(keys, numbers))
        self.store.heads.remove(self.state_keys.take(np.flatnonzero(self.heads.lengths)))

    def _page_keys(self, keys: Int64s, numbers: Int64s) -> ByteStrings:
        """Return where pages lie, each given as the index of its key, and its number."""
        return page_keys(self.state_keys.take(keys), numbers)


def _columns(pages: Sequence[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    """Return the keys of pages and their numbers."""
    keys, numbers = np.array(pages, np.int64).reshape(-1, 2).T
    return keys, numbers
