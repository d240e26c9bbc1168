"""The state of a shard: four maps from bytes to bytes, which Spark keeps in RocksDB.

    heads      group and key                  -> head
    pages      group and key, page number     -> page
    schedule   what `engine/eviction/schedule.py` writes
    policies   group and key                  -> the state of alert policies (`policies`)

A group is written as the 8 bytes of its identity, a key in UTF-8, a page number as 4 bytes, big-endian. All four share
one map of Spark's, in which the keys of all but heads begin with 8 bytes that are no group's identity. So do the keys
of the log, which holds the newest heads and policies and the whole schedule (`state.layer`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from buckets.arrays import Flags, Int64s
from buckets.byte_strings import ByteStrings, concatenated, fixed
from buckets.engine.storage.arena import PENDING, STORED, Arena
from buckets.kernel.score import Pages, ScoredGroups
from buckets.timeline.inspection import pages_of

GROUP_BYTES = 8
PAGE_BYTES = 4
HEADS, PAGES, SCHEDULE, POLICIES, LOG = b"", b"\0\0page\0\0", b"\0agenda\0", b"\0policy\0", b"\0\0\0log\0\0"
"""The prefixes of the maps' state keys. A group's identity is a hash, and equals none of these in practice."""


class Entries(Protocol):
    """A map from bytes to bytes, with columnar methods for many entries, and methods over objects for few."""

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty for a missing key."""

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Store entries."""

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes for a missing key."""

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Store entries."""

    def remove(self, keys: ByteStrings) -> None:
        """Remove keys."""

    def list_keys(self) -> Iterable[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""


class InObjects:
    """Columnar methods for a map that stores objects."""

    def read(self: Entries, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty for a missing key."""
        return ByteStrings.of(self.get(keys.to_list()))

    def write(self: Entries, keys: ByteStrings, values: ByteStrings) -> None:
        """Store entries."""
        self.put([*zip(keys.to_list(), values.to_list(), strict=True)])


class InColumns:
    """Methods over objects for a map that stores columns."""

    def get(self: Entries, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes for a missing key."""
        return self.read(ByteStrings.of(keys)).to_list()

    def put(self: Entries, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Store entries."""
        keys, values = zip(*entries, strict=True) if entries else ((), ())
        self.write(ByteStrings.of(keys), ByteStrings.of(values))


@dataclass(frozen=True)
class ShardStore:
    """The state of a shard."""

    heads: Entries
    pages: Entries
    schedule: Entries
    policies: Entries


@dataclass(frozen=True)
class DriverStores:
    """The state outside the shards, on the driver."""

    cross_group: ShardStore  # policy state of rules over events that have features of several groups
    alerts: ShardStore  # the timelines of alerts
    alerts_cross_group: ShardStore  # policy state of rules over alerts that have features of several groups


@dataclass(frozen=True)
class Section(InColumns):
    """One of several maps that share an underlying map."""

    entries: Entries  # the underlying map
    name: bytes  # the prefix of its keys there

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty for a missing key."""
        return self.entries.read(self._named(keys))

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Store entries."""
        self.entries.write(self._named(keys), values)

    def remove(self, keys: ByteStrings) -> None:
        """Remove keys."""
        self.entries.remove(self._named(keys))

    def list_keys(self) -> Iterator[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return (key[len(self.name) :] for key in self.entries.list_keys() if section_of(key) == self.name)

    def _named(self, keys: ByteStrings) -> ByteStrings:
        return keys.with_prefix(self.name) if self.name else keys


def section_of(state_key: bytes) -> bytes:
    """Return the prefix of the map to which a state key belongs."""
    first = state_key[:GROUP_BYTES]
    return first if first in (PAGES, SCHEDULE, POLICIES, LOG) else HEADS


def head_key(group_id: str, key: str) -> bytes:
    """Return the state key of a head."""
    return head_keys(group_id, [key])[0]


def head_keys(group_id: str, keys: Iterable[str]) -> list[bytes]:
    """Return the state keys of the heads of a group's keys."""
    group = bytes.fromhex(group_id)
    return [group + key.encode() for key in keys]


def split_head_key(stored: bytes) -> tuple[str, str]:
    """Split the state key of a head into group and key."""
    return stored[:GROUP_BYTES].hex(), stored[GROUP_BYTES:].decode()


def page_key(head: bytes, number: int) -> bytes:
    """Return the state key of a page, from that of its head."""
    return head + number.to_bytes(PAGE_BYTES, "big")


def split_page_key(stored: bytes) -> tuple[bytes, int]:
    """Split the state key of a page into the state key of its head and the page number."""
    return stored[:-PAGE_BYTES], int.from_bytes(stored[-PAGE_BYTES:], "big")


class ArenaEntries(InColumns):
    """A map from bytes to bytes in an arena."""

    def __init__(self) -> None:
        self._arena = Arena()
        self._removed = 0

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty for a missing key."""
        return self._arena.values_of(self._arena.find(keys))

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Store entries."""
        self._arena.put(keys, values, PENDING)
        self._arena.settle_changes()
        if self._arena.is_half_dead():
            self._arena.compact()

    def remove(self, keys: ByteStrings) -> None:
        """Remove keys."""
        self._arena.put(keys, ByteStrings.empties(keys.size), STORED)
        self._removed += keys.size
        if 2 * self._removed > self._arena.size:
            # What was used neither in this epoch nor in the one before is left out.
            self._arena.begin_epoch()
            self._arena.begin_epoch()
            self._arena.compact()
            self._removed = 0

    def list_keys(self) -> list[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return self.keys().to_list()

    def keys(self) -> ByteStrings:
        """Return all keys, as `list_keys` does."""
        return self._arena.keys_of(self._arena.outside_store())


@dataclass(frozen=True)
class StoredHeads:
    """The heads of keys, read from a store."""

    store: ShardStore  # the shard's state
    state_keys: ByteStrings  # the state key of each head
    heads: ByteStrings  # the heads; empty for a new key

    @classmethod
    def read(cls, store: ShardStore, state_keys: ByteStrings) -> "StoredHeads":
        """Read heads by their state keys."""
        return cls(store, state_keys, store.heads.read(state_keys))

    def take(self, indices: Int64s) -> "StoredHeads":
        """Return the heads at these indices."""
        return StoredHeads(self.store, self.state_keys.take(indices), self.heads.take(indices))

    def slice(self, begin: int, end: int) -> "StoredHeads":
        """Return the heads at indices `[begin, end)`, without a copy."""
        return StoredHeads(self.store, self.state_keys.slice(begin, end), self.heads.slice(begin, end))

    def read_pages(self, keys: Int64s, numbers: Int64s) -> ByteStrings:
        """Read pages, each given by the index of its key and its number."""
        return self.store.pages.read(self._page_keys(keys, numbers))

    def write(self, scored: ScoredGroups) -> None:
        """Write the changed heads and pages."""
        JoinedHeads([self]).write(scored)

    def write_changed(self, heads: ByteStrings, are_changed: Flags, pages: Pages) -> None:
        """Write the new heads that have changed, and pages."""
        changed = np.flatnonzero(are_changed)
        if len(changed) == heads.size:
            self.store.heads.write(self.state_keys, heads)
        elif len(changed):
            self.store.heads.write(self.state_keys.take(changed), heads.take(changed))
        if len(pages.keys):
            keys, are_gone = self._page_keys(pages.keys, pages.numbers), pages.data.lengths == 0
            written = np.flatnonzero(~are_gone)
            self.store.pages.write(keys.take(written), pages.data.take(written))
            self.store.pages.remove(keys.take(np.flatnonzero(are_gone)))

    def remove(self) -> None:
        """Remove the timelines."""
        keys, numbers = pages_of(self.heads)
        if len(numbers):
            self.store.pages.remove(self._page_keys(keys, numbers))
        self.store.heads.remove(self.state_keys.take(np.flatnonzero(self.heads.lengths)))

    def _page_keys(self, keys: Int64s, numbers: Int64s) -> ByteStrings:
        """Return the state keys of pages, each given by the index of its key and its number."""
        ends = np.arange(len(numbers) + 1) * PAGE_BYTES
        return self.state_keys.take(keys).followed_by(fixed(numbers.astype(">u4").view(np.uint8), ends))


@dataclass(frozen=True)
class JoinedHeads:
    """The heads of several shards, whose keys may be interleaved."""

    parts: Sequence[StoredHeads]  # the heads of each shard
    places: Sequence[Int64s] = ()  # int64, the indices of each shard's keys among all; not read for a single part

    @cached_property
    def heads(self) -> ByteStrings:
        """All heads, in the order of all keys."""
        heads = concatenated([part.heads for part in self.parts])
        return heads if len(self.parts) == 1 else heads.take(self._order)

    @cached_property
    def _order(self) -> Int64s:
        """The index of each key in the concatenated parts."""
        return np.argsort(np.concatenate(self.places))

    @cached_property
    def _homes(self) -> tuple[Int64s, Int64s]:
        """The index of each key's part, and the index of the key in that part."""
        sizes = [len(each) for each in self.places]
        parts, indices = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(size) for size in sizes])
        return parts[self._order], indices[self._order]

    def read_pages(self, keys: Int64s, numbers: Int64s) -> ByteStrings:
        """Read one or more pages, each given by the index of its key and its number."""
        if len(self.parts) == 1:
            return self.parts[0].read_pages(keys, numbers)
        parts, indices = self._homes
        own = [(part, np.flatnonzero(parts[keys] == part)) for part in np.unique(parts[keys]).tolist()]
        pages = [self.parts[part].read_pages(indices[keys[at]], numbers[at]) for part, at in own]
        return concatenated(pages).take(np.argsort(np.concatenate([at for _, at in own])))

    def write(self, scored: ScoredGroups) -> None:
        """Write the changed heads and pages."""
        are_changed = scored.heads.differs_from(self.heads)
        if len(self.parts) == 1:
            self.parts[0].write_changed(scored.heads, are_changed, scored.pages)
            return
        pages = [scored.pages] * len(self.parts)
        if len(scored.pages.keys):
            parts, indices = self._homes
            of_pages, moved = parts[scored.pages.keys], scored.pages._replace(keys=indices[scored.pages.keys])
            pages = [moved.take(np.flatnonzero(of_pages == part)) for part in range(len(self.parts))]
        for part, places, of_part in zip(self.parts, self.places, pages, strict=True):
            part.write_changed(scored.heads.take(places), are_changed[places], of_part)


@dataclass(frozen=True)
class GroupedKeys:
    """Keys of some groups."""

    group_ids: Sequence[str]  # the groups
    groups: Int64s  # int64 `(keys,)`, the group of each key, as its index in `group_ids`
    state_keys: ByteStrings  # the state keys of their heads

    @classmethod
    def of(cls, group_id: str, state_keys: ByteStrings) -> "GroupedKeys":
        """Return keys of one group."""
        return cls([group_id], np.zeros(state_keys.size, np.int64), state_keys)

    @classmethod
    def of_groups(cls, group_ids: Sequence[str], groups: Int64s, keys: ByteStrings) -> "GroupedKeys":
        """Return keys of several groups; `groups` are as in the attribute, `keys` are UTF-8 without a prefix."""
        identities = np.frombuffer(bytes.fromhex("".join(group_ids)), np.uint8).reshape(len(group_ids), -1)
        prefixes = fixed(identities[groups].ravel(), np.arange(len(groups) + 1) * identities.shape[1])
        return cls(group_ids, groups, prefixes.followed_by(keys))

    @classmethod
    def joined(cls, parts: Sequence["GroupedKeys"]) -> "GroupedKeys":
        """Concatenate one or more sets of keys."""
        if len(parts) == 1:
            return parts[0]
        group_ids = dict.fromkeys(group_id for part in parts for group_id in part.group_ids)
        numbers = {group_id: number for number, group_id in enumerate(group_ids)}
        groups = np.concatenate([part.each(numbers, 0) for part in parts])
        return cls([*numbers], groups, concatenated([part.state_keys for part in parts]))

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.groups)

    def take(self, indices: Int64s) -> "GroupedKeys":
        """Return the keys at these indices."""
        return GroupedKeys(self.group_ids, self.groups[indices], self.state_keys.take(indices))

    def between(self, begin: int, end: int) -> "GroupedKeys":
        """Return the keys at indices `[begin, end)`, without a copy."""
        return GroupedKeys(self.group_ids, self.groups[begin:end], self.state_keys.slice(begin, end))

    def dense(self) -> "GroupedKeys":
        """Drop groups that have no key."""
        there = np.flatnonzero(np.bincount(self.groups, minlength=len(self.group_ids)))
        if len(there) == len(self.group_ids):
            return self
        group_ids = [self.group_ids[group] for group in there.tolist()]
        return GroupedKeys(group_ids, np.searchsorted(there, self.groups), self.state_keys)

    def each(self, of_groups: Mapping[str, int], otherwise: int) -> Int64s:
        """Look up the number of each key's group, int64 `(keys,)`; `otherwise` for a group without one."""
        return np.array([of_groups.get(group_id, otherwise) for group_id in self.group_ids], np.int64)[self.groups]

    def stretches(self) -> Iterator[tuple[str, slice]]:
        """Yield each group that has keys, with their slice; keys must be sorted by group, as in `group_ids`."""
        ends = np.searchsorted(self.groups, np.arange(len(self.group_ids) + 1)).tolist()
        for index, group_id in enumerate(self.group_ids):
            if ends[index] < ends[index + 1]:
                yield group_id, slice(ends[index], ends[index + 1])


def strings_of(column: pa.Array | pa.ChunkedArray) -> ByteStrings:
    """Return the values of a text or binary column as bytes, without a copy if it has one chunk.

    It may have many chunks: an Arrow chunk of text holds at most 2 GB.
    """
    strings = []
    for piece in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if len(piece):
            _, offsets, data = piece.buffers()
            kind = np.int64 if pa.types.is_large_binary(piece.type) else np.int32
            start = np.frombuffer(offsets, kind)[piece.offset : piece.offset + len(piece) + 1].astype(np.int64)
            text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
            strings.append(fixed(text[start[0] : start[-1]], start - start[0]))
    return concatenated(strings or [ByteStrings.of([])])


def column_of(strings: ByteStrings) -> pa.Array:
    """Return byte strings as an Arrow binary column, without a copy."""
    buffers = [None, pa.py_buffer(strings.start), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.large_binary(), strings.size, buffers)


def texts_of(strings: ByteStrings) -> pa.Array:
    """Return byte strings in UTF-8, at most 2 GB together, as an Arrow text column."""
    buffers = [None, pa.py_buffer(strings.start.astype(np.int32)), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.string(), strings.size, buffers)
