"""What stays the same while the events of a group are scored: its rules, its policies, and how timelines are kept."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.kernel.plan import FeatureArrays, RuleArrays
from buckets.timeline.paging import Paging
from buckets.timeline.tiers import Tiers


class Policy(NamedTuple):
    """What decides about events that break the order: horizon in ms, and policy codes of `plan`."""

    horizon_ms: int
    late: int
    collision: int
    edge: int


class Context(NamedTuple):
    """What stays the same for all events of a call.

    Attributes:
        features: what is computed.
        rules: the limits that it is compared with.
        reach_ms: int64 `(windows,)`, how far each window reaches back.
        needs_extremes: bool `(columns,)`, whether some rule asks for a measure's least or greatest value.
        tiers: the buckets older than the tail.
        policy: what happens to events that break the order.
        paging: how timelines are cut.
        generation: of the group.
        emit_all: whether rows are written for every rule, or for the fired ones only.
    """

    features: FeatureArrays
    rules: RuleArrays
    reach_ms: npt.NDArray[np.int64]
    needs_extremes: npt.NDArray[np.bool_]
    tiers: Tiers
    policy: Policy
    paging: Paging
    generation: int
    emit_all: bool
