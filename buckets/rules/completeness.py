"""Which event times have arrived, as a few stretches, and the time from which a history that began later is complete.

The times of a stream form one stretch, from its first event to its latest. An event with a wild date, years ahead,
forms a separate stretch. A new track in a version of the rules has not seen earlier arrivals. Its windows are complete
if they begin after every event that the key can have had until then:

    stretches       [──────────────]                    [·]
    since                           └─ for events here ─┘  └─ for events here

So a wild date affects only the windows that end after it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from buckets.arrays import Int64s
from buckets.duration import DAY_MS

MOST_STRETCHES: Final = 8
ALWAYS_MS: Final = -(2**63)  # Before every event


class Stretch(NamedTuple):
    """A range of event times, from its first to its last event, in ms."""

    first_ms: int
    last_ms: int


Stretches = tuple[Stretch, ...]  # In ascending order, more than a day apart, at most `MOST_STRETCHES` of them


class Since(NamedTuple):
    """From when on the history is complete, for events from a time on; both in ms."""

    from_ms: int
    since_ms: int


Completeness = tuple[Since, ...]  # In ascending order of both; the first holds from `ALWAYS_MS` on
FROM_THE_FIRST: Final = (Since(ALWAYS_MS, ALWAYS_MS),)  # Complete since the first event


def stretches_of(times_ms: Int64s) -> Stretches:
    """Return the stretches of event times, int64 `(events,)`.

    Cost: O(events) where they lie within a day, else a sort.
    """
    if not len(times_ms):
        return ()
    first_ms, last_ms = int(times_ms.min()), int(times_ms.max())
    if last_ms - first_ms <= DAY_MS:
        return (Stretch(first_ms, last_ms),)
    ordered = np.sort(times_ms)
    gaps = np.flatnonzero(np.diff(ordered) > DAY_MS)
    firsts, lasts = ordered[np.append(0, gaps + 1)].tolist(), ordered[np.append(gaps, -1)].tolist()
    return joined(map(Stretch, firsts, lasts))


def joined(stretches: Iterable[Stretch]) -> Stretches:
    """Join the stretches of several parts of a stream; if there are too many, the nearest are merged."""
    found: list[Stretch] = []
    for stretch in sorted(stretches):
        if found and stretch.first_ms - found[-1].last_ms <= DAY_MS:
            found[-1] = Stretch(found[-1].first_ms, max(found[-1].last_ms, stretch.last_ms))
        else:
            found.append(stretch)
    while len(found) > MOST_STRETCHES:
        gaps_ms = [after.first_ms - before.last_ms for before, after in pairwise(found)]
        nearest = gaps_ms.index(min(gaps_ms))
        found[nearest : nearest + 2] = [Stretch(found[nearest].first_ms, found[nearest + 1].last_ms)]
    return tuple(found)


def complete_behind(arrived: Stretches, distance_ms: int, lateness_ms: int) -> Completeness:
    """Return the time from which a history that missed all arrivals so far (at least one stretch) is complete.

    `distance_ms` is the time from the latest event to the first complete time, negative if that is earlier;
    `lateness_ms` is how far an evaluated event may lie before the latest of its key.
    """
    starts_ms = [ALWAYS_MS, *(stretch.first_ms - lateness_ms for stretch in arrived[1:])]
    return tuple(Since(start, each.last_ms + distance_ms) for start, each in zip(starts_ms, arrived, strict=True))


def earlier_from(completeness: Completeness, by_ms: int) -> Completeness:
    """Return the same history, with each step valid for events from an earlier time on."""
    return tuple(
        since if since.from_ms == ALWAYS_MS else Since(since.from_ms - by_ms, since.since_ms) for since in completeness
    )


def later(one: Completeness, other: Completeness) -> Completeness:
    """Return the intersection of two histories; if it has too many steps, the oldest are joined."""
    steps: list[Since] = []
    for from_ms in sorted({since.from_ms for since in (*one, *other)}):
        since_ms = max(at(one, from_ms), at(other, from_ms))
        if not steps or since_ms > steps[-1].since_ms:
            steps.append(Since(from_ms, since_ms))
    kept = steps[-MOST_STRETCHES:]
    return (Since(ALWAYS_MS, kept[0].since_ms), *kept[1:])


def at(completeness: Completeness, time_ms: int) -> int:
    """Return the time from which the history is complete for an event at a time."""
    return [since.since_ms for since in completeness if since.from_ms <= time_ms][-1]


def as_arrays(many: Sequence[Completeness]) -> tuple[Int64s, Int64s]:
    """Return several histories with common steps.

    The first array, int64 `(steps,)`, holds the start of each step, the first from `ALWAYS_MS`; the second, int64
    `(histories, steps)`, the time from which each is complete there.
    """
    from_ms = sorted({ALWAYS_MS, *(since.from_ms for each in many for since in each)})
    since_ms = [[at(each, moment_ms) for moment_ms in from_ms] for each in many]
    return np.array(from_ms, np.int64), np.array(since_ms, np.int64).reshape(len(many), len(from_ms))


@dataclass(frozen=True)
class Fill:
    """A group that is being filled."""

    number: int  # of the fill; no two of a job have the same
    group_id: str  # the group
    rule_ids: tuple[str, ...]  # the rules that it was asked for
    first_batch: int  # the archive is read up to the batch before; what arrives from it on waits in the state
    complete: Completeness | None = None  # since when the timelines will be complete; None: since the first event

    @property
    def timelines(self) -> str:
        """The identity of its timelines in the state: 16 hex digits."""
        return fill_identity(self.group_id, self.number, "timelines")

    @property
    def waiting(self) -> str:
        """The identity, in the state, of arrivals that wait until the archive has been read: 16 hex digits."""
        return fill_identity(self.group_id, self.number, "waiting")


class Filled(NamedTuple):
    """The progress of a fill after a batch."""

    chunk: int  # the next chunk of history of the slowest shard
    waiting: int  # how many batches of arrivals waited, summed over the shards
    done: bool  # whether all shards had caught up


class Piece(NamedTuple):
    """A piece of the history of a group in a shard."""

    packed: bytes | None  # the events as `fan_out` packs them; None where the shard has none
    rows: int  # how many rows of the archive it stands for, in all shards
    lists: str  # as JSON, by name the versions of the lists that its events have seen


def fill_identity(group_id: str, number: int, what: str) -> str:
    """Return an identity that is unique to one fill of a group."""
    return hashlib.blake2b(f"{group_id}/{number}/{what}".encode(), digest_size=8).hexdigest()
