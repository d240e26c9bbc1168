"""Decides what became of each arrival of a key: whether it counts, came late, was a repeat, and so on.

The tests are those of the documentation, in their order: too late, repeat, late, collision. They are made here a
second time, plainly, since what an explanation says of a timeline must not come from that timeline.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from buckets.config.engine import CollisionPolicy, LatePolicy, Precision

Fate = Literal[
    "counts",  # it is in the timeline
    "late",  # in the timeline, and older than another of its key that came before it
    "collides",  # in the timeline, and shares its time with another
    "repeat",  # the same id had come before, at the same time or as near as the job says
    "too late",  # older than what is kept
    "dropped",  # late, and the job drops what is late
    "not kept",  # shares its time with another, and the job keeps the first
    "replaced",  # another came at its time, and the job keeps the last
    "refused",  # a sum would have passed 64 bits
    "left out",  # the filter of the group does not pass it
    "malformed",  # a field that the group needs is null
    "before",  # it came before the group was kept
    "not yet",  # it came after the event in question
]
"""What became of an arrival."""
IN_TIMELINE: Final[frozenset[Fate]] = frozenset(["counts", "late", "collides"])


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
    """What became of arrivals."""

    fates: list[Fate]  # of each
    others: Mapping[int, int]  # by index, that of the arrival with which it shares id or time
    clock_ms: int | None  # the greatest time that had come before the last one; None for none


def decide_fates(
    times_ms: Sequence[int], ids: Sequence[str], regimes: Sequence[Regime], known: Mapping[int, Fate]
) -> Fates:
    """Say what became of arrivals of one key, in the order in which they came. A repeat moves no clock.

    `regimes` are the settings that each came under; `known` are, by index, those that did not get as far as the
    timeline. Complexity: O(n) where few share an id or a time.
    """
    fates: list[Fate] = []
    others: dict[int, int] = {}
    by_id: dict[str, list[int]] = defaultdict(list)
    by_time: dict[int, list[int]] = defaultdict(list)
    clock_ms = before_ms = None
    for row, (time_ms, regime) in enumerate(zip(times_ms, regimes, strict=True)):
        before_ms = clock_ms
        if row in known:
            fates.append(known[row])
            continue
        now_ms = time_ms if clock_ms is None else max(clock_ms, time_ms)
        kept_ms = now_ms - regime.horizon_ms
        if time_ms < kept_ms:
            fates.append("too late")
            continue
        near = [
            (abs(times_ms[other] - time_ms), times_ms[other], other)
            for other in by_id[ids[row]]
            if fates[other] in IN_TIMELINE
            and abs(times_ms[other] - time_ms) <= regime.repeats_ms
            and times_ms[other] >= kept_ms
            and regime.is_raw(times_ms[other], now_ms)
        ]
        if near:
            fates.append("repeat")
            others[row] = min(near)[2]
            continue
        fate: Fate = "counts" if time_ms == now_ms else "dropped" if regime.late == "drop" else "late"
        by_id[ids[row]].append(row)
        there = by_time[time_ms]
        if fate != "dropped" and there and regime.is_raw(time_ms, now_ms):
            others[row] = there[0]
            if regime.collision == "keep_first":
                fate = "dropped" if fate == "late" else "not kept"
            else:
                fate = "collides" if fate == "counts" else "late"
        if row in others and regime.collision == "replace":
            fates[there[0]], others[there[0]], there[0] = "replaced", row, row
        elif fate in IN_TIMELINE:
            there.append(row)
        fates.append(fate)
        clock_ms = now_ms
    return Fates(fates, others, before_ms)
