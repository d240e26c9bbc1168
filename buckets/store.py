"""Where a shard's state lies: three maps from bytes to bytes, which Spark keeps in RocksDB.

    heads    group and key                  -> head
    pages    group and key, page number     -> page
    agenda   what `agenda` writes

A group is written as the 8 bytes of its identity, a key in UTF-8, a page number as 4 bytes, the highest first. All lie
in one map of Spark's, where the keys of pages and of the agenda have 8 bytes before them that are no group's identity.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

GROUP_BYTES = 8
PAGE_BYTES = 4
HEADS, PAGES, AGENDA = b"", b"\0\0page\0\0", b"\0agenda\0"
"""What the places of each map begin with. An identity of a group is a hash, and none of these but by a miracle."""


class Entries(Protocol):
    """A map from bytes to bytes."""

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """The values of keys; empty bytes where there is none."""

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""

    def remove(self, keys: Sequence[bytes]) -> None:
        """Forget keys."""

    def list_keys(self) -> Iterable[bytes]:
        """All keys, in no particular order. Cost: O(entries)."""


@dataclass(frozen=True)
class ShardStore:
    """The state of a shard."""

    heads: Entries
    pages: Entries
    agenda: Entries


def section_of(place: bytes) -> bytes:
    """Which of the three maps an entry belongs to, by where it lies."""
    first = place[:GROUP_BYTES]
    return first if first in (PAGES, AGENDA) else HEADS


def head_key(group_id: str, key: str) -> bytes:
    """Where a head lies."""
    return bytes.fromhex(group_id) + key.encode()


def split_head_key(stored: bytes) -> tuple[str, str]:
    """Group and key of a head."""
    return stored[:GROUP_BYTES].hex(), stored[GROUP_BYTES:].decode()


def page_key(head: bytes, number: int) -> bytes:
    """Where a page lies.

    Args:
        head: where its head lies.
        number: the page's number.
    """
    return head + number.to_bytes(PAGE_BYTES, "big")


def split_page_key(stored: bytes) -> tuple[bytes, int]:
    """Where a page's head lies, and the page's number."""
    return stored[:-PAGE_BYTES], int.from_bytes(stored[-PAGE_BYTES:], "big")
