"""The events of a group as a table of their own, key by key, each key's events in the order of arrival.

So they lie in files and in the state, where they wait for a fill.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch.arrival_order import arrival, ascend, whole
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
    codes, arrived = key.indices.to_numpy().astype(np.int64), arrival(table)
    order, key_start = sort_by_code(codes, len(key.dictionary))
    if not ascend(*(column[order] for column in (codes, *arrived))):
        order = np.lexsort((*reversed(arrived), codes))
    events = table.drop_columns(["key"])
    if not ascend(order):
        events, codes = events.take(pa.array(order)).combine_chunks(), codes[order]
    return EventsByKey(events, codes, key_start, key.dictionary)


def _first_arrival(table: pa.Table) -> tuple[int, str, int]:
    return table["source_order"][0].as_py(), table["source"][0].as_py(), table["position"][0].as_py()
