"""Keys of several groups in columns: on their way between the shuffle, the eviction schedule and the state."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings, concatenated, fixed

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupedKeys:
    """Keys of some groups.

    Attributes:
        group_ids: the groups.
        groups: int64 `(keys,)`, the group of each key, as its index in `group_ids`.
        state_keys: where their heads lie.
    """

    group_ids: Sequence[str]
    groups: Int64s
    state_keys: ByteStrings

    @classmethod
    def of(cls, group_id: str, state_keys: ByteStrings) -> "GroupedKeys":
        """Return keys of one group."""
        return cls([group_id], np.zeros(state_keys.size, np.int64), state_keys)

    @classmethod
    def of_groups(cls, group_ids: Sequence[str], groups: Int64s, keys: ByteStrings) -> "GroupedKeys":
        """Return keys of several groups; `groups` are as below, and the keys in UTF-8."""
        identities = np.frombuffer(bytes.fromhex("".join(group_ids)), np.uint8).reshape(len(group_ids), -1)
        prefixes = fixed(identities[groups].ravel(), np.arange(len(groups) + 1) * identities.shape[1])
        return cls(group_ids, groups, prefixes.followed_by(keys))

    @classmethod
    def joined(cls, parts: Sequence["GroupedKeys"]) -> "GroupedKeys":
        """Return keys of several places, at least one, one after the other."""
        group_ids = dict.fromkeys(group_id for part in parts for group_id in part.group_ids)
        numbers = {group_id: number for number, group_id in enumerate(group_ids)}
        groups = np.concatenate([part.each(numbers, 0) for part in parts])
        return cls([*numbers], groups, concatenated([part.state_keys for part in parts]))

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.groups)

    def take(self, indices: Int64s) -> "GroupedKeys":
        """Return some of them, in the order of their indices."""
        return GroupedKeys(self.group_ids, self.groups[indices], self.state_keys.take(indices))

    def between(self, first: int, end: int, keys: slice) -> "GroupedKeys":
        """Return the keys of groups `[first, end)`, and where they are."""
        state_keys = self.state_keys.slice(keys.start, keys.stop)
        return GroupedKeys(self.group_ids[first:end], self.groups[keys] - first, state_keys)

    def each(self, of_groups: Mapping[str, int], otherwise: int) -> Int64s:
        """Return a number of the group of each key, int64 `(keys,)`; `otherwise` where a group has none."""
        return np.array([of_groups.get(group_id, otherwise) for group_id in self.group_ids], np.int64)[self.groups]

    def stretches(self) -> Iterator[tuple[str, slice]]:
        """Yield each group that has keys, with where these are; keys must stand group by group, as `group_ids` do."""
        ends = np.searchsorted(self.groups, np.arange(len(self.group_ids) + 1)).tolist()
        for index, group_id in enumerate(self.group_ids):
            if ends[index] < ends[index + 1]:
                yield group_id, slice(ends[index], ends[index + 1])
