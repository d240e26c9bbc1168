"""The numbers by which Spark knows shards, chosen so that its hash spreads them evenly over the partitions.

Spark puts a number into the partition of its hash. By their own numbers, eight shards on eight partitions would leave
three of them empty, and put three shards into another one.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column
from pyspark.sql import functions as F

from buckets.engine.batch.payload import PASSING

_TRIED = 1 << 16
UInt32s = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ShardKeys:
    """By shard, the number by which Spark knows it."""

    keys: tuple[int, ...]

    @classmethod
    def of(cls, shards: int, partitions: int) -> Self:
        """Choose the numbers of shards."""
        chosen, first = np.full(shards, -1), 0
        while (open_shards := np.flatnonzero(chosen < 0)).size:
            numbers = np.arange(first, first + _TRIED)
            partition = spark_hash(numbers).astype(np.int64) % partitions
            for number in np.unique(open_shards % partitions).tolist():
                fitting, waiting = numbers[partition == number], open_shards[open_shards % partitions == number]
                some = min(len(fitting), len(waiting))
                chosen[waiting[:some]] = fitting[:some]
            first += _TRIED
        return cls(tuple(chosen.tolist()))

    @cached_property
    def shards(self) -> dict[int, int]:
        """The shard of each number."""
        return {key: shard for shard, key in enumerate(self.keys)}

    def key_of(self, shard: int) -> int:
        """Return the number of a shard, or `PASSING`."""
        return shard if shard == PASSING else self.keys[shard]

    def shard_of(self, key: int) -> int:
        """Return the shard of a number, or `PASSING`."""
        return key if key == PASSING else self.shards[key]

    def shard_column(self, key: str) -> Column:
        """Return the shards of the numbers of a column; `PASSING` becomes that."""
        return (F.array_position(F.array(*map(F.lit, self.keys)), F.col(key)) - 1).cast("int")


def spark_hash(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return Spark's hash of numbers: Murmur3 of their four bytes, with its seed 42.

    From Spark's `Murmur3_x86_32`.
    """
    key = _rotated(numbers.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    mixed = _rotated(np.uint32(42) ^ key, 13) * np.uint32(5) + np.uint32(0xE6546B64) ^ np.uint32(4)
    mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ mixed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    hashes: npt.NDArray[np.int32] = (mixed ^ mixed >> np.uint32(16)).view(np.int32)
    return hashes


def _rotated(values: UInt32s, bits: int) -> UInt32s:
    return values << np.uint32(bits) | values >> np.uint32(32 - bits)
