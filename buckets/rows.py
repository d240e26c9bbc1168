"""Results as rows: one for an event and a rule, in arrays that grow as they fill."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import compiled


class Rows(NamedTuple):
    """Results, one row for an event and a rule: arrays of one length.

    Attributes:
        event: int64, the event's place in `KeyedEvents`.
        rule: int32, the rule's place in the plan.
        whole: int64, the value in scaled units.
        micro: int32, millionths of a unit, for averages.
        lower_whole: int64, the least that the value of `tail: all` can be.
        lower_micro: int32.
        upper_whole: int64, the greatest that it can be.
        upper_micro: int32.
        held: int64, how many events the window holds, its edge's bucket counted as the value counts it.
        held_lower: int64, the fewest that it can hold.
        held_upper: int64, the most that it can hold.
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
    held: npt.NDArray[np.int64]
    held_lower: npt.NDArray[np.int64]
    held_upper: npt.NDArray[np.int64]
    fired: npt.NDArray[np.bool_]
    exact: npt.NDArray[np.bool_]
    certain: npt.NDArray[np.bool_]
    fits: npt.NDArray[np.bool_]


@compiled
def new_rows(capacity):
    """Rows with room for `capacity`."""
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


@compiled
def with_room(rows: Rows, used: int, needed: int) -> Rows:
    """The same rows with room for `needed` more, doubled where they are full."""
    if used + needed <= rows.event.shape[0]:
        return rows
    larger = new_rows(2 * rows.event.shape[0] + needed)
    larger.event[:used] = rows.event[:used]
    larger.rule[:used] = rows.rule[:used]
    larger.whole[:used] = rows.whole[:used]
    larger.micro[:used] = rows.micro[:used]
    larger.lower_whole[:used] = rows.lower_whole[:used]
    larger.lower_micro[:used] = rows.lower_micro[:used]
    larger.upper_whole[:used] = rows.upper_whole[:used]
    larger.upper_micro[:used] = rows.upper_micro[:used]
    larger.held[:used] = rows.held[:used]
    larger.held_lower[:used] = rows.held_lower[:used]
    larger.held_upper[:used] = rows.held_upper[:used]
    larger.fired[:used] = rows.fired[:used]
    larger.exact[:used] = rows.exact[:used]
    larger.certain[:used] = rows.certain[:used]
    larger.fits[:used] = rows.fits[:used]
    return larger
