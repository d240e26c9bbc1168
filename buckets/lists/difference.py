"""What tells a list that was read whole from the list in force."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.lists.base import EMPTY_IF_NULL, ListBase, hashes_of
from buckets.lists.entry import Entry
from buckets.lists.index import ListIndex

Flags = npt.NDArray[np.bool_]


def difference(index: ListIndex, read: ListBase) -> tuple[ListIndex, dict[str, Entry | None] | None, int]:
    """Return how a list becomes another one. Cost: O(entries).

    Args:
        index: the list in force.
        read: the list as it is to be.

    Returns:
        The new list; the changes that lead to it, None if it is better written whole; and how many there are.
    """
    at = index.base.find(read.key_texts(np.arange(len(read))), read.hashes)
    new = at < 0
    differs = new | _differs(index.base, read, at)
    gone = np.ones(len(index.base), np.bool_)
    gone[at[~new]] = False
    changes: dict[str, Entry | None] = {}
    if index.changes:
        # What has changed since the base is compared one by one.
        keys = list(index.changes)
        places = read.find(texts := pa.array(keys, pa.large_string()), hashes_of(texts))
        differs[places[places >= 0]] = False
        in_base = index.base.find(texts, hashes_of(texts))
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


def _differs(base: ListBase, read: ListBase, at: npt.NDArray[np.int64]) -> Flags:
    """Return which rows of what was read are in a base with another entry."""
    rows = pa.array(at, mask=at < 0)
    differs = np.zeros(len(read), np.bool_)
    for name in sorted({*base.columns(), *read.columns()}):
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
