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
from typing import Final

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings
from buckets.compiled import compiled, leaf
from buckets.engine.storage.shard_store import GROUP_BYTES
from buckets.timeline.head import NO_CLOCK

VOTERS: Final = 63
QUORUM: Final = 8
Voter = tuple[int, int]
"""The hash of a key, and its clock in ms."""
_COUNT: Final = struct.Struct("<H")
_VOTES: Final = np.dtype([("voter", "<u4"), ("clock_ms", "<i8")])
_CRC_OF_BYTE: Final = np.array([zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)], np.uint32)


@dataclass(frozen=True)
class _Voters:
    """The voters of a group.

    Attributes:
        hashes: uint32 `(voters,)`, the hash of the key of each; who had an event last comes last.
        clocks_ms: int64 `(voters,)`, its clock.
    """

    hashes: npt.NDArray[np.uint32]
    clocks_ms: npt.NDArray[np.int64]

    @classmethod
    def of(cls, votes: npt.NDArray[np.void]) -> "_Voters":
        """Return voters from what the state has of them."""
        return cls(votes["voter"].astype(np.uint32), votes["clock_ms"].astype(np.int64))

    def votes(self) -> npt.NDArray[np.void]:
        """Return them for the state."""
        votes = np.empty(len(self.hashes), _VOTES)
        votes["voter"], votes["clock_ms"] = self.hashes, self.clocks_ms
        return votes

    @cached_property
    def median_ms(self) -> int | None:
        """The greatest time that more than half of them have come to; None where they are too few."""
        count = len(self.clocks_ms)
        return np.sort(self.clocks_ms)[(count - 1) // 2].item() if count >= QUORUM else None


_NOBODY: Final = _Voters.of(np.empty(0, _VOTES))


class ShardClock:
    """The voters of a shard's groups, and the time on which they agree."""

    def __init__(self, apart: frozenset[str] = frozenset()) -> None:
        """Make a clock that has seen no event.

        Args:
            apart: groups that have a time of their own.
        """
        self._voters: dict[str, _Voters] = {}
        self._medians_ms: dict[str, int] = {}
        self._apart = apart

    @classmethod
    def from_bytes(cls, stored: bytes, apart: frozenset[str] = frozenset()) -> "ShardClock":
        """Read what `to_bytes` wrote; nothing is a clock that has seen no event."""
        clock, at = cls(apart), 0
        while at < len(stored):
            group_id, count = stored[at : at + GROUP_BYTES].hex(), _COUNT.unpack_from(stored, at + GROUP_BYTES)[0]
            start = at + GROUP_BYTES + _COUNT.size
            at = start + count * _VOTES.itemsize
            clock._count(group_id, _Voters.of(np.frombuffer(stored, _VOTES, count, start)))
        return clock

    def to_bytes(self) -> bytes:
        """Write the voters for the state."""
        parts: list[bytes] = []
        for group_id, voters in self._voters.items():
            parts += [bytes.fromhex(group_id), _COUNT.pack(len(voters.hashes)), voters.votes().tobytes()]
        return b"".join(parts)

    @classmethod
    def of_voters(cls, voters: Mapping[str, Iterable[Voter]]) -> "ShardClock":
        """Return the clock of these voters."""
        clock = cls()
        for group_id, of_group in voters.items():
            clock._count(group_id, _Voters.of(np.array([*dict(of_group).items()], _VOTES)))
        return clock

    @property
    def voters(self) -> dict[str, list[Voter]]:
        """By group, its voters; who had an event last comes last."""
        return {group_id: voters.votes().tolist() for group_id, voters in self._voters.items()}

    @property
    def time_ms(self) -> int | None:
        """How far the shard's events have come, in ms; None where too few keys are known to say."""
        return max(self._medians_ms.values(), default=None)

    def time_of(self, group_id: str) -> int | None:
        """Return how far the events have come that a group goes by, in ms; None where too few keys are known to say."""
        if group_id not in self._apart:
            return self.time_ms
        return self._voters[group_id].median_ms if group_id in self._voters else None

    def note(self, group_id: str, state_keys: ByteStrings, clocks_ms: npt.NDArray[np.int64]) -> None:
        """Let keys vote that had events.

        Args:
            group_id: their group.
            state_keys: where the heads of the keys lie, each once.
            clocks_ms: int64 `(keys,)`, the clocks that they have come to; NO_CLOCK for none.
        """
        known = self._voters.get(group_id, _NOBODY)
        hashes, clocks_ms = _vote(*state_keys, GROUP_BYTES, clocks_ms, known.hashes, known.clocks_ms, VOTERS)
        self._count(group_id, _Voters(hashes, clocks_ms))

    def keep(self, group_ids: Collection[str]) -> None:
        """Forget the voters of all groups but these."""
        for group_id in self._voters.keys() - group_ids:
            del self._voters[group_id]
            self._medians_ms.pop(group_id, None)

    def _count(self, group_id: str, voters: _Voters) -> None:
        """Let a group have these voters."""
        self._voters[group_id] = voters
        if group_id not in self._apart and voters.median_ms is not None:
            self._medians_ms[group_id] = voters.median_ms


@compiled
def _vote(keys, key_start, passed_over, clocks_ms, known, known_ms, most):
    """Return the voters of a group after keys have voted, as hashes and clocks.

    Args:
        keys: uint8, where the heads of the keys lie, one after the other.
        key_start: int64 `(keys + 1,)`.
        passed_over: how many bytes stand before a key there.
        clocks_ms: int64 `(keys,)`, their clocks; NO_CLOCK for one that does not vote.
        known: uint32 `(voters,)`, who voted before.
        known_ms: int64 `(voters,)`, their clocks.
        most: how many may vote.
    """
    hashes, hashes_ms = np.empty(most, np.uint32), np.empty(most, np.int64)
    new, first, key = 0, most, key_start.shape[0] - 2
    while key >= 0 and new < most:
        if clocks_ms[key] != NO_CLOCK:
            voter = _crc_of(keys, key_start[key] + passed_over, key_start[key + 1])
            first = _let_vote(hashes, hashes_ms, first, voter, clocks_ms[key])
            new += 1
        key -= 1
    for voter in range(known.shape[0] - 1, -1, -1):
        first = _let_vote(hashes, hashes_ms, first, known[voter], known_ms[voter])
    return hashes[first:].copy(), hashes_ms[first:].copy()


@leaf
def _let_vote(hashes, hashes_ms, first, voter, clock_ms):
    """Put a voter before those from `first` on, where there is room and it is none of them; returns the first now."""
    for other in range(first, hashes.shape[0]):
        if hashes[other] == voter:
            return first
    if first == 0:
        return first
    hashes[first - 1], hashes_ms[first - 1] = voter, clock_ms
    return first - 1


@leaf
def _crc_of(data, begin, end):
    """Return the CRC-32 of bytes, as zlib has it."""
    crc = np.uint32(0xFFFFFFFF)
    for at in range(begin, end):
        crc = _CRC_OF_BYTE[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
    return np.uint32(crc ^ 0xFFFFFFFF)
