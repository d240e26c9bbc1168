"""Results as rows: one for an event and a rule, in arrays that grow as they fill."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import allocating


class Rows(NamedTuple):
    """Results, one row for an event and a rule: arrays of one length.

    Attributes:
        event: int64, the event's index in `KeyedEvents`.
        rule: int32, the rule's index in the plan.
        whole: int64, the value in scaled units.
        micro: int32, millionths of a unit, for averages.
        lower_whole: int64, the least that the value of `tail: all` can be.
        lower_micro: int32.
        upper_whole: int64, the greatest that it can be.
        upper_micro: int32.
        event_count: int64, how many events the window holds, its edge's bucket counted as the value counts it.
        count_lower: int64, the fewest that it can hold.
        count_upper: int64, the most that it can hold.
        fired: bool.
        exact: bool, whether lower and upper bound are the same, before an average is rounded.
        certain: bool, whether every value between the bounds fires, or none does.
        fits: bool; where it is False the rule is on trial and its sum passes 64 bits: only event and rule are set.
    """

    event: npt.NDArray[np.int64]
    rule: npt.NDArray[np.int32]
    whole: npt.NDArray[np.int64]
    micro: npt.NDArray[np.int32]
    lower_whole: npt.NDArray[np.int64]
    lower_micro: npt.NDArray[np.int32]
    upper_whole: npt.NDArray[np.int64]
    upper_micro: npt.NDArray[np.int32]
    event_count: npt.NDArray[np.int64]
    count_lower: npt.NDArray[np.int64]
    count_upper: npt.NDArray[np.int64]
    fired: npt.NDArray[np.bool_]
    exact: npt.NDArray[np.bool_]
    certain: npt.NDArray[np.bool_]
    fits: npt.NDArray[np.bool_]


@allocating
def new_rows(capacity):
    """Make rows with room for `capacity`."""
    return Rows(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.bool_),
        np.empty(capacity, np.bool_),
        np.empty(capacity, np.bool_),
        np.empty(capacity, np.bool_),
    )


@allocating
def with_room(rows: Rows, used, needed) -> Rows:
    """Return the same rows with room for `needed` more, doubled where they are full.

    One loop over all arrays: numba compiles a slice's assignment several times as long.
    """
    if used + needed <= rows.event.shape[0]:
        return rows
    larger = new_rows(2 * rows.event.shape[0] + needed)
    for row in range(used):
        larger.event[row] = rows.event[row]
        larger.rule[row] = rows.rule[row]
        larger.whole[row] = rows.whole[row]
        larger.micro[row] = rows.micro[row]
        larger.lower_whole[row] = rows.lower_whole[row]
        larger.lower_micro[row] = rows.lower_micro[row]
        larger.upper_whole[row] = rows.upper_whole[row]
        larger.upper_micro[row] = rows.upper_micro[row]
        larger.event_count[row] = rows.event_count[row]
        larger.count_lower[row] = rows.count_lower[row]
        larger.count_upper[row] = rows.count_upper[row]
        larger.fired[row] = rows.fired[row]
        larger.exact[row] = rows.exact[row]
        larger.certain[row] = rows.certain[row]
        larger.fits[row] = rows.fits[row]
    return larger
