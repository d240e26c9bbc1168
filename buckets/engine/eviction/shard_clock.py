"""The clock of a shard: how far its events have come, by the vote of many keys.

Idle keys are evicted when this clock has passed them by the horizon, so an event with a wild date must not move it, nor
must a key whose events all have wild dates. For each group the shard remembers the `VOTERS` keys that had events last,
each with its own clock. The median of those is how far the group has come; the clock is that of the group that has come
furthest. So it takes half of the keys that were active last to move it; and since it is computed from those alone, it
comes back by itself when they are right again.

A group that is being filled from the archive is at another time than the events of the shard. It goes by its own
voters, and they have no vote on anything else.

What this costs: the clock is behind the newest event by half of what the voters differ, so idle keys stay that much
longer; where no group has `QUORUM` keys, there is no clock, and nothing is evicted. Each batch writes 12 bytes a voter.

In the state: for each group the 8 bytes of its identity, the number of voters in 2 bytes, and the voters, each as a
hash of its key in 4 bytes and its clock in ms in 8; the voter that had an event last comes last.
"""

import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.storage.shard_store import GROUP_BYTES
from buckets.timeline.head import NO_CLOCK

VOTERS: Final = 63
QUORUM: Final = 8
Voter = tuple[int, int]
"""The hash of a key, and its clock in ms."""
_COUNT: Final = struct.Struct("<H")
_VOTER: Final = struct.Struct("<Iq")


@dataclass(frozen=True)
class _Voters:
    """The voters of a group.

    Attributes:
        clock_ms: by hash of the key, its clock; who had an event last comes last.
    """

    clock_ms: dict[int, int]

    @cached_property
    def median_ms(self) -> int | None:
        """The greatest time that more than half of them have come to; None where they are too few."""
        ordered = sorted(self.clock_ms.values())
        return ordered[(len(ordered) - 1) // 2] if len(ordered) >= QUORUM else None


class ShardClock:
    """The voters of a shard's groups, and the time on which they agree."""

    def __init__(self, apart: frozenset[str] = frozenset()) -> None:
        """Make a clock that has seen no event.

        Args:
            apart: groups that have a time of their own.
        """
        self._voters: dict[str, _Voters] = {}
        self._apart = apart

    @classmethod
    def from_bytes(cls, stored: bytes, apart: frozenset[str] = frozenset()) -> "ShardClock":
        """Read what `to_bytes` wrote; nothing is a clock that has seen no event."""
        clock, at = cls(apart), 0
        while at < len(stored):
            group_id, count = stored[at : at + GROUP_BYTES].hex(), _COUNT.unpack_from(stored, at + GROUP_BYTES)[0]
            start = at + GROUP_BYTES + _COUNT.size
            at = start + count * _VOTER.size
            clock._voters[group_id] = _Voters(dict(_VOTER.iter_unpack(stored[start:at])))
        return clock

    def to_bytes(self) -> bytes:
        """Write the voters for the state."""
        parts: list[bytes] = []
        for group_id, voters in self._voters.items():
            parts += [bytes.fromhex(group_id), _COUNT.pack(len(voters.clock_ms))]
            parts += starmap(_VOTER.pack, voters.clock_ms.items())
        return b"".join(parts)

    @classmethod
    def of_voters(cls, voters: Mapping[str, Iterable[Voter]]) -> "ShardClock":
        """Return the clock of these voters."""
        clock = cls()
        clock._voters = {group_id: _Voters(dict(of_group)) for group_id, of_group in voters.items()}
        return clock

    @property
    def voters(self) -> dict[str, list[Voter]]:
        """By group, its voters; who had an event last comes last."""
        return {group_id: [*voters.clock_ms.items()] for group_id, voters in self._voters.items()}

    @property
    def time_ms(self) -> int | None:
        """How far the shard's events have come, in ms; None where too few keys are known to say."""
        medians_ms = (voters.median_ms for group_id, voters in self._voters.items() if group_id not in self._apart)
        return max((median_ms for median_ms in medians_ms if median_ms is not None), default=None)

    def time_of(self, group_id: str) -> int | None:
        """Return how far the events have come that a group goes by, in ms; None where too few keys are known to say."""
        if group_id not in self._apart:
            return self.time_ms
        return self._voters[group_id].median_ms if group_id in self._voters else None

    def note(self, group_id: str, keys: pa.Array, clocks_ms: npt.NDArray[np.int64]) -> None:
        """Let keys vote that had events.

        Args:
            group_id: their group.
            keys: the keys, Arrow string `(keys,)`, each once.
            clocks_ms: int64 `(keys,)`, the clocks that they have come to; NO_CLOCK for none.
        """
        new = np.flatnonzero(clocks_ms != NO_CLOCK)[-VOTERS:]
        known = self._voters.get(group_id)
        clock_ms = dict(known.clock_ms) if known is not None else {}
        for key, key_clock_ms in zip(keys.take(pa.array(new)).to_pylist(), clocks_ms[new].tolist(), strict=True):
            voter = zlib.crc32(key.encode())
            clock_ms.pop(voter, None)
            clock_ms[voter] = key_clock_ms
        for voter in [*clock_ms][:-VOTERS]:
            del clock_ms[voter]
        self._voters[group_id] = _Voters(clock_ms)

    def keep(self, group_ids: Collection[str]) -> None:
        """Forget the voters of all groups but these."""
        self._voters = {group_id: voters for group_id, voters in self._voters.items() if group_id in group_ids}
