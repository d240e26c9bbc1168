"""What becomes of an event: one of seven outcomes, and what a side output says of it."""

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
    """What became of each event: arrays of shape `(events,)`."""

    # uint8, EVALUATED | TOO_LATE | DUPLICATE | LATE | COLLISION_NOT_KEPT | OVERFLOW | UNJUDGED; the last one is of an
    # event that would have been evaluated, and only fills the timeline
    code: npt.NDArray[np.uint8]
    applied: Flags  # bool, whether it is in the timeline now
    clock_ms: Int64s  # int64, the key's clock when it arrived
    other_start: Int64s  # int64, where in the pool the id begins that shares its time; -1 for none
    other_length: Int64s  # int64
    rule: Int64s  # int64, the rule whose sum overflowed
    other_ms: Int64s  # int64, of a duplicate the time of the event that had arrived; not set in others
    # int64 `(events, columns, 2)`, of a duplicate the least and the greatest value of the cell of that event, by the
    # columns of its group; not set in others. So the memory of it is that of duplicates.
    other_values: Int64s
