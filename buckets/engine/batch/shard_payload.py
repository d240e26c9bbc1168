"""What a piece of arrivals sends to a shard, as bytes: its events once, and which keys of which groups they have.

    kind in 8 bytes · counts (6 integers) · group identities (8 bytes each) · keys of each group · events of each key
    · bytes of each key · row of each key's events · bytes of keys · schema of the events · the events

Counts are in 8 bytes, as are the keys of a group; all other numbers in 4. Each part begins at a multiple of 8, so that
it is used as it lies there. The events are a record batch of Arrow without its schema, which is the same for all shards
and mostly for all pieces; in it sources are numbers, and their names stand in the schema.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch.dealing import Dealt
from buckets.engine.batch.payload import SHARD

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
_ALIGNED = 8
_SOURCES = b"sources"


class ShardPayload(NamedTuple):
    """What a piece of arrivals sends to a shard.

    Attributes:
        group_ids: the groups of which it has keys.
        keys: int64 `(groups,)`, how many of each.
        key_events: int32 `(keys,)`, how many events each key has.
        key_bytes: int32 `(keys,)`, how many bytes each key has.
        rows: int32, the row of each key's events.
        key_data: uint8, the keys, one after the other.
        events: the events in the order of arrival.
    """

    group_ids: Sequence[str]
    keys: Int64s
    key_events: Int32s
    key_bytes: Int32s
    rows: Int32s
    key_data: npt.NDArray[np.uint8]
    events: pa.Table


def pack_shards(dealt: Dealt, group_ids: Sequence[str], events: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """Yield what each shard is sent that gets an event.

    Args:
        dealt: what goes where.
        group_ids: the groups.
        events: the events of all shards, as `dealt.events` names them; their column `source` is a dictionary.
    """
    source = events.column("source")
    named = {_SOURCES: json.dumps(source.dictionary.to_pylist()).encode()}
    plain = events.set_column(events.schema.get_field_index("source"), "source", source.indices)
    plain = plain.replace_schema_metadata(named)
    schema, identities = plain.schema.serialize().to_pybytes(), [bytes.fromhex(each) for each in group_ids]
    starts = (dealt.key_start, dealt.data_start, dealt.row_start, dealt.event_start)
    key_starts, data_starts, row_starts, event_starts = (start.tolist() for start in starts)
    for shard, of_groups in enumerate(dealt.keys):
        keys, rows = slice(*key_starts[shard : shard + 2]), slice(*row_starts[shard : shard + 2])
        if keys.start == keys.stop:
            continue
        groups, first = np.flatnonzero(of_groups), event_starts[shard]
        parts = (
            b"".join([identities[group] for group in groups.tolist()]),
            of_groups[groups],
            dealt.key_events[keys],
            dealt.key_bytes[keys],
            dealt.rows[rows],
            dealt.key_data[slice(*data_starts[shard : shard + 2])],
            schema,
            plain.slice(first, event_starts[shard + 1] - first).serialize(),
        )
        yield shard, _joined(parts)


def _joined(parts: Sequence[Any]) -> bytes:
    """Return parts one after the other, each with how many bytes it has before all of them."""
    views = [memoryview(part).cast("B") if len(part) else memoryview(b"") for part in parts]
    joined: list[bytes | memoryview] = [
        SHARD.ljust(_ALIGNED, b"\0"),
        np.array([len(view) for view in views], np.int64).tobytes(),
    ]
    for view in views:
        joined += [view, bytes(-len(view) % _ALIGNED)]
    return b"".join(joined)


def unpack_shard(packed: bytes) -> ShardPayload:
    """Return what `pack_shards` packed for one shard."""
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
