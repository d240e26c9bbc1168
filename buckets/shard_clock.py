"""The clock of a shard: how far its events have come, by the vote of many keys.

Idle keys are evicted when this clock has passed them by the horizon, so an event with a wild date must not move it, nor
must a key whose events all have wild dates. For each group the shard remembers the `VOTERS` keys that had events last,
each with its own clock. The median of those is how far the group has come; the clock is that of the group that has come
furthest. So it takes half of the keys that were active last to move it; and since it is computed from those alone, it
comes back by itself when they are right again.

What this costs: the clock is behind the newest event by half of what the voters differ, so idle keys stay that much
longer; where no group has `QUORUM` keys, there is no clock, and nothing is evicted. Each batch writes 12 bytes a voter.

In the state: for each group the 8 bytes of its identity, the number of voters in 2 bytes, and the voters, each as a
hash of its key in 4 bytes and its clock in ms in 8; the voter that had an event last comes last.
"""

import zlib
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from buckets.head import LEAST_INT64
from buckets.store import GROUP_BYTES

VOTERS: Final = 63
QUORUM: Final = 8
_COUNT_BYTES: Final = 2
_VOTER: Final = np.dtype([("key", "<u4"), ("clock_ms", "<i8")])


class ShardClock:
    """The voters of a shard's groups, and the time on which they agree."""

    def __init__(self) -> None:
        """A clock that has seen no event."""
        self._voters: dict[str, npt.NDArray[np.void]] = {}
        self._time_ms: int | None = None

    @classmethod
    def from_bytes(cls, stored: bytes) -> "ShardClock":
        """Read what `to_bytes` wrote; nothing is a clock that has seen no event."""
        clock, at = cls(), 0
        while at < len(stored):
            group_id = stored[at : at + GROUP_BYTES].hex()
            at += GROUP_BYTES
            count = int.from_bytes(stored[at : at + _COUNT_BYTES], "little")
            at += _COUNT_BYTES
            clock._voters[group_id] = np.frombuffer(stored, _VOTER, count, at)
            at += count * _VOTER.itemsize
        clock._time_ms = clock._agreed_ms()
        return clock

    def to_bytes(self) -> bytes:
        """The voters, for the state."""
        parts = []
        for group_id, voters in self._voters.items():
            parts += [bytes.fromhex(group_id), len(voters).to_bytes(_COUNT_BYTES, "little"), voters.tobytes()]
        return b"".join(parts)

    @property
    def time_ms(self) -> int | None:
        """How far the shard's events have come, in ms; None where too few keys are known to say."""
        return self._time_ms

    def note(self, group_id: str, keys: Sequence[str], clocks_ms: npt.NDArray[np.int64]) -> None:
        """Let keys vote that had events.

        Args:
            group_id: their group.
            keys: the keys, each once.
            clocks_ms: int64 `(keys,)`, the clocks that they have come to; the least int64 for none.
        """
        voters = np.flatnonzero(clocks_ms != LEAST_INT64)[-VOTERS:]
        new = np.empty(len(voters), _VOTER)
        new["key"] = [zlib.crc32(keys[voter].encode()) for voter in voters.tolist()]
        new["clock_ms"] = clocks_ms[voters]
        before = self._voters.get(group_id)
        if before is not None and len(new) < VOTERS:
            others = before[~np.isin(before["key"], new["key"])]
            new = np.concatenate([others, new])[-VOTERS:]
        self._voters[group_id] = new
        self._time_ms = self._agreed_ms()

    def keep(self, group_ids: Collection[str]) -> None:
        """Forget the voters of all groups but these."""
        self._voters = {group_id: voters for group_id, voters in self._voters.items() if group_id in group_ids}

    def _agreed_ms(self) -> int | None:
        medians = [_median_ms(voters["clock_ms"]) for voters in self._voters.values() if len(voters) >= QUORUM]
        return max(medians, default=None)


def _median_ms(clocks_ms: npt.NDArray[np.int64]) -> int:
    """The greatest time that more than half of the clocks have come to."""
    return int(np.sort(clocks_ms)[(len(clocks_ms) - 1) // 2])
