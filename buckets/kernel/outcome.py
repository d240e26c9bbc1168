"""The outcome of an event, one of seven, and the details for side outputs."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Flags, Int64s

EVALUATED: Final = 0
TOO_LATE: Final = 1
DUPLICATE: Final = 2
LATE: Final = 3
COLLISION_NOT_KEPT: Final = 4
OVERFLOW: Final = 5
UNJUDGED: Final = 6
OUTCOMES: Final = 7


class EventOutcomes(NamedTuple):
    """The outcome of each event: arrays of shape `(events,)`."""

    # uint8, EVALUATED | TOO_LATE | DUPLICATE | LATE | COLLISION_NOT_KEPT | OVERFLOW | UNJUDGED; UNJUDGED is an event
    # that would have been evaluated, but only fills the timeline
    code: npt.NDArray[np.uint8]
    applied: Flags  # bool, whether it is in the timeline now
    clock_ms: Int64s  # int64, the key's clock when it arrived
    other_start: Int64s  # int64, the offset in the pool of the id that shares its time; -1 for none
    other_length: Int64s  # int64
    rule: Int64s  # int64, the rule whose sum overflowed
    other_ms: Int64s  # int64, for a duplicate the time of the event that had arrived; otherwise not set
    # int64 `(events, columns, 2)`, for a duplicate the least and the greatest value in that event's cell, by the
    # columns of its group; otherwise not set, so only duplicates take memory
    other_values: Int64s
