"""Stores in memory, carried over: those of a job's driver, and of a job without Spark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields

from buckets.engine.eviction.schedule import CLOCK, OVERVIEW
from buckets.engine.stages.driver_store import Values
from buckets.engine.stages.in_memory import memory_store
from buckets.engine.storage.shard_store import (
    DriverStores,
    ShardStore,
    head_keys,
    page_key,
    split_head_key,
    split_page_key,
)
from buckets.state_transfer.installer import CarriedKey, Installer
from buckets.state_transfer.regrouping import Regrouping
from buckets.state_transfer.shard_times import Resolved, ShardTimes, carried_times, resolve


def carried_state_keys(state_keys: Sequence[bytes], carried: Regrouping) -> list[tuple[int, bytes] | None]:
    """Return where heads lie from now on: their shards and their keys; None for those that are not carried over."""
    places: list[tuple[int, bytes] | None] = [None] * len(state_keys)
    by_group: dict[str, list[int]] = {}
    for index, state_key in enumerate(state_keys):
        by_group.setdefault(split_head_key(state_key)[0], []).append(index)
    for group_id, indices in by_group.items():
        if group_id in carried.groups:
            group = carried.groups[group_id]
            keys = group.keys([split_head_key(state_keys[index])[1] for index in indices])
            shards = group.shards(keys, carried.shards)
            now = zip(shards, head_keys(group.group.state_id, keys), strict=True)
            for index, place in zip(indices, now, strict=True):
                places[index] = place
    return places


def carried_stores(
    stores: Mapping[int, ShardStore], carried: Regrouping, new_store: Callable[[], ShardStore] = memory_store
) -> dict[int, ShardStore]:
    """Return the stores of all shards under other settings."""
    stores_now = {shard: new_store() for shard in range(carried.shards)}
    installers = {shard: Installer(store, carried.groups.values()) for shard, store in stores_now.items()}
    times = {shard: ShardTimes.read(*store.schedule.get([OVERVIEW, CLOCK])) for shard, store in stores.items()}
    resolved: list[Resolved] = []
    for shard, store in stores.items():
        resolved += _voters(shard, store, times)
        state_keys = list(dict.fromkeys([*store.heads.list_keys(), *store.policies.list_keys()]))
        heads, policies = store.heads.get(state_keys), store.policies.get(state_keys)
        keys: dict[int, list[CarriedKey]] = {}
        for now, head, remembered in zip(carried_state_keys(state_keys, carried), heads, policies, strict=True):
            if now is not None:
                keys.setdefault(now[0], []).append(CarriedKey(now[1], head, remembered))
        for to, own_keys in keys.items():
            installers[to].put_keys(own_keys)
        _carry_pages(store, carried, installers)
    for shard, shard_times in carried_times(times, resolved, carried).items():
        installers[shard].end(shard_times)
    return stores_now


def carried_driver(entries: Values, carried: Regrouping) -> dict[tuple[str, bytes], bytes]:
    """Return the state on the driver under other settings, by the names of a store and of a map in it, and a key."""
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


def _voters(shard: int, store: ShardStore, times: Mapping[int, ShardTimes]) -> Iterator[Resolved]:
    keys: dict[str, list[str]] = {}
    for state_key in store.heads.list_keys():
        group_id, key = split_head_key(state_key)
        keys.setdefault(group_id, []).append(key)
    for group_id, own_keys in keys.items():
        yield from resolve(shard, group_id, own_keys, times)


def _carry_pages(store: ShardStore, carried: Regrouping, installers: Mapping[int, Installer]) -> None:
    state_keys = list(store.pages.list_keys())
    heads, numbers = zip(*map(split_page_key, state_keys), strict=True) if state_keys else ((), ())
    pages: dict[int, list[tuple[bytes, bytes]]] = {}
    for now, number, page in zip(carried_state_keys(heads, carried), numbers, store.pages.get(state_keys), strict=True):
        if now is not None:
            pages.setdefault(now[0], []).append((page_key(now[1], number), page))
    for to, own_pages in pages.items():
        installers[to].put_pages(own_pages)
