"""Samples keys, and notes their partitions, to detect keys that occur in several partitions of a topic.

Events of a key are ordered within a partition. A key in several partitions only has the order in which batches read
them. The sample holds the keys with the smallest hashes (bottom-k): a key that is sampled once is sampled wherever it
occurs, so finding it again needs no state. Only one shard is sampled, which is a sample of the keys itself.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.arrays import Int64s, starts_of

if TYPE_CHECKING:
    from buckets.engine.batch.partitioner import Partitioned

Seen = Sequence[Sequence[int]]  # Hashes of keys, each with a hash of a partition in which it was seen
SAMPLED_KEYS = 256  # Keys that are looked at, of each group
_SHARD = 0
_POWERS = np.cumprod(np.full(256, 0x9E3779B97F4A7C15, np.uint64), dtype=np.uint64)
_SEVERAL = -1


def seen_partitions(
    partitioned: "Partitioned", groups: Sequence[str], source: pa.StringArray
) -> dict[str, list[tuple[int, int]]]:
    """Return sampled keys of each group with the partitions in which a piece of a batch has them.

    Args:
        partitioned: the keys of the piece.
        groups: the name of each group; empty to leave the group out.
        source: the topic and partition of each event.
    """
    of_keys, data, of_rows, events = partitioned.stretches(_SHARD)
    if of_keys.start == of_keys.stop:
        return {}
    counts, rows = partitioned.key_events[of_keys].astype(np.int64), partitioned.rows[of_rows]
    ends = np.cumsum(counts)
    encoded = source.take(pa.array(partitioned.events[events])).dictionary_encode()
    numbers = np.array([zlib.crc32(name.encode()) for name in encoded.dictionary.to_pylist()], np.int64)
    partitions = numbers[encoded.indices.to_numpy()]
    # Events of a key are in the order of arrival, so the first and the last of them are of different partitions if any.
    ends_of_keys = partitions[rows[ends - counts]], partitions[rows[ends - 1]]
    hashes = _hashes(partitioned.key_data[data], partitioned.key_bytes[of_keys].astype(np.int64))
    bounds = [*pairwise(starts_of(partitioned.keys[_SHARD]).tolist())]
    least = [
        np.arange(begin, end) if end - begin <= SAMPLED_KEYS else begin + np.argsort(hashes[begin:end])[:SAMPLED_KEYS]
        for begin, end in bounds
    ]
    keys, oldest, newest = (column[np.concatenate(least)].tolist() for column in (hashes, *ends_of_keys))
    found: dict[str, list[tuple[int, int]]] = {}
    for group, (begin, end) in zip(groups, pairwise(starts_of([*map(len, least)]).tolist()), strict=True):
        if group and begin < end:
            found.setdefault(group, []).extend(zip(keys[begin:end], oldest[begin:end], strict=True))
            if oldest[begin:end] != newest[begin:end]:
                found[group] += zip(keys[begin:end], newest[begin:end], strict=True)
    return found


def _hashes(data: npt.NDArray[np.uint8], lengths: Int64s) -> Int64s:
    """Hash each key to 48 bits, by a polynomial in its bytes."""
    hashes = np.zeros(len(lengths), np.uint64)
    if len(data):
        starts = np.cumsum(lengths) - lengths
        place = np.arange(len(data)) - np.repeat(starts, lengths)
        terms = (data.astype(np.uint64) + np.uint64(1)) * _POWERS[place & 255]
        has_bytes = lengths > 0
        hashes[has_bytes] = np.add.reduceat(terms, starts[has_bytes])
    hashes ^= hashes >> np.uint64(31)
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    return (hashes >> np.uint64(16)).astype(np.int64)


class SampledKeys:
    """The sampled keys of a group over several batches."""

    def __init__(self) -> None:
        self._partition: dict[int, int] = {}

    def add(self, seen: Iterable[Sequence[int]]) -> None:
        """Add the keys and partitions of a batch."""
        for key, partition in seen:
            if self._partition.setdefault(key, partition) != partition:
                self._partition[key] = _SEVERAL
        if len(self._partition) > 2 * SAMPLED_KEYS:
            self._keep_least()

    def _keep_least(self) -> None:
        self._partition = {key: self._partition[key] for key in sorted(self._partition)[:SAMPLED_KEYS]}

    def to_json(self) -> dict[str, int]:
        """Return how many keys are sampled, and how many of them occurred in several partitions."""
        self._keep_least()
        several = sum(partition == _SEVERAL for partition in self._partition.values())
        return {"sampled": len(self._partition), "several": several}


def joined_seen(several: Iterable[Mapping[str, Seen]]) -> dict[str, Seen]:
    """Join the sampled keys of the pieces of a batch."""
    joined: dict[str, list[Sequence[int]]] = {}
    for seen in several:
        for group, pairs in seen.items():
            joined.setdefault(group, []).extend(pairs)
    return dict(joined)
