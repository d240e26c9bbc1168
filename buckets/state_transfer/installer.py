"""Puts the timelines of a shard into the store of a new checkpoint, and enters their keys for eviction."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from buckets.byte_strings import ByteStrings
from buckets.engine.eviction.schedule import LONG_AGO_MS, EvictionSchedule
from buckets.engine.storage.grouped_keys import GroupedKeys
from buckets.engine.storage.shard_store import ShardStore, split_head_key
from buckets.state_transfer.regrouping import CarriedGroup
from buckets.state_transfer.shard_times import ShardTimes
from buckets.timeline.head import NO_CLOCK
from buckets.timeline.inspection import clocks_of


class CarriedKey(NamedTuple):
    """The head of a key and what policies remember of it, if there is any, by group and key as they are now."""

    state_key: bytes
    head: bytes
    policies: bytes


class Installer:
    """The new store of a shard, until `end`."""

    def __init__(self, store: ShardStore, groups: Iterable[CarriedGroup]) -> None:
        """Begin with an empty store."""
        self._store = store
        self._groups: Mapping[str, CarriedGroup] = {carried.group.state_id: carried for carried in groups}
        self._schedule = EvictionSchedule()

    def put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep pages, by where they lie now."""
        self._store.pages.put(pages)

    def put_keys(self, keys: Sequence[CarriedKey]) -> None:
        """Keep keys, and enter each for eviction, by its clock."""
        self._store.heads.put([(key.state_key, key.head) for key in keys if key.head])
        self._store.policies.put([(key.state_key, key.policies) for key in keys if key.policies])
        by_group: dict[str, list[CarriedKey]] = {}
        for key in keys:
            by_group.setdefault(split_head_key(key.state_key)[0], []).append(key)
        for group_id, own_keys in by_group.items():
            self._enter(self._groups[group_id], own_keys)
        self._schedule.save(self._store.schedule, self._groups)

    def end(self, times: ShardTimes) -> None:
        """Write what the shard knows of time."""
        self._schedule.clock = times.clock()
        self._schedule.evicted_until_ms = dict(times.evicted_until_ms)
        self._schedule.save(self._store.schedule, self._groups)

    def _enter(self, group: CarriedGroup, keys: Sequence[CarriedKey]) -> None:
        """Enter keys of a group; what an earlier generation has left is visited first."""
        generations = np.full(len(keys), group.group.generation)
        clocks_ms = clocks_of(ByteStrings.of([key.head for key in keys]), generations)
        # What is remembered outside the shards has no timeline.
        clocks_ms = np.array(
            [
                json.loads(key.policies)[2] if not key.head else LONG_AGO_MS if clock_ms == NO_CLOCK else clock_ms
                for key, clock_ms in zip(keys, clocks_ms.tolist(), strict=True)
            ],
            np.int64,
        )
        group_id = group.group.state_id
        if any(key.policies for key in keys):
            self._schedule.remembered.add(group_id)
        entered = GroupedKeys.of(group_id, ByteStrings.of([key.state_key for key in keys]))
        self._schedule.enter(entered, clocks_ms, {group_id: group.horizon_ms})
