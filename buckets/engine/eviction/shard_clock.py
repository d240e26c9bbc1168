"""The clock of a shard: how far its events have advanced, by a vote of many keys.

Idle keys are evicted when this clock has passed them by the horizon, so neither an event with a wrong date nor a key
whose events all have wrong dates may move it. For each group, the shard remembers the `VOTERS` most recently active
keys, each with its own clock. Their median is the clock of the group; the shard's clock is the latest of these. So half
of the recently active keys have to move it, and since it follows from them alone, it recovers once they are right.

A group that is being filled from the archive is at a different time than the shard's live events. It follows its own
voters, which have no vote on anything else.

The price: the clock lags the newest event by half of the spread of the voters, so idle keys stay that much longer;
while no group has `QUORUM` keys, the shard has no clock and evicts nothing. Each batch writes 12 bytes a voter.

In the state: the number of voters that a row has room for, in 2 bytes, then a row for each group in the type of `_row`,
most recently active voter last.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Int64s, read_only
from buckets.byte_strings import ByteStrings
from buckets.compiled import compiled, leaf
from buckets.engine.storage.shard_store import GROUP_BYTES
from buckets.numbers.varint import crc32
from buckets.timeline.head import NO_CLOCK

VOTERS: Final = 63
QUORUM: Final = 8
Voter = tuple[int, int]  # The hash of a key, and its clock in ms
_COUNT_BYTES: Final = 2


class _Voters(NamedTuple):
    """The voters of groups: a row for each group, aligned to its end, most recently active voter last."""

    identities: npt.NDArray[np.uint8]  # uint8 `(groups, GROUP_BYTES)`
    hashes: npt.NDArray[np.uint32]  # uint32 `(groups, VOTERS)`, the hash of the key of each
    clocks_ms: Int64s  # int64 `(groups, VOTERS)`, its clock
    counts: Int64s  # int64 `(groups,)`, how many there are
    # int64 `(groups,)`, the latest time that more than half of them have reached; NO_CLOCK without a quorum
    medians_ms: Int64s


def _new_voters(groups: int) -> _Voters:
    return _Voters(
        np.zeros((groups, GROUP_BYTES), np.uint8),
        np.zeros((groups, VOTERS), np.uint32),
        np.zeros((groups, VOTERS), np.int64),
        np.zeros(groups, np.int64),
        np.full(groups, NO_CLOCK, np.int64),
    )


def _row(most: int) -> np.dtype[np.void]:
    """Return the row type of a group with up to `most` voters, which fill their fields from the end."""
    fields = [
        ("identity", "u1", GROUP_BYTES),
        ("count", "<u2"),
        ("hashes", "<u4", (most,)),
        ("clocks_ms", "<i8", (most,)),
    ]
    return np.dtype(fields)


ClockKind = tuple[frozenset[str], int, int]


def clock_kind(apart: frozenset[str]) -> ClockKind:
    """Return what determines a clock besides its voters: the groups with clocks of their own, and the constants."""
    return apart, VOTERS, QUORUM


class ShardClock:
    """The voters of a shard's groups, and the time on which they agree."""

    def __init__(self, apart: frozenset[str] = frozenset()) -> None:
        self._numbers: dict[str, int] = {}
        self._voters = _new_voters(0)
        self._apart, self.kind = apart, clock_kind(apart)

    @classmethod
    def from_bytes(cls, stored: bytes, apart: frozenset[str] = frozenset()) -> "ShardClock":
        """Read what `to_bytes` wrote; empty bytes are a clock that has seen no event."""
        if not stored:
            return cls(apart)
        row = _row(int.from_bytes(stored[:_COUNT_BYTES], "little"))
        return cls._of_rows(np.frombuffer(stored, row, offset=_COUNT_BYTES), apart)

    def to_bytes(self) -> bytes:
        """Write the voters for the state."""
        if not self._numbers:
            return b""
        known = self._voters
        most = int(known.counts.max())
        first, rows = known.hashes.shape[1] - most, np.empty(len(known.counts), _row(most))
        rows["identity"], rows["count"] = known.identities, known.counts
        rows["hashes"], rows["clocks_ms"] = known.hashes[:, first:], known.clocks_ms[:, first:]
        return most.to_bytes(_COUNT_BYTES, "little") + rows.tobytes()

    @classmethod
    def of_voters(cls, voters: Mapping[str, Iterable[Voter]]) -> "ShardClock":
        """Return the clock of these voters, latest last; only the last `VOTERS` of a group count."""
        each = {group_id: dict([*of_group][-VOTERS:]) for group_id, of_group in voters.items()}
        most = max(map(len, each.values()), default=0)
        rows = np.zeros(len(each), _row(most))
        for row, (group_id, of_group) in zip(rows, each.items(), strict=True):
            first = most - len(of_group)
            row["identity"], row["count"] = np.frombuffer(bytes.fromhex(group_id), np.uint8), len(of_group)
            row["hashes"][first:], row["clocks_ms"][first:] = [*of_group], [*of_group.values()]
        return cls._of_rows(rows, frozenset())

    @classmethod
    def _of_rows(cls, rows: npt.NDArray[np.void], apart: frozenset[str]) -> "ShardClock":
        clock, voters, most = cls(apart), _new_voters(len(rows)), rows["hashes"].shape[1]
        voters.identities[:], voters.counts[:] = rows["identity"], rows["count"]
        voters.hashes[:, VOTERS - most :], voters.clocks_ms[:, VOTERS - most :] = rows["hashes"], rows["clocks_ms"]
        are_voters = np.arange(VOTERS) >= VOTERS - voters.counts[:, np.newaxis]
        ordered = np.sort(np.where(are_voters, voters.clocks_ms, np.iinfo(np.int64).max), axis=1)
        medians_ms = ordered[np.arange(len(rows)), (voters.counts - 1) // 2]
        voters.medians_ms[:] = np.where(voters.counts >= QUORUM, medians_ms, NO_CLOCK)
        clock._voters = voters
        clock._numbers = {identity.tobytes().hex(): number for number, identity in enumerate(rows["identity"])}
        return clock

    @property
    def voters(self) -> dict[str, list[Voter]]:
        """The voters of each group, most recently active last."""
        found = {}
        for group_id, number in self._numbers.items():
            first = self._voters.hashes.shape[1] - int(self._voters.counts[number])
            hashes, clocks_ms = self._voters.hashes[number, first:], self._voters.clocks_ms[number, first:]
            found[group_id] = list(zip(hashes.tolist(), clocks_ms.tolist(), strict=True))
        return found

    @property
    def time_ms(self) -> int | None:
        """The shard's clock in ms; None while too few keys are known."""
        known = zip(self._numbers, self._voters.medians_ms.tolist(), strict=True)
        latest_ms = max((median_ms for group_id, median_ms in known if group_id not in self._apart), default=NO_CLOCK)
        return None if latest_ms == NO_CLOCK else latest_ms

    def times(self, group_ids: Iterable[str]) -> dict[str, int | None]:
        """Return the clock that applies to each group, in ms; None while too few keys are known."""
        time_ms = self.time_ms
        times: dict[str, int | None] = dict.fromkeys(group_ids, time_ms)
        for group_id in self._apart & times.keys():
            number = self._numbers.get(group_id)
            median_ms = NO_CLOCK if number is None else self._voters.medians_ms[number].item()
            times[group_id] = None if median_ms == NO_CLOCK else median_ms
        return times

    def note(
        self,
        group_ids: Sequence[str],
        group_start: Int64s,
        state_keys: ByteStrings,
        clocks_ms: Int64s,
    ) -> dict[str, int | None]:
        """Let the keys that had events vote, one group after the other.

        Args:
            group_ids: their groups.
            group_start: int64 `(groups + 1,)`, where each group's keys begin.
            state_keys: the state keys of their heads, each once.
            clocks_ms: int64 `(keys,)`, their clocks; NO_CLOCK for none.

        Returns:
            By group, its time as in `times`, right after its own vote.
        """
        new = [group_id for group_id in group_ids if group_id not in self._numbers]
        if new:
            added = _new_voters(len(new))
            added.identities[:] = np.frombuffer(bytes.fromhex("".join(new)), np.uint8).reshape(len(new), GROUP_BYTES)
            both: zip[tuple[Any, Any]] = zip(self._voters, added, strict=True)
            self._voters = _Voters._make(map(np.concatenate, both))
            self._numbers |= {group_id: len(self._numbers) + number for number, group_id in enumerate(new)}
        numbers = np.array([self._numbers[group_id] for group_id in group_ids], np.int64)
        apart = np.array([group_id in self._apart for group_id in self._numbers], np.bool_)
        start = read_only(group_start)
        times_ms = _vote(*state_keys, GROUP_BYTES, start, clocks_ms, numbers, apart, QUORUM, self._voters)
        known = zip(group_ids, times_ms.tolist(), strict=True)
        return {group_id: None if time_ms == NO_CLOCK else time_ms for group_id, time_ms in known}

    def keep(self, group_ids: Collection[str]) -> None:
        """Forget the voters of all groups but these."""
        kept = {group_id: number for group_id, number in self._numbers.items() if group_id in group_ids}
        if len(kept) < len(self._numbers):
            numbers = [*kept.values()]
            self._voters = _Voters._make(column[numbers] for column in self._voters)
            self._numbers = {group_id: number for number, group_id in enumerate(kept)}


@compiled
def _vote(keys, key_start, passed_over, group_start, clocks_ms, numbers, apart, quorum, voters: _Voters):
    """Let the keys of groups vote, and return each group's time right after its vote; NO_CLOCK for none.

    Args:
        keys: uint8, the state keys of the keys' heads, one after the other.
        key_start: int64 `(keys + 1,)`, where each begins.
        passed_over: the length of the prefix before a key.
        group_start: int64 `(groups + 1,)`, where the keys of each group begin.
        clocks_ms: int64 `(keys,)`, their clocks; NO_CLOCK for a key that does not vote.
        numbers: int64 `(groups,)`, the row of each group in `voters`.
        apart: bool, which rows of `voters` have a clock of their own.
        quorum: how many voters are enough.
        voters: the voters so far; changed.
    """
    times_ms, most = np.empty(numbers.shape[0], np.int64), voters.hashes.shape[1]
    hashes, hashes_ms = np.empty(most, np.uint32), np.empty(most, np.int64)
    for index in range(numbers.shape[0]):
        group = numbers[index]
        new, first, key = 0, most, group_start[index + 1] - 1
        while key >= group_start[index] and new < most:
            if clocks_ms[key] != NO_CLOCK:
                voter = crc32(keys, key_start[key] + passed_over, key_start[key + 1], 0)
                first = _let_vote(hashes, hashes_ms, first, first, voter, clocks_ms[key])
                new += 1
            key -= 1
        first_new = first  # Those that were known are different from each other.
        for known in range(most - 1, most - 1 - voters.counts[group], -1):
            hash_known, known_ms = voters.hashes[group, known], voters.clocks_ms[group, known]
            first = _let_vote(hashes, hashes_ms, first, first_new, hash_known, known_ms)
        for voter in range(first, most):
            voters.hashes[group, voter], voters.clocks_ms[group, voter] = hashes[voter], hashes_ms[voter]
        voters.counts[group] = most - first
        median_ms = np.int64(NO_CLOCK)
        if most - first >= max(quorum, 1):
            median_ms = voters.medians_ms[group] = _median_ms(hashes_ms, first)
        times_ms[index] = median_ms if apart[group] else _latest(voters.medians_ms, apart)
    return times_ms


@leaf
def _latest(medians_ms, apart):
    """Return the latest median of the groups without a clock of their own; NO_CLOCK for none."""
    latest_ms = np.int64(NO_CLOCK)
    for group in range(medians_ms.shape[0]):
        if not apart[group]:
            latest_ms = max(latest_ms, medians_ms[group])
    return latest_ms


@leaf
def _median_ms(clocks_ms, first):
    """Return the latest time that more than half of the clocks from `first` on have reached; sorts them."""
    for at in range(first + 1, clocks_ms.shape[0]):  # the most recently active is last, so they nearly are sorted
        clock_ms, to = clocks_ms[at], at
        while to > first and clocks_ms[to - 1] > clock_ms:
            clocks_ms[to] = clocks_ms[to - 1]
            to -= 1
        clocks_ms[to] = clock_ms
    return clocks_ms[first + (clocks_ms.shape[0] - first - 1) // 2]


@leaf
def _let_vote(hashes, hashes_ms, first, others, voter, clock_ms):
    """Put a voter before `first` if there is room and it is not among those from `others` on.

    Returns the new first.
    """
    if first == 0:
        return first
    for other in range(others, hashes.shape[0]):
        if hashes[other] == voter:
            return first
    hashes[first - 1], hashes_ms[first - 1] = voter, clock_ms
    return first - 1
