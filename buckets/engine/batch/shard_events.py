"""The events of a shard's share of a batch, each once, and the keys that they have in each group.

Several pieces of arrivals become one here: in the order of arrival, each key once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.byte_strings import ByteStrings, concatenated, fixed
from buckets.engine.batch.arrival_order import arrival, ascend
from buckets.engine.batch.counting_sort import sort_by_code
from buckets.engine.batch.events_by_key import EventsByKey
from buckets.engine.batch.shard_payload import ShardPayload
from buckets.engine.storage.shard_store import GROUP_BYTES
from buckets.engine.storage.text_column import column_of, strings_of, texts_of

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShardEvents:
    """Events with their keys: group by group, key by key, each key's in arrival order.

    Attributes:
        group_ids: the groups.
        group_start: int64 `(groups + 1,)`, where the keys of each begin.
        key_start: int64 `(keys + 1,)`, where the events of each key begin.
        keys: the keys, in UTF-8.
        rows: int64, the row of each event; one has as many as it has groups.
        events: the events, a row each.
    """

    group_ids: Sequence[str]
    group_start: Int64s
    key_start: Int64s
    keys: ByteStrings
    rows: Int64s
    events: pa.Table

    @classmethod
    def of(cls, pieces: Sequence[ShardPayload], group_ids: Sequence[str]) -> "ShardEvents":
        """Return what several pieces of arrivals have sent, at least one.

        Args:
            pieces: what they have sent.
            group_ids: all groups, in the order in which they are wanted.
        """
        if len(pieces) == 1 and ascend(*arrival(pieces[0].events)):
            (piece,) = pieces
            keys = fixed(piece.key_data, _starts(piece.key_bytes))
            starts, rows = (_starts(piece.keys), _starts(piece.key_events)), piece.rows.astype(np.int64)
            return cls(piece.group_ids, *starts, keys, rows, piece.events)
        return _merged(sorted(pieces, key=_first_arrival), group_ids)

    @classmethod
    def of_group(cls, group_id: str, arrived: EventsByKey) -> "ShardEvents":
        """Return the events of one group."""
        keys, rows = strings_of(arrived.keys), np.arange(len(arrived.codes))
        return cls([group_id], np.array([0, keys.size]), arrived.key_start, keys, rows, arrived.events)

    def keys_of(self, group: int) -> pa.Array:
        """Return the keys of a group, Arrow string."""
        return texts_of(self.keys.slice(*self.group_start[group : group + 2].tolist()))

    def events_of(self, group: int) -> slice:
        """Return where the events of a group stand in `rows`."""
        first, end = self.group_start[group : group + 2]
        return slice(self.key_start[first].item(), self.key_start[end].item())

    def codes_of(self, group: int) -> Int64s:
        """Return the key of each event of a group, as its index among the keys of the group."""
        first, end = self.group_start[group : group + 2].tolist()
        return np.repeat(np.arange(end - first), np.diff(self.key_start[first : end + 1]))

    def by_key(self, group: int) -> EventsByKey:
        """Return the events of a group as a table of their own."""
        first, end = self.group_start[group : group + 2]
        events = self.events.take(pa.array(self.rows[self.events_of(group)])).combine_chunks()
        key_start = self.key_start[first : end + 1] - self.key_start[first]
        return EventsByKey(events, self.codes_of(group), key_start, self.keys_of(group))


def _starts(lengths: npt.NDArray[np.integer]) -> Int64s:
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start


def _first_arrival(piece: ShardPayload) -> tuple[int, str, int]:
    events = piece.events
    return events["source_order"][0].as_py(), events["source"][0].as_py(), events["position"][0].as_py()


def _merged(pieces: Sequence[ShardPayload], group_ids: Sequence[str]) -> ShardEvents:
    """Return pieces, the first of which came first, as one."""
    events = pa.concat_tables([piece.events for piece in pieces]).unify_dictionaries().combine_chunks()
    first_row = _starts(np.array([len(piece.events) for piece in pieces]))
    rows = np.concatenate([piece.rows + first for piece, first in zip(pieces, first_row[:-1].tolist(), strict=True)])
    numbers = {group_id: number for number, group_id in enumerate(group_ids)}
    groups = np.concatenate(
        [np.repeat([numbers[group_id] for group_id in piece.group_ids], piece.keys) for piece in pieces]
    )
    texts = concatenated([fixed(piece.key_data, _starts(piece.key_bytes)) for piece in pieces])
    key_events = np.concatenate([piece.key_events for piece in pieces])
    prefixes = fixed(groups.astype(">i8").view(np.uint8), np.arange(len(groups) + 1) * GROUP_BYTES)
    distinct = column_of(prefixes.followed_by(texts)).dictionary_encode()
    codes = distinct.indices.to_numpy()
    _, firsts = np.unique(codes, return_index=True)
    by_group, group_start = sort_by_code(groups[firsts].astype(np.int64), len(group_ids))
    place = np.empty(len(firsts), np.int64)
    place[by_group] = np.arange(len(firsts))
    key_of = np.repeat(place[codes], key_events)
    order, key_start = sort_by_code(key_of, len(firsts))
    columns = arrival(events)
    if not ascend(*columns):
        order = np.lexsort((*(column[rows] for column in reversed(columns)), key_of))
    there = np.flatnonzero(np.diff(group_start))
    return ShardEvents(
        [group_ids[group] for group in there.tolist()],
        np.append(group_start[there], group_start[-1]),
        key_start,
        texts.take(firsts[by_group]),
        rows[order].astype(np.int64),
        events,
    )
