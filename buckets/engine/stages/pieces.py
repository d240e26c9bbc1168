"""What shards put out, cut into pieces each of which can be worked on by itself, whichever shards its rows come from.

Parts are cut by their event, since all parts of an event meet. Results are cut by the key of their message, since
messages of one key stay in order. A piece of one payload is a payload itself, or empty.
"""

import zlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.engine.batch import payload

Int64s = npt.NDArray[np.int64]
ARRIVAL = ("source_order", "source", "position")
"""The order of arrival."""
PIECES = 32
"""How many pieces there are: more tasks than that cannot work on the results of a batch at once."""


def cut_by_event(packed: bytes) -> list[bytes]:
    """Cut a payload of parts into `PIECES`."""
    table = payload.unpack(packed)
    return _cut(table, event_numbers(table) % PIECES, packed[:1], payload.group_of(table))


def cut_by_key(table: pa.Table) -> list[bytes]:
    """Cut decoded rows of an output into `PIECES`."""
    keys = pa.chunked_array(table["key"]).cast(pa.string()).combine_chunks().dictionary_encode()
    hashes = [zlib.crc32((key or "").encode()) for key in [*keys.dictionary.to_pylist(), None]]
    codes = keys.indices.fill_null(len(keys.dictionary)).to_numpy(zero_copy_only=False)
    return _cut(table, np.array(hashes, np.int64)[codes] % PIECES, payload.ROWS, "")


def by_arrival(table: pa.Table, most_rows: int) -> Iterator[pa.Table]:
    """Yield rows in the order of their events' arrival, some at once, and those of an event together.

    Args:
        table: decoded rows of an output.
        most_rows: about so many come at once.
    """
    if len(table) <= most_rows:
        yield table
        return
    ordered = table.take(pc.sort_indices(table, [(name, "ascending") for name in ARRIVAL]))
    starts = np.flatnonzero(np.diff(event_numbers(ordered))) + 1
    wanted = np.arange(most_rows, len(table), most_rows)
    cuts = np.unique(np.append(starts, len(table))[np.searchsorted(starts, wanted)])
    for start, end in pairwise([0, *cuts.tolist(), len(table)]):
        if end > start:
            yield ordered.slice(start, end - start)


def event_numbers(table: pa.Table) -> Int64s:
    """Return a number for each event, by where it stood; the same in all groups, and nearly always its own."""
    orders, positions = (table[name].to_numpy() for name in ("source_order", "position"))
    numbers: Int64s = orders * 1_000_003 + positions
    return numbers


def _cut(table: pa.Table, piece: Int64s, kind: bytes, group_id: str) -> list[bytes]:
    order = np.argsort(piece, kind="stable")
    start = np.searchsorted(piece[order], np.arange(PIECES + 1))
    rows = (order[start[number] : start[number + 1]] for number in range(PIECES))
    return [payload.pack(kind, compact(table.take(pa.array(of))), group_id) if len(of) else b"" for of in rows]


def compact(table: pa.Table) -> pa.Table:
    """Return a table that was taken from a larger one, with dictionaries of what is left."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table[field.name].cast(field.type.value_type).dictionary_encode()
            table = table.set_column(index, field.name, column)
    return table
