"""Decides what became of each arrival of a key: whether it counts, came late, was a repeat, and so on.

The tests are those of the documentation, in their order: too late, repeat, late, collision. They are made here a
second time, plainly, since what an explanation says of a timeline must not come from that timeline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from buckets.config.engine import CollisionPolicy, LatePolicy, Precision

Fate = Literal[
    "counts",
    "late",
    "collides",
    "repeat",
    "too late",
    "dropped",
    "not kept",
    "replaced",
    "refused",
    "left out",
    "malformed",
    "before",
    "not yet",
]
"""What became of an arrival.

counts      it is in the timeline
late        in the timeline, and older than another of its key that came before it
collides    in the timeline, and shares its time with another
repeat      the same id had come before, at the same time or as near as the job says
too late    older than what is kept
dropped     late, and the job drops what is late
not kept    shares its time with another, and the job keeps the first
replaced    another came at its time, and the job keeps the last
refused     a sum would have passed 64 bits
left out    the filter of the group does not pass it
malformed   a field that the group needs is null
before      it came before the group was kept
not yet     it came after the event in question
"""
IN_TIMELINE: Final[frozenset[Fate]] = frozenset(["counts", "late", "collides"])
NO_CLOCK: Final = -(2**63)
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Regime:
    """The settings of a batch that decide what becomes of its arrivals."""

    horizon_ms: int  # how far back the group reaches
    late: LatePolicy  # what is done with late events
    collision: CollisionPolicy  # what is done with events that share a time
    precision: Precision  # for how long events are raw
    repeats_ms: int = 0  # how far apart in time two of one id may be to be repeats; 0 where they have the same time

    def is_raw(self, time_ms: int, clock_ms: int) -> bool:
        """Return whether events at a time are still there one by one, when the key has come to another time."""
        tail_ms, width_ms = self.precision.tail, self.precision.resolution
        return tail_ms is None or time_ms >= (clock_ms - tail_ms) // width_ms * width_ms


@dataclass(frozen=True)
class Fates:
    """What became of arrivals: one for each."""

    fates: list[Fate]  # what became of each
    clocks_ms: Int64s  # int64, the greatest time that had come before each; `NO_CLOCK` for none
    others: Mapping[int, int]  # by index, that of the arrival with which it shares id or time


def decide_fates(
    times_ms: Int64s, ids: Sequence[str], regimes: Sequence[Regime], regime: Int64s, known: Mapping[int, Fate]
) -> Fates:
    """Say what became of arrivals of one key.

    Complexity: O(n log n), and a loop in Python over those that share a time alone.

    Args:
        times_ms: int64, when each happened, in the order in which they came.
        ids: the id of each.
        regimes: the settings that there were.
        regime: int64, which of them each came under.
        known: by index, of those that did not get as far as the timeline.
    """
    size = len(times_ms)
    fates: list[Fate] = ["counts"] * size
    clocks_ms = np.full(size, NO_CLOCK, np.int64)
    for row, fate in known.items():
        fates[row] = fate
    tested = np.setdiff1d(np.arange(size), np.fromiter(known, np.int64, len(known)))
    if any(settings.repeats_ms for settings in regimes):
        return _decide_in_turn(tested.tolist(), times_ms, ids, [regimes[at] for at in regime], fates, clocks_ms)
    if len(tested):
        clocks_ms[tested[1:]] = np.maximum.accumulate(times_ms[tested])[:-1]
    horizons_ms = np.array([settings.horizon_ms for settings in regimes], np.int64)[regime]
    has_clock = clocks_ms != NO_CLOCK
    late = has_clock & (times_ms < clocks_ms)
    too_late = late & (times_ms < np.where(has_clock, clocks_ms, 0) - horizons_ms)
    for row in tested[late[tested]].tolist():
        fates[row] = "too late" if too_late[row] else "late"
        if fates[row] == "late" and regimes[regime[row]].late == "drop":
            fates[row] = "dropped"
    others: dict[int, int] = {}
    for rows in _sharing(times_ms, tested):
        _decide_shared(rows, times_ms, ids, [regimes[regime[row]] for row in rows], clocks_ms, fates, others)
    return Fates(fates, clocks_ms, others)


def _decide_in_turn(
    tested: list[int],
    times_ms: Int64s,
    ids: Sequence[str],
    regimes: Sequence[Regime],
    fates: list[Fate],
    clocks_ms: Int64s,
) -> Fates:
    """Decide about each arrival in its turn: of repeats at another time nothing follows from the greatest time alone.

    A repeat moves no clock. Complexity: O(n) for ids and times that are few times there.
    """
    others: dict[int, int] = {}
    by_id: dict[str, list[int]] = {}
    by_time: dict[int, list[int]] = {}
    clock_ms = NO_CLOCK
    for row in tested:
        time_ms, regime = int(times_ms[row]), regimes[row]
        clocks_ms[row], now_ms = clock_ms, max(clock_ms, time_ms)
        if clock_ms != NO_CLOCK and time_ms < clock_ms - regime.horizon_ms:
            fates[row] = "too late"
            continue
        near = [
            (abs(int(times_ms[other]) - time_ms), int(times_ms[other]), other)
            for other in by_id.setdefault(ids[row], [])
            if fates[other] in IN_TIMELINE
            and abs(int(times_ms[other]) - time_ms) <= regime.repeats_ms
            and times_ms[other] >= now_ms - regime.horizon_ms
            and regime.is_raw(int(times_ms[other]), now_ms)
        ]
        if near:
            fates[row], others[row] = "repeat", min(near)[2]
            continue
        if time_ms < clock_ms:
            fates[row] = "dropped" if regime.late == "drop" else "late"
        by_id[ids[row]].append(row)
        _decide_beside(row, regime, by_time.setdefault(time_ms, []), times_ms, ids, clocks_ms, fates, others)
        clock_ms = now_ms
    return Fates(fates, clocks_ms, others)


def _sharing(times_ms: Int64s, tested: Int64s) -> list[list[int]]:
    """Return the arrivals that share a time, in the order in which they came."""
    order = tested[np.argsort(times_ms[tested], kind="stable")]
    starts = np.flatnonzero(np.diff(times_ms[order], prepend=times_ms[order][:1] - 1))
    sizes = np.diff(np.append(starts, len(order)))
    return [
        order[start : start + size].tolist()
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        if size > 1
    ]


def _decide_shared(
    rows: list[int],
    times_ms: Int64s,
    ids: Sequence[str],
    regimes: Sequence[Regime],
    clocks_ms: Int64s,
    fates: list[Fate],
    others: dict[int, int],
) -> None:
    """Decide about arrivals of one time."""
    there: list[int] = []
    for row, regime in zip(rows, regimes, strict=True):
        if fates[row] != "too late":
            _decide_beside(row, regime, there, times_ms, ids, clocks_ms, fates, others)


def _decide_beside(
    row: int,
    regime: Regime,
    there: list[int],
    times_ms: Int64s,
    ids: Sequence[str],
    clocks_ms: Int64s,
    fates: list[Fate],
    others: dict[int, int],
) -> None:
    """Decide about an arrival beside those of its time that are in the timeline, to which it is added."""
    time_ms = int(times_ms[row])
    same_time = there if regime.is_raw(time_ms, max(int(clocks_ms[row]), time_ms)) else []
    same_id = next((other for other in same_time if ids[other] == ids[row]), None)
    if same_id is not None:
        fates[row], others[row] = "repeat", same_id
        return
    if fates[row] == "dropped":
        return
    if not same_time:
        there.append(row)
        return
    others[row] = same_time[0]
    if regime.collision == "keep_first":
        fates[row] = "dropped" if fates[row] == "late" else "not kept"
        return
    if regime.collision == "replace":
        fates[same_time[0]] = "replaced"
        others[same_time[0]] = row
        there[there.index(same_time[0])] = row
    else:
        there.append(row)
    fates[row] = "collides" if fates[row] == "counts" else "late"
