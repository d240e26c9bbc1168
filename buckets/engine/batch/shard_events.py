"""A shard's share of a batch, packed for the shuffle: each event once, with its keys in each group.

Pieces of arrivals are merged here, in arrival order and with each key once.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.arrays import Int32s, Int64s, starts_of
from buckets.byte_strings import ByteStrings, concatenated, fixed
from buckets.engine.batch.dead_letters import arrival, ascend, whole
from buckets.engine.batch.partitioner import Partitioned, sort_by_code
from buckets.engine.batch.payload import SHARD
from buckets.engine.storage.shard_store import GROUP_BYTES, column_of, strings_of, texts_of
from buckets.kernel.keyed_events import ASKS, COUNTS, FILLS

Int8s = npt.NDArray[np.int8]
MOST_TOGETHER = 50_000  # Events of keys: of more, each shard by itself takes less memory, and no longer
_ALIGNED = 8
_SOURCES = b"sources"


def way_id(group_id: str, way: int) -> str:
    """Return a group's id for events that enter it in one way, FILLS | COUNTS | ASKS; its own id for COUNTS."""
    return f"{int(group_id, 16) ^ way ^ COUNTS:016x}"


class ShardPayload(NamedTuple):
    """The events and keys that a piece of arrivals sends to one shard."""

    group_ids: Sequence[str]  # the groups in which it has keys, see `way_id`
    keys: Int64s  # int64 `(groups,)`, how many of each
    key_events: Int32s  # int32 `(keys,)`, how many events each key has
    key_bytes: Int32s  # int32 `(keys,)`, how many bytes each key has
    rows: Int32s  # int32, the row of each key's events
    key_data: npt.NDArray[np.uint8]  # uint8, the keys, one after the other
    events: pa.Table  # the events in the order of arrival


@dataclass(frozen=True)
class SentEvents:
    """The events and keys that a piece of arrivals sends to all shards."""

    group_ids: Sequence[str]  # the groups in which events have keys, see `way_id`
    partitioned: Partitioned  # what goes to which shard
    events: pa.Table  # the events in the order of arrival; their column `source` is a dictionary

    @property
    def shards(self) -> list[int]:
        """The shards that get an event."""
        return np.flatnonzero(np.diff(self.partitioned.key_start)).tolist()

    def are_few_and_plain(self, group_ids: Sequence[str]) -> bool:
        """Return whether events are few, in arrival order and all count; `group_ids` are all groups."""
        is_small = len(self.partitioned.rows) <= MOST_TOGETHER
        return is_small and set(self.group_ids).issubset(group_ids) and ascend(*arrival(self.events))

    @cached_property
    def _of_shards(self) -> pa.Table:
        """The events, shard by shard."""
        return self.events.take(pa.array(self.partitioned.events)).combine_chunks()

    def of_shard(self, shard: int) -> ShardPayload:
        """Return the payload for one shard."""
        parts, of_groups = self.partitioned, self.partitioned.keys[shard]
        keys, data, rows, events = parts.stretches(shard)
        groups = np.flatnonzero(of_groups)
        return ShardPayload(
            [self.group_ids[group] for group in groups.tolist()],
            of_groups[groups],
            parts.key_events[keys],
            parts.key_bytes[keys],
            parts.rows[rows],
            parts.key_data[data],
            self._of_shards.slice(events.start, events.stop - events.start),
        )

    def packed(self) -> Iterator[tuple[int, bytes]]:
        """Yield each shard that gets an event, with its payload as bytes."""
        of_shards = self._of_shards
        source, at = whole(of_shards["source"]), of_shards.schema.get_field_index("source")
        named = {_SOURCES: json.dumps(source.dictionary.to_pylist()).encode()}
        plain = of_shards.set_column(at, "source", source.indices).replace_schema_metadata(named)
        schema = plain.schema.serialize().to_pybytes()
        for shard in self.shards:
            first, end = self.partitioned.event_start[shard : shard + 2].tolist()
            (events,) = plain.slice(first, end - first).to_batches()
            yield shard, _packed(self.of_shard(shard), schema, events)


def _packed(sent: ShardPayload, schema: bytes, events: pa.RecordBatch) -> bytes:
    """Serialise a payload, with its events as given here.

    A table of part lengths in bytes comes first, then the parts one after the other.
    """
    identities = b"".join([bytes.fromhex(each) for each in sent.group_ids])
    arrays = sent.keys, sent.key_events, sent.key_bytes, sent.rows, sent.key_data
    parts: list[Any] = [identities, *arrays, schema, events.serialize()]
    views = [memoryview(part).cast("B") if len(part) else memoryview(b"") for part in parts]
    joined: list[bytes | memoryview] = [
        SHARD.ljust(_ALIGNED, b"\0"),
        np.array([len(view) for view in views], np.int64).tobytes(),
    ]
    for view in views:
        joined += [view, bytes(-len(view) % _ALIGNED)]
    return b"".join(joined)


def unpack_shard(packed: bytes) -> ShardPayload:
    """Read a payload that `SentEvents.packed` wrote."""
    lengths = np.frombuffer(packed, np.int64, 8, _ALIGNED).tolist()
    at, begins = 9 * _ALIGNED, []
    for length in lengths:
        begins.append(at)
        at += length + -length % _ALIGNED
    identities = packed[begins[0] : begins[0] + lengths[0]]
    kinds: list[Any] = [np.int64, np.int32, np.int32, np.int32, np.uint8]
    arrays = [
        np.frombuffer(packed, kind, length // np.dtype(kind).itemsize, begin)
        for kind, length, begin in zip(kinds, lengths[1:6], begins[1:6], strict=True)
    ]
    schema, sources = _read_schema(packed[begins[6] : begins[6] + lengths[6]])
    batch = pa.ipc.read_record_batch(pa.py_buffer(packed)[begins[7] :], schema)
    at = schema.get_field_index("source")
    named = batch.set_column(at, "source", pa.DictionaryArray.from_arrays(batch.column(at), sources))
    keys, key_events, key_bytes, rows, key_data = arrays
    events = pa.Table.from_batches([named.replace_schema_metadata()])
    return ShardPayload(_identities(identities), keys, key_events, key_bytes, rows, key_data, events)


@lru_cache(maxsize=256)
def _identities(packed: bytes) -> Sequence[str]:
    return [packed[at : at + _ALIGNED].hex() for at in range(0, len(packed), _ALIGNED)]


@lru_cache(maxsize=64)
def _read_schema(packed: bytes) -> tuple[pa.Schema, pa.Array]:
    """Return the schema of events, and the names of their sources."""
    schema = pa.ipc.read_schema(pa.py_buffer(packed))
    return schema, pa.array(json.loads(schema.metadata[_SOURCES]), pa.string())


class EventsByKey(NamedTuple):
    """The events of a group, key by key, each key's in arrival order."""

    events: pa.Table  # the events, without their keys
    codes: Int64s  # int64 `(events,)`, the index of each event's key
    key_start: Int64s  # int64 `(keys + 1,)`, where each key's events begin
    keys: pa.Array  # the keys, Arrow string `(keys,)`


def by_key(tables: list[pa.Table]) -> EventsByKey:
    """Merge tables of one group into one, key by key, each key's events in arrival order.

    `fan_out` sorts each table so. Pieces that arrived one after the other are only sorted by key.
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


@dataclass(frozen=True)
class ShardEvents:
    """Events with their keys: group by group, key by key, each key's in arrival order."""

    group_ids: Sequence[str]  # the groups
    group_start: Int64s  # int64 `(groups + 1,)`, where the keys of each begin
    key_start: Int64s  # int64 `(keys + 1,)`, where the events of each key begin
    keys: ByteStrings  # the keys, in UTF-8
    rows: Int64s  # int64, the row of each event; one has as many as it has groups
    events: pa.Table  # the events, a row each
    ways: Int8s | None = None  # int8, the way of each in `rows`, FILLS | COUNTS | ASKS; None where all count
    # int64 `(keys,)`, the shard of each key, as its index; they ascend in each group. None where all are of one
    shards: Int64s | None = None

    @classmethod
    def of_all(cls, sent: SentEvents) -> "ShardEvents":
        """Return the events that a piece, in arrival order, sends to all shards; all of them count."""
        parts = sent.partitioned
        counts, keys = parts.keys[sent.shards], fixed(parts.key_data, starts_of(parts.key_bytes))
        rows = parts.events[parts.rows + np.repeat(parts.event_start[:-1], np.diff(parts.row_start))]
        if len(counts) == 1:
            there = np.flatnonzero(counts[0])
            group_ids = [sent.group_ids[group] for group in there.tolist()]
            return cls(group_ids, starts_of(counts[0, there]), starts_of(parts.key_events), keys, rows, sent.events)
        groups = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
        shards = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
        return cls._by_group(sent.group_ids, groups, shards, parts.key_events, keys, rows, sent.events)

    @classmethod
    def of(cls, pieces: Sequence[ShardPayload], group_ids: Sequence[str]) -> "ShardEvents":
        """Merge what one or more pieces of arrivals sent; `group_ids` are all groups, in order."""
        is_plain = set(group_ids).issuperset(chain(*(piece.group_ids for piece in pieces)))
        if is_plain and len(pieces) == 1 and ascend(*arrival(pieces[0].events)):
            (piece,) = pieces
            keys = fixed(piece.key_data, starts_of(piece.key_bytes))
            starts, rows = (starts_of(piece.keys), starts_of(piece.key_events)), piece.rows.astype(np.int64)
            return cls(piece.group_ids, *starts, keys, rows, piece.events)
        return _merged(sorted(pieces, key=lambda piece: _first_arrival(piece.events)), group_ids, is_plain)

    @classmethod
    def joined(cls, shards: "Sequence[ShardEvents]", group_ids: Sequence[str]) -> "ShardEvents":
        """Join the events of several shards, to score them in one call; `group_ids` are all groups."""
        first_rows = starts_of([len(each.events) for each in shards])[:-1].tolist()
        ways = [np.full(len(each.rows), COUNTS, np.int8) if each.ways is None else each.ways for each in shards]
        return cls._by_group(
            group_ids,
            np.concatenate([each.groups_among(group_ids) for each in shards]),
            np.repeat(np.arange(len(shards)), [each.keys.size for each in shards]),
            np.concatenate([np.diff(each.key_start) for each in shards]),
            concatenated([each.keys for each in shards]),
            np.concatenate([each.rows + first for each, first in zip(shards, first_rows, strict=True)]),
            pa.concat_tables([each.events for each in shards]).unify_dictionaries().combine_chunks(),
            None if all(each.ways is None for each in shards) else np.concatenate(ways),
        )

    @classmethod
    def _by_group(
        cls,
        group_ids: Sequence[str],
        groups: Int64s,
        shards: Int64s,
        key_events: Int64s | Int32s,
        keys: ByteStrings,
        rows: Int64s,
        events: pa.Table,
        ways: Int8s | None = None,
    ) -> "ShardEvents":
        """Sort events, given shard by shard, by group; `groups` has the index of each key's group."""
        by_group, group_start = sort_by_code(groups, len(group_ids))
        places = np.empty(len(by_group), np.int64)
        places[by_group] = np.arange(len(by_group))
        order, key_start = sort_by_code(np.repeat(places, key_events), len(places))
        there = np.flatnonzero(np.diff(group_start))
        return cls(
            [group_ids[group] for group in there.tolist()],
            np.append(group_start[there], group_start[-1]),
            key_start,
            keys.take(by_group),
            rows[order],
            events,
            None if ways is None else ways[order],
            shards[by_group],
        )

    @classmethod
    def of_group(cls, group_id: str, arrived: EventsByKey) -> "ShardEvents":
        """Return the events of one group."""
        keys, rows = strings_of(arrived.keys), np.arange(len(arrived.codes))
        return cls([group_id], np.array([0, keys.size]), arrived.key_start, keys, rows, arrived.events)

    def apart(self) -> "ShardEvents":
        """Give each event a key entry of its own; a key is repeated for each of its events."""
        each = np.repeat(np.arange(self.keys.size), np.diff(self.key_start))
        return replace(
            self,
            group_start=self.key_start[self.group_start],
            key_start=np.arange(len(each) + 1),
            keys=self.keys.take(each),
            shards=None if self.shards is None else self.shards[each],
        )

    def cut(self, group_ids: Collection[str]) -> "ShardEvents":
        """Split each of these groups into one part for each shard that has keys of it."""
        if self.shards is None or not group_ids:
            return self
        numbers = self.groups_among(self.group_ids)
        are_cut = np.array([group_id in group_ids for group_id in self.group_ids], np.bool_)[numbers]
        begins_group, begins_shard = np.diff(numbers, prepend=-1) != 0, np.diff(self.shards, prepend=-1) != 0
        first = np.flatnonzero(begins_group | (begins_shard & are_cut))
        of_parts = [self.group_ids[number] for number in numbers[first].tolist()]
        return replace(self, group_ids=of_parts, group_start=np.append(first, len(numbers)))

    def groups_among(self, group_ids: Sequence[str]) -> Int64s:
        """Return the group of each key as an index into `group_ids`, int64 `(keys,)`."""
        numbers = {group_id: number for number, group_id in enumerate(group_ids)}
        of_groups = np.array([numbers[group_id] for group_id in self.group_ids], np.int64)
        return np.repeat(of_groups, np.diff(self.group_start))

    def keys_of(self, group: int) -> pa.Array:
        """Return the keys of a group, Arrow string."""
        return texts_of(self.keys.slice(*self.group_start[group : group + 2].tolist()))

    def events_of(self, group: int) -> slice:
        """Return the slice of `rows` that holds the events of a group."""
        first, end = self.group_start[group : group + 2]
        return slice(self.key_start[first].item(), self.key_start[end].item())

    def codes_of(self, group: int) -> Int64s:
        """Return the key of each event of a group, as an index into the group's keys."""
        first, end = self.group_start[group : group + 2].tolist()
        return np.repeat(np.arange(end - first), np.diff(self.key_start[first : end + 1]))

    def by_key(self, group: int) -> EventsByKey:
        """Return the events of a group as a table of their own, without those that only ask."""
        of_group, codes, keys = self.events_of(group), self.codes_of(group), self.keys_of(group)
        rows = self.rows[of_group]
        if self.ways is not None:
            kept = self.ways[of_group] != ASKS
            rows, codes = rows[kept], codes[kept]
        events = self.events.take(pa.array(rows)).combine_chunks()
        return EventsByKey(events, codes, np.searchsorted(codes, np.arange(len(keys) + 1)), keys)


def joined_shards(sent: Sequence[Sequence[ShardPayload]], group_ids: Sequence[str]) -> ShardEvents | None:
    """Join the payloads of several shards, to score them in one call; `group_ids` are all groups, in order.

    None for a single shard, or more than `MOST_TOGETHER` events of keys.
    """
    if len(sent) < 2 or sum(len(piece.rows) for pieces in sent for piece in pieces) > MOST_TOGETHER:
        return None
    return ShardEvents.joined([ShardEvents.of(pieces, group_ids) for pieces in sent], group_ids)


def _merged(pieces: Sequence[ShardPayload], group_ids: Sequence[str], is_plain: bool) -> ShardEvents:
    """Merge pieces, which are given in the order in which they arrived."""
    events = pa.concat_tables([piece.events for piece in pieces]).unify_dictionaries().combine_chunks()
    first_row = starts_of(np.array([len(piece.events) for piece in pieces]))
    rows = np.concatenate([piece.rows + first for piece, first in zip(pieces, first_row[:-1].tolist(), strict=True)])
    numbers = {group_id: (number, COUNTS) for number, group_id in enumerate(group_ids)}
    if not is_plain:
        others = product(list(numbers.items()), (FILLS, ASKS))
        numbers |= {way_id(group_id, way): (number, way) for (group_id, (number, _)), way in others}
    groups, ways = np.concatenate(
        [np.repeat([numbers[group_id] for group_id in piece.group_ids], piece.keys, axis=0).T for piece in pieces], 1
    )
    texts = concatenated([fixed(piece.key_data, starts_of(piece.key_bytes)) for piece in pieces])
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
    if not (is_plain and ascend(*columns)):
        order = np.lexsort((*(column[rows] for column in reversed(columns)), key_of))
    there = np.flatnonzero(np.diff(group_start))
    return ShardEvents(
        [group_ids[group] for group in there.tolist()],
        np.append(group_start[there], group_start[-1]),
        key_start,
        texts.take(firsts[by_group]),
        rows[order].astype(np.int64),
        events,
        None if is_plain else np.repeat(ways, key_events)[order].astype(np.int8),
    )
