"""A whole list as a table sorted by a hash of its keys, so that bisection finds a key.

Its file is memory-mapped: all processes of a machine share its pages, and only the requested ones are read. Keys with
equal hashes are adjacent, and their texts decide: a collision costs time, never a wrong answer.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Int64s
from buckets.lists.keys import TEXT_KEYS, KeyForm, Prefix, prefixes_of

_NO_VALUES: Final[Mapping[str, str]] = MappingProxyType({})
RESERVED: Final = ("key", "until", "author", "reason")
"""The columns of an entry besides its values; no value may have such a name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a key in a list."""

    values: Mapping[str, str] = field(default_factory=lambda: _NO_VALUES)  # what can be looked up, by name
    # the event time from which on it no longer counts, in ms since 1970; None: it always counts
    until_ms: int | None = None
    author: str = ""  # who wrote it
    reason: str = ""  # why

    def to_record(self) -> dict[str, Any]:
        """Return the entry as plain data, from which `Entry(**record)` rebuilds it."""
        record: dict[str, Any] = {"values": dict(self.values)} if self.values else {}
        record |= {} if self.until_ms is None else {"until_ms": self.until_ms}
        return record | {name: text for name in ("author", "reason") if (text := getattr(self, name))}


Changes = Mapping[str, Entry | None]  # By key, its new entry; None if it is removed


_HASH: Final = "hash"
_FORM: Final = "keys"
_FIXED: Final = {
    "key": pa.large_string(),
    "until_ms": pa.int64(),
    "author": pa.large_string(),
    "reason": pa.large_string(),
}
EMPTY_IF_NULL: Final = ("author", "reason")  # Columns in which null equals the empty text
_VALUE: Final = "value:"
_PROBE: Final = "probe"
"""The hash of a known text, stored with the hashes to reject a file whose hashes were computed differently."""


def hashes_of(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return a hash of each key, uint64 `(keys,)`, the same in every process."""
    from pandas.util import hash_array  # slow to import, and needed only for lists

    texts = np.asarray(keys.to_pylist(), object)
    hashes: npt.NDArray[np.uint64] = hash_array(texts, categorize=False)
    return hashes


def entries_table(
    keys: pa.Array, until_ms: pa.Array, author: pa.Array, reason: pa.Array, values: dict[str, pa.Array]
) -> pa.Table:
    """Return entries as a table, in any order: distinct keys without nulls, and values by name.

    `until_ms` is null if an entry never expires, a value if an entry has none of that name.
    """
    fixed = {"key": keys, "until_ms": until_ms, "author": author, "reason": reason}
    columns = {name: fixed[name].cast(kind) for name, kind in _FIXED.items()}
    return pa.table(
        columns | {_VALUE + name: column.cast(pa.large_string()) for name, column in sorted(values.items())}
    )


def table_of(entries: dict[str, Entry]) -> pa.Table:
    """Return entries as a table."""
    values = list(entries.values())
    names = sorted({name for entry in values for name in entry.values})
    return entries_table(
        pa.array(list(entries), pa.large_string()),
        pa.array([entry.until_ms for entry in values], pa.int64()),
        pa.array([entry.author for entry in values], pa.string()),
        pa.array([entry.reason for entry in values], pa.string()),
        {name: pa.array([entry.values.get(name) for entry in values], pa.string()) for name in names},
    )


def _entry_of(record: dict[str, Any]) -> Entry:
    named = ((name, text) for name, text in record.items() if name.startswith(_VALUE) and text is not None)
    values = {name[len(_VALUE) :]: text for name, text in named}
    return Entry(values, record["until_ms"], record["author"] or "", record["reason"] or "")


@dataclass(frozen=True)
class ListBase:
    """A whole list."""

    table: pa.Table  # of `entries_table`, sorted by the hash of the key, each column in one piece
    hashes: npt.NDArray[np.uint64]  # uint64 `(entries,)`, ascending
    form: KeyForm = TEXT_KEYS  # the form of its keys

    @classmethod
    def of(cls, table: pa.Table, form: KeyForm = TEXT_KEYS) -> "ListBase":
        """Sort a table of entries into a base. Cost: O(entries log entries)."""
        hashes = hashes_of(table["key"])
        order = np.argsort(hashes, kind="stable")
        return cls(table.take(pa.array(order)).combine_chunks(), hashes[order], form)

    def __len__(self) -> int:
        return len(self.hashes)

    def write(self, path: str) -> None:
        """Write the list to a file for `open_base`, and flush it to disk."""
        whole = self.table.append_column(_HASH, pa.array(self.hashes))
        form = {"parts": self.form.parts, "match": self.form.match}
        written = json.dumps({"form": form, "prefixes": sorted(self.prefixes)})
        whole = whole.replace_schema_metadata({_PROBE: _probe(), _FORM: written})
        with open(path, "wb") as file:
            with pa.ipc.new_file(file, whole.schema) as writer:
                writer.write_table(whole, max_chunksize=max(len(self), 1))
            file.flush()
            os.fsync(file.fileno())

    @cached_property
    def prefixes(self) -> frozenset[Prefix]:
        """The prefixes of its networks; empty for a list of other keys."""
        networks = self.key_texts(np.arange(len(self))) if self.form.match == "cidr" else []
        return prefixes_of(networks)

    def first_repeated(self) -> str | None:
        """Return a repeated key; None if there is none."""
        same = np.flatnonzero(self.hashes[1:] == self.hashes[:-1])
        if not len(same):
            return None
        seen: set[str] = set()
        for key in self.key_texts(np.union1d(same, same + 1)).to_pylist():
            if key in seen:
                return str(key)
            seen.add(key)
        return None

    def find(self, keys: pa.Array, hashes: npt.NDArray[np.uint64] | None = None) -> Int64s:
        """Return the row of each key, int64 `(keys,)`; -1 if it is missing. Cost: O(keys log entries).

        `hashes` of the keys are computed if not given.
        """
        places = np.full(len(keys), -1, np.int64)
        if not len(self) or not len(keys):
            return places
        hashes = hashes_of(keys) if hashes is None else hashes
        rows = np.searchsorted(self.hashes, hashes)
        open_keys = np.arange(len(keys))
        while len(open_keys):
            # Rows with an equal hash; other keys are missing.
            at = rows[open_keys]
            inside = at < len(self)
            inside[inside] = self.hashes[at[inside]] == hashes[open_keys[inside]]
            open_keys = open_keys[inside]
            at = rows[open_keys]
            texts = self.key_texts(at)
            is_it = pc.equal(texts, keys.take(pa.array(open_keys))).to_numpy(zero_copy_only=False)
            places[open_keys[is_it]] = at[is_it]
            open_keys = open_keys[~is_it]
            rows[open_keys] += 1
        return places

    def key_texts(self, rows: Int64s) -> pa.Array:
        """Return the keys of rows."""
        return _taken(self.table["key"], rows).cast(pa.large_string())

    def until_ms(self, rows: Int64s) -> pa.Array:
        """Return the expiry of rows, int64; null if they never expire."""
        return _taken(self.table["until_ms"], rows)

    def values(self, name: str, rows: Int64s) -> pa.Array:
        """Return a value of rows as text; null if there is none of that name."""
        if _VALUE + name not in self.table.column_names:
            return pa.nulls(len(rows), pa.string())
        return _taken(self.table[_VALUE + name], rows).cast(pa.string())

    def entries(self, rows: Int64s) -> list[Entry]:
        """Return the entries of rows."""
        return [_entry_of(record) for record in self.table.take(pa.array(rows)).to_pylist()]


def _taken(column: pa.ChunkedArray, rows: Int64s) -> pa.Array:
    return column.chunk(0).take(pa.array(rows)) if column.num_chunks else pa.nulls(0, column.type)


def open_base(path: str) -> ListBase:
    """Open a list written by `write`; its columns stay in the file until they are used."""
    table = pa.ipc.open_file(pa.memory_map(path)).read_all()
    entries, metadata = table.drop_columns([_HASH]).replace_schema_metadata(), table.schema.metadata or {}
    keys = json.loads(metadata.get(_FORM.encode(), '{"form": {}, "prefixes": []}'))
    if metadata.get(_PROBE.encode()) != _probe().encode():
        return ListBase.of(entries, KeyForm(**keys["form"]))
    hashes = table[_HASH].chunk(0).to_numpy() if len(table) else np.zeros(0, np.uint64)
    base = ListBase(entries, hashes, KeyForm(**keys["form"]))
    # Stored in the file, since computing them would read all of its keys.
    vars(base)["prefixes"] = frozenset((version, bits) for version, bits in keys["prefixes"])
    return base


def _probe() -> str:
    return str(int(hashes_of(pa.array(["probe"]))[0]))
