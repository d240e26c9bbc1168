"""The events of a group as a shard scores them: one table, key by key, each key's events in the order of arrival."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch.counting_sort import sort_by_code

Int64s = npt.NDArray[np.int64]


class EventsByKey(NamedTuple):
    """The events of a group, key by key, each key's in arrival order.

    Attributes:
        events: the events, without their keys.
        codes: int64 `(events,)`, the index of each event's key.
        key_start: int64 `(keys + 1,)`, where each key's events begin.
        keys: the keys, Arrow string `(keys,)`.
    """

    events: pa.Table
    codes: Int64s
    key_start: Int64s
    keys: pa.Array


def by_key(tables: list[pa.Table]) -> EventsByKey:
    """Return tables of one group as one table, key by key, each key's events in arrival order.

    `fan_out` has made each of them so. Tables of pieces that came one after the other are sorted by key alone.
    """
    table = tables[0]
    if len(tables) > 1:
        table = pa.concat_tables(sorted(tables, key=_first_arrival)).unify_dictionaries().combine_chunks()
    key = whole(table["key"])
    codes, arrival = key.indices.to_numpy().astype(np.int64), _arrival(table)
    order, key_start = sort_by_code(codes, len(key.dictionary))
    if not _ascend([column[order] for column in (codes, *arrival)]):
        order = np.lexsort((*reversed(arrival), codes))
    events = table.drop_columns(["key"])
    if not _ascend([order]):
        events, codes = events.take(pa.array(order)).combine_chunks(), codes[order]
    return EventsByKey(events, codes, key_start, key.dictionary)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of numbers or of a dictionary in one piece."""
    return pa.concat_arrays(column.unify_dictionaries().chunks)


def _first_arrival(table: pa.Table) -> tuple[int, str, int]:
    return table["source_order"][0].as_py(), table["source"][0].as_py(), table["position"][0].as_py()


def _arrival(table: pa.Table) -> list[Int64s]:
    """Return what orders the arrivals of a table: source_order, source and position, as numbers."""
    order, position = table["source_order"].to_numpy(), table["position"].to_numpy()
    source = whole(table["source"])
    if len(source.dictionary) == 1:
        return [order, position]
    names = source.dictionary.to_pylist()
    rank_of = {name: rank for rank, name in enumerate(sorted(names))}
    rank = np.array([rank_of[name] for name in names], np.int64)[source.indices.to_numpy()]
    return [order, rank, position]


def _ascend(columns: Sequence[Int64s]) -> bool:
    """Return whether rows stand in the order of columns, the first of which counts most."""
    forward = np.diff(columns[-1]) >= 0
    for column in reversed(columns[:-1]):
        step = np.diff(column)
        forward = (step > 0) | ((step == 0) & forward)
    return bool(forward.all())
