"""The side outputs of a group: events that were late, shared their time with another, or were already there."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.values.scored_group import ScoredGroup
from buckets.kernel.outcome import COLLISION_NOT_KEPT, DUPLICATE, EVALUATED, LATE, TOO_LATE
from buckets.outputs.columns import COLLISION_COLUMNS, DUPLICATE_COLUMNS, LATE_EVENT_COLUMNS, TIME

Int64s = npt.NDArray[np.int64]


def late_events(group: ScoredGroup) -> pa.Table:
    """Late and too late events."""
    outcomes = group.scored.outcomes
    events = np.flatnonzero((outcomes.code == LATE) | (outcomes.code == TOO_LATE))
    columns = _side_columns(group, events) | {
        "clock": pa.array(outcomes.clock_ms[events]).cast(TIME),
        "applied": pa.array(outcomes.applied[events]),
        "too_late": pa.array(outcomes.code[events] == TOO_LATE),
        "other_event_id": _other_ids(group, events),
    }
    return pa.table({name: columns[name] for name in LATE_EVENT_COLUMNS.names}, schema=LATE_EVENT_COLUMNS)


def has_collisions(group: ScoredGroup) -> bool:
    """Whether some event shared its time with another."""
    return bool((group.scored.outcomes.other_start >= 0).any())


def collisions(group: ScoredGroup) -> pa.Table:
    """Events that shared their time with another, and were not late."""
    outcomes = group.scored.outcomes
    on_time = (outcomes.code == EVALUATED) | (outcomes.code == COLLISION_NOT_KEPT)
    events = np.flatnonzero(on_time & (outcomes.other_start >= 0))
    columns = _side_columns(group, events) | {
        "kept": pa.array(outcomes.applied[events]),
        "other_event_id": _other_ids(group, events),
    }
    return pa.table({name: columns[name] for name in COLLISION_COLUMNS.names}, schema=COLLISION_COLUMNS)


def duplicates(group: ScoredGroup) -> pa.Table:
    """Events that were already there."""
    columns = _side_columns(group, np.flatnonzero(group.scored.outcomes.code == DUPLICATE))
    return pa.table({name: columns[name] for name in DUPLICATE_COLUMNS.names}, schema=DUPLICATE_COLUMNS)


def _side_columns(group: ScoredGroup, events: Int64s) -> dict[str, pa.Array]:
    """The columns that all side outputs have.

    An outcome is warm where the event is later than all that may have been evicted of its key: nothing that is
    missing could make it another.
    """
    taken = group.table.take(events)
    warm = taken["time_ms"].to_numpy() >= group.scored.since_ms[group.table.codes[events]]
    fields = pa.array([list(group.plan.group.fields)] * len(events), pa.list_(pa.string()))
    return {
        "event_id": taken["event_id"],
        "group": pa.array([group.plan.group.name] * len(events), pa.string()),
        "group_by": fields,
        "key": group.table.key_column(events),
        "event_time": taken["time_ms"].cast(TIME),
        "warm": pa.array(warm),
        "source": taken["source"].cast(pa.string()),
        "source_order": taken["source_order"],
        "position": taken["position"],
    }


def _other_ids(group: ScoredGroup, events: Int64s) -> pa.Array:
    return pa.array([group.scored.other_id(event) for event in events.tolist()], pa.string())
