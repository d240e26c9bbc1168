"""Where a shard's state lies: four maps from bytes to bytes, which Spark keeps in RocksDB.

    heads      group and key                  -> head
    pages      group and key, page number     -> page
    schedule   what `engine/eviction/schedule.py` writes
    policies   group and key                  -> what policies of rules remember (`policy_state`)

A group is written as the 8 bytes of its identity, a key in UTF-8, a page number as 4 bytes, the highest first. All lie
in one map of Spark's, where the keys of all but heads begin with 8 bytes that are no group's identity. So do those of
the log, in which the newest heads and policies and all of the schedule lie (`state.layer`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings, fixed

GROUP_BYTES = 8
PAGE_BYTES = 4
HEADS, PAGES, SCHEDULE, POLICIES, LOG = b"", b"\0\0page\0\0", b"\0agenda\0", b"\0policy\0", b"\0\0\0log\0\0"
"""What the state keys of each map begin with. The identity of a group is a hash, and is none of these in practice."""


class Entries(Protocol):
    """A map from bytes to bytes: in columns where entries are many, with an object for each where they are few."""

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty where there is none."""

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Keep values."""

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes where there is none."""

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""

    def list_keys(self) -> Iterable[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""


class InObjects:
    """The columns of a map that has an object for each entry."""

    def read(self: Entries, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty where there is none."""
        return ByteStrings.of(self.get(keys.to_list()))

    def write(self: Entries, keys: ByteStrings, values: ByteStrings) -> None:
        """Keep values."""
        self.put([*zip(keys.to_list(), values.to_list(), strict=True)])


class InColumns:
    """The objects of a map that has its entries in columns."""

    def get(self: Entries, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes where there is none."""
        return self.read(ByteStrings.of(keys)).to_list()

    def put(self: Entries, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""
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
    """The state outside the shards, on the driver.

    Attributes:
        cross_group: what policies remember of rules over events that have features of several groups.
        alerts: the timelines of alerts.
        alerts_cross_group: what policies remember of rules over alerts that have features of several groups.
    """

    cross_group: ShardStore
    alerts: ShardStore
    alerts_cross_group: ShardStore


@dataclass(frozen=True)
class Section:
    """One of the maps, in a map that holds several.

    Attributes:
        entries: the map that holds it.
        name: what its keys begin with there.
    """

    entries: Entries
    name: bytes

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty where there is none."""
        return self.entries.read(self._named(keys))

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Keep values."""
        self.entries.write(self._named(keys), values)

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes where there is none."""
        return self.entries.get([self.name + key for key in keys] if self.name else keys)

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""
        name = self.name
        self.entries.put([(name + key, value) for key, value in entries] if name else entries)

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""
        self.entries.remove(self._named(keys))

    def list_keys(self) -> Iterator[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return (key[len(self.name) :] for key in self.entries.list_keys() if section_of(key) == self.name)

    def _named(self, keys: ByteStrings) -> ByteStrings:
        return keys.with_prefix(self.name) if self.name else keys


def section_of(state_key: bytes) -> bytes:
    """Return which of the maps an entry belongs to, by where it lies."""
    first = state_key[:GROUP_BYTES]
    return first if first in (PAGES, SCHEDULE, POLICIES, LOG) else HEADS


def head_key(group_id: str, key: str) -> bytes:
    """Return where a head lies."""
    return head_keys(group_id, [key])[0]


def head_keys(group_id: str, keys: Iterable[str]) -> list[bytes]:
    """Return where the heads of keys of a group lie."""
    group = bytes.fromhex(group_id)
    return [group + key.encode() for key in keys]


def split_head_key(stored: bytes) -> tuple[str, str]:
    """Group and key of a head."""
    return stored[:GROUP_BYTES].hex(), stored[GROUP_BYTES:].decode()


def page_key(head: bytes, number: int) -> bytes:
    """Return where a page lies.

    Args:
        head: where its head lies.
        number: the page's number.
    """
    return head + number.to_bytes(PAGE_BYTES, "big")


def page_keys(heads: ByteStrings, numbers: npt.NDArray[np.int64]) -> ByteStrings:
    """Return where pages lie.

    Args:
        heads: where the head of each lies.
        numbers: int64 `(pages,)`, their numbers.
    """
    ends = np.arange(len(numbers) + 1) * PAGE_BYTES
    return heads.followed_by(fixed(numbers.astype(">u4").view(np.uint8), ends))


def split_page_key(stored: bytes) -> tuple[bytes, int]:
    """Return where a page's head lies, and the page's number."""
    return stored[:-PAGE_BYTES], int.from_bytes(stored[-PAGE_BYTES:], "big")
