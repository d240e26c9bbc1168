"""The lists that a batch sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.errors import BucketsError
from buckets.lists.index import ListIndex

Lists = Mapping[str, ListIndex]
"""By name, the lists of a batch."""
NO_LISTS: Final[Lists] = MappingProxyType({})


@dataclass(frozen=True)
class ListsAt:
    """Lists as they are at the events of which a condition is evaluated.

    Attributes:
        lists: the lists.
        times_ms: int64 `(rows,)`, when each event happened.
    """

    lists: Lists
    times_ms: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.int64]) -> "ListsAt":
        """Return the same at some of the events, each as often as it is named."""
        return ListsAt(self.lists, self.times_ms[rows])

    def contain(self, name: str, keys: pa.Array) -> pa.BooleanArray:
        """Return whether a list has the key of each row; null where that is null."""
        return self._list(name).contain(keys, self.times_ms)

    def values(self, name: str, keys: pa.Array, value: str) -> pa.Array:
        """Return the value of this name that a list has for the key of each row; null where there is none."""
        return self._list(name).values(keys, self.times_ms, value)

    def _list(self, name: str) -> ListIndex:
        if name not in self.lists:
            raise BucketsError(unknown_list(name, self.lists))
        return self.lists[name]


def unknown_list(name: str, known: Mapping[str, object]) -> str:
    """Say that there is no list of this name."""
    there = ", ".join(sorted(known)) or "none"
    return f"there is no list {name!r}; lists of the job: {there}; add it under `lists`, or correct the name"
