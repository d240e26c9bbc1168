"""One version of a list: a base, and the changes since.

A change makes a new index, which shares the base with the old one and copies a small dictionary. When the dictionary
has grown, `compacted` makes a new base.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Flags, Int64s
from buckets.errors import BucketsError
from buckets.lists.base import EMPTY_IF_NULL, Changes, Entry, ListBase, table_of
from buckets.lists.keys import TEXT_KEYS, KeyForm, Prefix, networks_around, prefixes_of
from buckets.printable import counted

MOST_CHANGES: Final = 2_000  # With more changes than this, and more than one per fifty entries, a new base is made
_SHARE: Final = 50


@dataclass(frozen=True)
class ListIndex:
    """A list that finds keys."""

    base: ListBase  # the whole list at some earlier time
    changes: Changes = field(default_factory=dict)  # the changes since

    @classmethod
    def of(cls, entries: Mapping[str, Entry], form: KeyForm = TEXT_KEYS) -> "ListIndex":
        """Build a list from entries by key; keys have this form."""
        return cls(ListBase.of(table_of(dict(entries)), form))

    @property
    def form(self) -> KeyForm:
        """What its keys consist of."""
        return self.base.form

    @property
    def parts(self) -> int:
        """The number of columns in a key."""
        return self.form.parts

    @cached_property
    def _prefixes(self) -> frozenset[Prefix]:
        changed = [key for key, entry in self.changes.items() if entry is not None and self.form.match == "cidr"]
        return self.base.prefixes | prefixes_of(changed)

    def with_changes(self, changes: Changes) -> "ListIndex":
        """Return the list after changes. Cost: O(changes since the base)."""
        return ListIndex(self.base, {**self.changes, **changes})

    def would_scatter(self, changes: int) -> bool:
        """Return whether this many changes are too many for one base."""
        return changes > max(MOST_CHANGES, len(self.base) // _SHARE)

    def compacted(self) -> "ListIndex":
        """Return the same list as a base without changes. Cost: O(entries log entries)."""
        kept = np.ones(len(self.base), np.bool_)
        rows = self.base.find(pa.array(list(self.changes), pa.large_string()))
        kept[rows[rows >= 0]] = False
        new = {key: entry for key, entry in self.changes.items() if entry is not None}
        # Either may have values that the other lacks.
        tables = [self.base.table.filter(pa.array(kept)), table_of(new)]
        table = pa.concat_tables(tables, promote_options="default")
        return ListIndex(ListBase.of(table, self.form))

    def entries(self) -> int:
        """Return the number of entries, including expired ones. Cost: O(changes since the base)."""
        known = int((self.base.find(pa.array(list(self.changes), pa.large_string())) >= 0).sum())
        return len(self.base) - known + sum(entry is not None for entry in self.changes.values())

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key, even an expired one; None if there is none."""
        return self.get_all([key])[0]

    def get_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return the entry of each key, as `get` does."""
        entries = [self.changes.get(key) for key in keys]
        others = [number for number, key in enumerate(keys) if key not in self.changes]
        if others:
            rows = self.base.find(pa.array([keys[number] for number in others], pa.large_string()))
            there = np.flatnonzero(rows >= 0)
            for number, entry in zip(there.tolist(), self.base.entries(rows[there]), strict=True):
                entries[others[number]] = entry
        return entries

    def find(self, key: str) -> tuple[str, Entry] | None:
        """Return a key with its entry, as `get` finds it; of networks the most specific one that contains the key."""
        keys = [key]
        if self.form.match == "cidr":
            address, _, length = key.rpartition("/")
            prefixes = ((version, bits) for version, bits in self._prefixes if bits <= int(length))
            keys = [networks[0].as_py() for networks in networks_around(pa.array([address]), prefixes)]
        entries = zip(keys, self.get_all(keys), strict=True)
        return next(((found, entry) for found, entry in entries if entry is not None), None)

    def contain(self, keys: pa.Array, times_ms: Int64s) -> pa.BooleanArray:
        """Return whether it holds each key with an entry valid at that time, both `(rows,)`; null for a null key."""
        found = np.zeros(len(keys), np.bool_)
        for looked_up in self._look_up(keys):
            found |= looked_up.counting(times_ms)
        return pa.array(found, mask=keys.is_null().to_numpy(zero_copy_only=False))

    def values(self, keys: pa.Array, times_ms: Int64s, name: str) -> pa.Array:
        """Return a value for each key at that time, both `(rows,)`; null for a null key or if there is no value.

        Of networks, the most specific unexpired one that contains the address counts.
        """
        found, is_open = pa.nulls(len(keys), pa.string()), np.ones(len(keys), np.bool_)
        for looked_up in self._look_up(keys):
            counting = looked_up.counting(times_ms) & is_open
            found = pc.if_else(pa.array(counting), looked_up.values(name).take(pa.array(looked_up.codes)), found)
            is_open &= ~counting
        return found

    def _look_up(self, keys: pa.Array) -> Iterator["_LookedUp"]:
        """Yield the entries found for keys; in a list of networks one result per prefix, the most specific first."""
        is_cidr = self.form.match == "cidr"
        for texts in networks_around(keys, self._prefixes) if is_cidr else (keys,):
            yield _LookedUp.of(self, texts)


@dataclass(frozen=True)
class _LookedUp:
    """The entries found for keys, each distinct key looked up once."""

    index: ListIndex  # the list
    codes: Int64s  # int64 `(rows,)`, each row's key; 0 where it is null
    is_null: Flags  # bool `(rows,)`
    rows: Int64s  # int64 `(keys,)`, the key's row in the base; -1 if missing or replaced
    changed: Mapping[int, Entry]  # by key number, its entry since the base

    @classmethod
    def of(cls, index: ListIndex, keys: pa.Array) -> "_LookedUp":
        coded = keys.dictionary_encode()
        is_null = coded.indices.is_null().to_numpy(zero_copy_only=False)
        different = coded.dictionary.cast(pa.large_string())
        if not len(different):
            different = pa.array([""], pa.large_string())
        rows = index.base.find(different)
        changed = {}
        for number, key in enumerate(different.to_pylist() if index.changes else ()):
            if key not in index.changes:
                continue
            entry = index.changes[key]
            rows[number] = -1
            if entry is not None:
                changed[number] = entry
        codes = coded.indices.fill_null(0).to_numpy().astype(np.int64)
        return cls(index, codes, is_null, rows, changed)

    def counting(self, times_ms: Int64s) -> Flags:
        """Return which rows have a key with an entry valid at their time."""
        there = self.rows >= 0
        limited, until_ms = np.zeros(len(there), np.bool_), np.zeros(len(there), np.int64)
        in_base = np.flatnonzero(there)
        of_base = self.index.base.until_ms(self.rows[in_base])
        limited[in_base] = of_base.is_valid().to_numpy(zero_copy_only=False)
        until_ms[in_base] = of_base.fill_null(0).to_numpy()
        for number, entry in self.changed.items():
            there[number] = True
            limited[number], until_ms[number] = entry.until_ms is not None, entry.until_ms or 0
        codes = self.codes
        counting: Flags = there[codes] & (~limited[codes] | (times_ms < until_ms[codes]))
        return counting & ~self.is_null

    def values(self, name: str) -> pa.Array:
        """Return a value of each key, whether its entry is valid or not."""
        in_base = self.index.base.values(name, np.maximum(self.rows, 0)) if len(self.index.base) else None
        texts = [None] * len(self.rows) if in_base is None else in_base.to_pylist()
        for number in np.flatnonzero(self.rows < 0).tolist():
            texts[number] = None
        for number, entry in self.changed.items():
            texts[number] = entry.values.get(name)
        return pa.array(texts, pa.string())


def difference(index: ListIndex, read: ListBase) -> tuple[ListIndex, dict[str, Entry | None] | None, int]:
    """Return the new version of a list given its whole contents, the changes that lead to it, and their number.

    The changes are None if the list is better written whole. Cost: O(entries).
    """
    at = index.base.find(read.key_texts(np.arange(len(read))), read.hashes)
    new = at < 0
    differs = new | _differs(index.base, read, at)
    gone = np.ones(len(index.base), np.bool_)
    gone[at[~new]] = False
    changes: dict[str, Entry | None] = {}
    if index.changes:
        # Changes since the base are compared one by one.
        keys = list(index.changes)
        texts = pa.array(keys, pa.large_string())
        places = read.find(texts)
        differs[places[places >= 0]] = False
        in_base = index.base.find(texts)
        gone[in_base[in_base >= 0]] = False
        wanted = ListIndex(read).get_all(keys)
        changes = {key: entry for key, entry in zip(keys, wanted, strict=True) if entry != index.changes[key]}
    changed = np.flatnonzero(differs)
    removed = np.flatnonzero(gone)
    count = len(changes) + len(changed) + len(removed)
    if index.would_scatter(count):
        return ListIndex(read), None, count
    changes |= zip(read.key_texts(changed).to_pylist(), read.entries(changed), strict=True)
    changes |= dict.fromkeys(index.base.key_texts(removed).to_pylist())
    return index.with_changes(changes), changes, count


def _differs(base: ListBase, read: ListBase, at: Int64s) -> Flags:
    """Return which rows of the contents read differ from their entries in a base."""
    rows = pa.array(at, mask=at < 0)
    differs = np.zeros(len(read), np.bool_)
    for name in sorted({*base.table.column_names, *read.table.column_names} - {"key"}):
        ours, theirs = _column(base, name).take(rows), _column(read, name)
        same = pc.or_kleene(pc.equal(ours, theirs), pc.and_(ours.is_null(), theirs.is_null()))
        differs |= ~pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    return differs


def _column(base: ListBase, name: str) -> pa.Array:
    if name not in base.table.column_names:
        return pa.nulls(len(base), pa.large_string())
    if not len(base):
        return pa.nulls(0, base.table.schema.field(name).type)
    column = pa.concat_arrays(base.table[name].chunks)
    return pc.fill_null(column, "") if name in EMPTY_IF_NULL else column


Lists = Mapping[str, ListIndex]  # By name, the lists of a batch
NO_LISTS: Final[Lists] = MappingProxyType({})


@dataclass(frozen=True)
class ListsAt:
    """Lists at the events for which a condition is evaluated."""

    lists: Lists  # the lists
    times_ms: Int64s  # int64 `(rows,)`, when each event happened

    def take(self, rows: Int64s) -> "ListsAt":
        """Return the lists at the events with these row numbers, which may repeat."""
        return ListsAt(self.lists, self.times_ms[rows])

    def contain(self, name: str, parts: int, keys: pa.Array) -> pa.BooleanArray:
        """Return whether a list holds each row's key of `parts` columns; null for a null key."""
        return self._list(name, parts).contain(keys, self.times_ms)

    def values(self, name: str, parts: int, keys: pa.Array, value: str) -> pa.Array:
        """Return the value of this name for each row's key; null if there is none."""
        return self._list(name, parts).values(keys, self.times_ms, value)

    def _list(self, name: str, parts: int) -> ListIndex:
        if name not in self.lists:
            there = ", ".join(sorted(self.lists)) or "none"
            message = f"there is no list {name!r}; lists of the job: {there}; add it under `lists`, or correct the name"
            raise BucketsError(message)
        fault = key_fault(name, parts, self.lists[name].parts)
        if fault is not None:
            raise BucketsError(fault)
        return self.lists[name]


def key_fault(name: str, given: int, parts: int) -> str | None:
    """Describe what is wrong with a key of `given` columns in a rule; None if the list's keys have as many."""
    if parts in (given, 0):
        return None
    key = "a" if parts == 1 else f"({', '.join('abcd'[:parts])})"
    return f"a key of list {name!r} has {counted(parts, 'value')}, not {given}; write it as in {key} IN LIST {name}"
