"""What a shard knows of time besides its timelines: the votes for its clock, and what eviction has taken.

Where keys change their shards, votes go with their keys; a vote whose key is not there any more is dropped. What was
evicted cannot be told apart by keys any more, so all shards know the latest of what any of them has evicted of a group:
nothing is said to be complete that is not.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from buckets.engine.eviction.shard_clock import VOTERS, ShardClock, Voter
from buckets.state_transfer.regrouping import Regrouping


@dataclass(frozen=True)
class ShardTimes:
    """What a shard knows of time.

    Attributes:
        evicted_until_ms: by group, the time of the latest event that was evicted.
        voters: of its clock, by group; who had an event last comes last.
    """

    evicted_until_ms: dict[str, int] = field(default_factory=dict)
    voters: dict[str, list[Voter]] = field(default_factory=dict)

    @classmethod
    def read(cls, overview: bytes, clock: bytes) -> "ShardTimes":
        """Read what an eviction schedule has written; nothing of a shard that has none."""
        evicted_until_ms = json.loads(overview).get("evicted_until_ms", {}) if overview else {}
        return cls(evicted_until_ms, ShardClock.from_bytes(clock).voters)

    def overview(self) -> bytes:
        """Return what of it is not in the votes, as `read` takes it."""
        return json.dumps({"evicted_until_ms": self.evicted_until_ms}).encode()

    def clock(self) -> ShardClock:
        """Return the clock by these votes."""
        return ShardClock.of_voters(self.voters)


Resolved = tuple[int, str, int, str]
"""The shard and the group of a voter as they were, its hash, and its key as it was."""


def resolve(shard: int, group_id: str, keys: Iterable[str], times: Mapping[int, ShardTimes]) -> Iterator[Resolved]:
    """Yield those of some keys that are voters of their shard."""
    wanted = {voter for voter, _ in times[shard].voters.get(group_id, ())} if shard in times else ()
    if not wanted:
        return
    for key in keys:
        voter = zlib.crc32(key.encode())
        if voter in wanted:
            yield shard, group_id, voter, key


def carried_times(
    times: Mapping[int, ShardTimes], resolved: Iterable[Resolved], carried: Regrouping
) -> dict[int, ShardTimes]:
    """Return what each shard knows from now on; `resolved` are the keys of voters."""
    times_now = {shard: ShardTimes() for shard in range(carried.shards)}
    for shard, before in times.items():
        for group_id, until_ms in before.evicted_until_ms.items():
            if group_id in carried.groups:
                shards_now = [shard] if carried.keeps_shards(group_id) else range(carried.shards)
                now_id = carried.groups[group_id].group.state_id
                for shard_now in shards_now:
                    known = times_now[shard_now].evicted_until_ms
                    known[now_id] = max(until_ms, known.get(now_id, until_ms))
        for group_id, voters in before.voters.items():
            if group_id in carried.groups and carried.keeps_shards(group_id):
                times_now[shard].voters[group_id] = voters
    _move_voters(times, resolved, carried, times_now)
    return times_now


def _move_voters(
    times: Mapping[int, ShardTimes],
    resolved: Iterable[Resolved],
    carried: Regrouping,
    times_now: Mapping[int, ShardTimes],
) -> None:
    """Let voters vote where their keys are now, those who had events last in their old shards last."""
    moved: dict[tuple[int, str], dict[int, tuple[int, int, int]]] = {}
    clocks = {
        (shard, group_id): dict(voters) for shard, known in times.items() for group_id, voters in known.voters.items()
    }
    ranks = {of: {voter: len(voters) - at for at, voter in enumerate(voters)} for of, voters in clocks.items()}
    for shard, group_id, voter, key in resolved:
        if group_id not in carried.groups or carried.keeps_shards(group_id):
            continue
        group = carried.groups[group_id]
        (now,) = group.keys([key])
        (to,) = group.shards([now], carried.shards)
        from_last, clock_ms = ranks[shard, group_id][voter], clocks[shard, group_id][voter]
        there = moved.setdefault((to, group.group.state_id), {})
        there[zlib.crc32(now.encode())] = -from_last, shard, clock_ms
    for (to, now_id), voters in moved.items():
        ordered = sorted(voters.items(), key=lambda voter_at: (voter_at[1], voter_at[0]))[-VOTERS:]
        times_now[to].voters[now_id] = [(voter, clock_ms) for voter, (_, _, clock_ms) in ordered]
