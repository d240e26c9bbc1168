"""What becomes of the groups of a job under other settings: their identities, how keys are written, their shards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from buckets.engine.storage.key import reordered, shards_of
from buckets.rules.group import Group
from buckets.rules.renaming import Names


@dataclass(frozen=True)
class CarriedGroup:
    """A group, as it was and as it is.

    Attributes:
        group: as it is.
        order: of each value of a key as it is, its index in the key as it was.
        horizon_ms: how far back its timelines reach from now on.
        is_same: whether its identity and its keys are as they were.
    """

    group: Group
    order: tuple[int, ...]
    horizon_ms: int
    is_same: bool

    @classmethod
    def of(cls, before: Group, now: Group, names: Names, lateness_ms: int) -> "CarriedGroup":
        """Compare a group before and after fields were renamed."""
        fields = [names.get(field, field) for field in before.key_fields]
        order = tuple(fields.index(field) for field in now.key_fields)
        is_same = before.state_id == now.state_id and order == tuple(range(len(order)))
        return cls(now, order, now.longest_window_ms + lateness_ms, is_same)

    def keys(self, keys: Sequence[str]) -> list[str]:
        """Write keys of the group as they are, by those that they were."""
        return [*keys] if self.is_same else [reordered(key, self.order) for key in keys]

    def shards(self, keys: Sequence[str], shards: int) -> list[int]:
        """Return the shard of each key as it is."""
        found: list[int] = shards_of(self.group, pa.array(keys, pa.string()), shards).tolist()
        return found


@dataclass(frozen=True)
class Regrouping:
    """The groups of a job, by the identity that they had, and the number of shards that it has now and had before.

    What a group that is not among them has left is not carried over: no rule needs it.
    """

    groups: Mapping[str, CarriedGroup]
    shards_before: int
    shards: int

    def keeps_shards(self, group_id: str) -> bool:
        """Return whether each key of a group is in the shard that it was in."""
        return self.shards == self.shards_before and self.groups[group_id].is_same

    def on_driver(self) -> "Regrouping":
        """Return the same groups where all keys are together."""
        return Regrouping(self.groups, 1, 1)


def regrouping(
    pairs: Iterable[tuple[Group, Group]], names: Names, lateness_ms: int, shards_before: int, shards: int
) -> Regrouping:
    """Return what becomes of groups, each as it was and as it is, with the lateness and the shards from now on."""
    groups = {before.state_id: CarriedGroup.of(before, now, names, lateness_ms) for before, now in pairs}
    return Regrouping(groups, shards_before, shards)
