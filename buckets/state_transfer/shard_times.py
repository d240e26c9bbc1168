"""A shard's times besides its timelines, and how carried timelines are put into new stores.

When keys change shards, their votes for the clock move with them; the vote of a vanished key is dropped. Evictions can
no longer be assigned to keys, so every shard takes the latest eviction of a group in any shard: nothing incomplete
passes for complete.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings
from buckets.engine.eviction.schedule import CLOCK, LONG_AGO_MS, OVERVIEW, EvictionSchedule
from buckets.engine.eviction.shard_clock import ShardClock, Voter
from buckets.engine.stages.in_memory import Values, memory_store
from buckets.engine.storage.shard_store import (
    DriverStores,
    GroupedKeys,
    ShardStore,
    page_key,
    split_head_key,
    split_page_key,
)
from buckets.rules.group import Group
from buckets.state_transfer.export_manifest import Regrouping
from buckets.timeline.head import NO_CLOCK
from buckets.timeline.inspection import clocks_of


@dataclass(frozen=True)
class ShardTimes:
    """A shard's times."""

    # by group, the time of the latest event that was evicted
    evicted_until_ms: dict[str, int] = field(default_factory=dict)
    # of its clock, by group; the voter that had an event most recently comes last
    voters: dict[str, list[Voter]] = field(default_factory=dict)

    @classmethod
    def read(cls, overview: bytes, clock: bytes) -> "ShardTimes":
        """Read what an eviction schedule has written; empty for a shard without one."""
        evicted_until_ms = json.loads(overview).get("evicted_until_ms", {}) if overview else {}
        return cls(evicted_until_ms, ShardClock.from_bytes(clock).voters)

    def overview(self) -> bytes:
        """Encode everything but the votes, for `read`."""
        return json.dumps({"evicted_until_ms": self.evicted_until_ms}).encode()

    def clock(self) -> ShardClock:
        """Return the clock that results from these votes."""
        return ShardClock.of_voters(self.voters)


Resolved = tuple[int, str, int, str]  # The old shard and group of a voter, its hash, and its old key


def resolve(shard: int, state_keys: Iterable[bytes], times: Mapping[int, ShardTimes]) -> Iterator[Resolved]:
    """Yield a shard's keys that are voters."""
    of_groups = times[shard].voters if shard in times else {}
    voters = {(group_id, voter) for group_id, of_group in of_groups.items() for voter, _ in of_group}
    for group_id, key in map(split_head_key, state_keys if voters else ()):
        voter = zlib.crc32(key.encode())
        if (group_id, voter) in voters:
            yield shard, group_id, voter, key


def carried_times(
    times: Mapping[int, ShardTimes], resolved: Iterable[Resolved], carried: Regrouping
) -> dict[int, ShardTimes]:
    """Return the new times of each shard; `resolved` are the keys of voters."""
    times_now = {shard: ShardTimes() for shard in range(carried.shards)}
    for shard, before in times.items():
        for group_id, until_ms in before.evicted_until_ms.items():
            if group_id in carried.groups:
                for shard_now in [shard] if carried.keeps_shards else range(carried.shards):
                    known = times_now[shard_now].evicted_until_ms
                    known[group_id] = max(until_ms, known.get(group_id, until_ms))
        for group_id, voters in before.voters.items():
            if group_id in carried.groups and carried.keeps_shards:
                times_now[shard].voters[group_id] = voters
    if carried.keeps_shards:
        return times_now
    # Voters move to their keys' new shards; those with the latest events in their old shards come last.
    moved: dict[tuple[int, str], dict[int, tuple[int, int, int]]] = {}
    clocks = {
        (shard, group_id): dict(voters) for shard, known in times.items() for group_id, voters in known.voters.items()
    }
    ranks = {of: {voter: len(voters) - at for at, voter in enumerate(voters)} for of, voters in clocks.items()}
    for shard, group_id, voter, key in resolved:
        if group_id in carried.groups:
            (to,) = carried.shards_of(group_id, [key])
            from_last, clock_ms = ranks[shard, group_id][voter], clocks[shard, group_id][voter]
            moved.setdefault((to, group_id), {})[voter] = -from_last, shard, clock_ms
    for (to, group_id), places in moved.items():
        ordered = sorted(places.items(), key=lambda voter_at: (voter_at[1], voter_at[0]))
        times_now[to].voters[group_id] = [(voter, clock_ms) for voter, (_, _, clock_ms) in ordered]
    return times_now


class CarriedKey(NamedTuple):
    """A key's head, and what policies remember of it, if anything."""

    state_key: bytes
    head: bytes
    policies: bytes


class Installer:
    """Fills a new store for a shard; `end` completes it."""

    def __init__(self, store: ShardStore, carried: Regrouping) -> None:
        self._store, self._groups, self._lateness_ms = store, carried.groups, carried.lateness_ms
        self._schedule = EvictionSchedule()

    def put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        """Store pages under their new keys."""
        self._store.pages.put(pages)

    def put_keys(self, keys: Sequence[CarriedKey]) -> None:
        """Store keys, and schedule each for eviction by its clock."""
        self._store.heads.put([(key.state_key, key.head) for key in keys if key.head])
        self._store.policies.put([(key.state_key, key.policies) for key in keys if key.policies])
        by_group: dict[str, list[CarriedKey]] = {}
        for key in keys:
            by_group.setdefault(split_head_key(key.state_key)[0], []).append(key)
        for group_id, own_keys in by_group.items():
            group, state_keys = self._groups[group_id], ByteStrings.of([key.state_key for key in own_keys])
            clocks_ms = self._clocks_ms(group, ByteStrings.of([key.head for key in own_keys]))
            # State kept on the driver has no timeline.
            remembered_ms = [
                clock if key.head else json.loads(key.policies)[2]
                for key, clock in zip(own_keys, clocks_ms.tolist(), strict=True)
            ]
            self._enter(group, state_keys, np.array(remembered_ms, np.int64), any(key.policies for key in own_keys))
        self._schedule.save(self._store.schedule, self._groups)

    def end(self, times: ShardTimes) -> None:
        """Write the shard's times."""
        self._schedule.clock = times.clock()
        self._schedule.evicted_until_ms = dict(times.evicted_until_ms)
        self._schedule.save(self._store.schedule, self._groups)

    def enter(self, group_id: str, state_keys: ByteStrings) -> None:
        """Schedule a group's stored keys that have timelines for eviction."""
        heads, policies = self._store.heads.read(state_keys), self._store.policies.read(state_keys)
        clocks_ms = self._clocks_ms(self._groups[group_id], heads)
        self._enter(self._groups[group_id], state_keys, clocks_ms, bool(policies.lengths.any()))

    def _clocks_ms(self, group: Group, heads: ByteStrings) -> npt.NDArray[np.int64]:
        """Return the clocks of keys; keys of an earlier generation come first in the eviction schedule."""
        clocks_ms = clocks_of(heads, np.full(heads.size, group.generation))
        return np.where(clocks_ms == NO_CLOCK, LONG_AGO_MS, clocks_ms)

    def _enter(
        self, group: Group, state_keys: ByteStrings, clocks_ms: npt.NDArray[np.int64], are_remembered: bool
    ) -> None:
        if are_remembered:
            self._schedule.remembered.add(group.state_id)
        horizons_ms = {group.state_id: group.longest_window_ms + self._lateness_ms}
        self._schedule.enter(GroupedKeys.of(group.state_id, state_keys), clocks_ms, horizons_ms)


def carried_state_keys(state_keys: Sequence[bytes], carried: Regrouping) -> list[tuple[int, bytes] | None]:
    """Return the new shard and state key of each head; None for those that are not carried over."""
    places: list[tuple[int, bytes] | None] = [None] * len(state_keys)
    by_group: dict[str, list[int]] = {}
    for index, state_key in enumerate(state_keys):
        by_group.setdefault(split_head_key(state_key)[0], []).append(index)
    for group_id, indices in by_group.items():
        if group_id in carried.groups:
            shards = carried.shards_of(group_id, [split_head_key(state_keys[index])[1] for index in indices])
            for index, shard in zip(indices, shards, strict=True):
                places[index] = shard, state_keys[index]
    return places


def carried_stores(
    stores: Mapping[int, ShardStore], carried: Regrouping, new_store: Callable[[], ShardStore] = memory_store
) -> dict[int, ShardStore]:
    """Return the stores of all shards under other settings."""
    stores_now = {shard: new_store() for shard in range(carried.shards)}
    installers = {shard: Installer(store, carried) for shard, store in stores_now.items()}
    times = {shard: ShardTimes.read(*store.schedule.get([OVERVIEW, CLOCK])) for shard, store in stores.items()}
    resolved: list[Resolved] = []
    for shard, store in stores.items():
        resolved += resolve(shard, store.heads.list_keys(), times)
        state_keys = list(dict.fromkeys([*store.heads.list_keys(), *store.policies.list_keys()]))
        heads, policies = store.heads.get(state_keys), store.policies.get(state_keys)
        keys: dict[int, list[CarriedKey]] = {}
        for now, head, remembered in zip(carried_state_keys(state_keys, carried), heads, policies, strict=True):
            if now is not None:
                keys.setdefault(now[0], []).append(CarriedKey(now[1], head, remembered))
        for to, own_keys in keys.items():
            installers[to].put_keys(own_keys)
        page_keys = list(store.pages.list_keys())
        places = [split_page_key(state_key) for state_key in page_keys]
        pages: dict[int, list[tuple[bytes, bytes]]] = {}
        kept = zip(
            carried_state_keys([head for head, _ in places], carried), places, store.pages.get(page_keys), strict=True
        )
        for now, (_, number), page in kept:
            if now is not None:
                pages.setdefault(now[0], []).append((page_key(now[1], number), page))
        for to, own_pages in pages.items():
            installers[to].put_pages(own_pages)
    for shard, shard_times in carried_times(times, resolved, carried).items():
        installers[shard].end(shard_times)
    return stores_now


def carried_driver(entries: Values, carried: Regrouping) -> dict[tuple[str, bytes], bytes]:
    """Return the driver's state under other settings, by the names of its store and map, and its key."""
    maps = [field.name for field in fields(ShardStore)]
    stores = {field.name: memory_store() for field in fields(DriverStores)}
    for (name, key), value in entries.items():
        of_driver, _, of_store = name.partition(".")
        getattr(stores[of_driver], of_store).put([(key, value)])
    entries_now: dict[tuple[str, bytes], bytes] = {}
    for name, store in stores.items():
        now = carried_stores({0: store}, carried.on_driver())[0]
        for of_store in maps:
            map_now = getattr(now, of_store)
            entries_now |= {(f"{name}.{of_store}", key): map_now.get([key])[0] for key in map_now.list_keys()}
    return entries_now
