"""Dead letters as a table, one row per event; and the arrival order of events."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Int64s
from buckets.events.arrivals import DeadLetter
from buckets.outputs.columns import DEAD_LETTER_COLUMNS

_EVENT = ("source_order", "position", "source", "raw")


def dead_letter_table(dead_letters: Iterable[DeadLetter]) -> pa.Table:
    """Return dead letters as a table."""
    return pa.Table.from_pylist([vars(dead_letter) for dead_letter in dead_letters], schema=DEAD_LETTER_COLUMNS)


def bad_rows(dead_letters: pa.Table) -> Iterator[tuple[str, int, str]]:
    """Return source, position and reason of each dead letter, in arrival order, as `BadRows` expects."""
    ordered = dead_letters.sort_by([("source_order", "ascending"), ("position", "ascending")])
    return zip(*(ordered[name].to_pylist() for name in ("source", "position", "reason")), strict=True)


def one_dead_letter_per_event(dead_letters: pa.Table) -> pa.Table:
    """Return the dead letters of a batch in arrival order, with all reasons of an event in one row.

    An event may have failed in several groups and for several rules. Complexity: O(n log n).

    Args:
        dead_letters: all dead letters of a batch, as `dead_letter_table` makes them, in any order.
    """
    ordered = dead_letters.sort_by([(name, "ascending") for name in (*_EVENT, "reason")])
    ordered = ordered.filter(pc.invert(_repeats(ordered, (*_EVENT, "reason"))))
    first = np.flatnonzero(~_repeats(ordered, _EVENT).to_numpy(zero_copy_only=False))
    if len(first) == len(ordered):
        return ordered
    offsets = pa.array(np.append(first, len(ordered)), pa.int64())
    reasons = pa.LargeListArray.from_arrays(offsets, ordered["reason"].combine_chunks())
    joined = pc.binary_join(reasons, "; ")
    return ordered.take(pa.array(first)).set_column(ordered.schema.get_field_index("reason"), "reason", joined)


def _repeats(ordered: pa.Table, names: Iterable[str]) -> pa.BooleanArray:
    """Return whether each row repeats the values of the row before it; nulls count as equal."""
    same = pa.repeat(True, max(len(ordered) - 1, 0))
    for name in names:
        row, before = ordered[name].slice(1), ordered[name].slice(0, len(same))
        both_missing = pc.and_(pc.is_null(row), pc.is_null(before))
        equal = pc.or_(pc.fill_null(pc.equal(row, before), False), both_missing)
        same = pc.and_(same, equal.combine_chunks())
    return pa.concat_arrays([pa.repeat(False, min(len(ordered), 1)), same])


def arrival(table: pa.Table) -> list[Int64s]:
    """Return the sort keys of arrival order as integer columns: source_order, source and position."""
    order, position = table["source_order"].to_numpy(), table["position"].to_numpy()
    source = whole(table["source"])
    if len(source.dictionary) == 1:
        return [order, position]
    names = source.dictionary.to_pylist()
    rank_of = {name: rank for rank, name in enumerate(sorted(names))}
    rank = np.array([rank_of[name] for name in names], np.int64)[source.indices.to_numpy()]
    return [order, rank, position]


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a numeric or dictionary column as a single chunk."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.unify_dictionaries().chunks)


def ascend(*columns: Int64s) -> bool:
    """Return whether rows are sorted by these columns, the first one being the most significant."""
    if len(columns[0]) < 2:
        return True
    forward = np.diff(columns[-1]) >= 0
    for column in reversed(columns[:-1]):
        step = np.diff(column)
        forward = (step > 0) | ((step == 0) & forward)
    return bool(forward.all())
