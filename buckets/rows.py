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
        held: int64, how many events the window holds.
        fired: bool.
    """

    event: npt.NDArray[np.int64]
    rule: npt.NDArray[np.int32]
    whole: npt.NDArray[np.int64]
    micro: npt.NDArray[np.int32]
    held: npt.NDArray[np.int64]
    fired: npt.NDArray[np.bool_]


@compiled
def new_rows(capacity):
    """Rows with room for `capacity`."""
    return Rows(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
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
    larger.held[:used] = rows.held[:used]
    larger.fired[:used] = rows.fired[:used]
    return larger
