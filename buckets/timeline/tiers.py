"""How precisely a time is still known: to the millisecond in the tail, by the bucket behind it.

Behind `after_ms` of a tier, counted from the key's clock, events lie in buckets `[start, start + resolution_ms)`. A
bucket is folded once all of it is old enough, so the *border* of a tier is a multiple of its resolution:

    border = floor((clock - after) / resolution) * resolution        times before it are known by the bucket

Borders depend on the clock alone. That is what makes results the same however a stream is cut: whether an edge falls
into a bucket is decided by them, not by what a timeline happens to have folded yet.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import inlined


class Tiers(NamedTuple):
    """Tiers of buckets, the finest and youngest first: int64 arrays of shape `(tiers,)`; none for `tail: all`."""

    after_ms: npt.NDArray[np.int64]
    resolution_ms: npt.NDArray[np.int64]


@inlined
def floor_to(time_ms, width_ms):
    """Return the last multiple of a width at or before a time."""
    return time_ms // width_ms * width_ms


@inlined
def coarsest_ms(tiers: Tiers):
    """Return the widest bucket there can be; 1 where every event is kept raw."""
    return tiers.resolution_ms[tiers.resolution_ms.shape[0] - 1] if tiers.resolution_ms.shape[0] else np.int64(1)


@inlined
def set_borders(borders, tiers: Tiers, clock_ms):
    """Compute each tier's border, int64 `(tiers,)`, for a clock."""
    for tier in range(borders.shape[0]):
        borders[tier] = floor_to(clock_ms - tiers.after_ms[tier], tiers.resolution_ms[tier])


@inlined
def width_at(tiers: Tiers, borders, time_ms):
    """Return width of the bucket in which events of a time lie; 1 in the tail."""
    width = np.int64(1)
    for tier in range(borders.shape[0]):
        if time_ms >= borders[tier]:
            break
        width = tiers.resolution_ms[tier]
    return width


@inlined
def kept_from_ms(tiers: Tiers, clock_ms, horizon_ms):
    """Return from which time on events are kept: the horizon, moved back to the bucket that it falls into."""
    return floor_to(clock_ms - horizon_ms, coarsest_ms(tiers))
