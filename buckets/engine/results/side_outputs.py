"""Side outputs of a group: late events, collisions and duplicates."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from buckets.arrays import Int64s
from buckets.engine.values.group_parts import ScoredGroup
from buckets.engine.values.track_values import compare_duplicates
from buckets.json_text import write_json
from buckets.kernel.outcome import COLLISION_NOT_KEPT, DUPLICATE, EVALUATED, LATE, TOO_LATE, UNJUDGED
from buckets.outputs.columns import COLLISIONS, DUPLICATES, LATE_EVENTS, TIME, columns_of


def late_events(group: ScoredGroup) -> pa.Table | None:
    """Return late and too late events."""
    outcomes = group.scored.outcomes
    events = np.flatnonzero((outcomes.code == LATE) | (outcomes.code == TOO_LATE))
    if not len(events):
        return None
    columns = {
        "clock": pa.array(outcomes.clock_ms[events]).cast(TIME),
        "applied": pa.array(outcomes.applied[events]),
        "too_late": pa.array(outcomes.code[events] == TOO_LATE),
        "other_event_id": _other_ids(group, events),
    }
    return side_table(LATE_EVENTS, group, events, columns)


def collisions(group: ScoredGroup) -> pa.Table | None:
    """Return events that shared their time with another event of their key, and were not late."""
    outcomes = group.scored.outcomes
    events = np.flatnonzero(outcomes.other_start >= 0)
    if len(events):
        events = events[np.isin(outcomes.code[events], (EVALUATED, UNJUDGED, COLLISION_NOT_KEPT))]
    if not len(events):
        return None
    columns = {"kept": pa.array(outcomes.applied[events]), "other_event_id": _other_ids(group, events)}
    return side_table(COLLISIONS, group, events, columns)


def duplicates(group: ScoredGroup) -> pa.Table | None:
    """Return duplicates, and how they differ from the events that had arrived."""
    events = np.flatnonzero(group.scored.outcomes.code == DUPLICATE)
    if not len(events):
        return None
    compared = compare_duplicates(group, events)
    columns = {
        "event": pa.array(group.table.event_texts(group.table.take(events)), pa.string()),
        "compared": pa.array([each.fields for each in compared], pa.list_(pa.string())),
        "other_values": pa.array([write_json(each.other) for each in compared], pa.string()),
        "own_values": pa.array([write_json(each.own) for each in compared], pa.string()),
    }
    return side_table(DUPLICATES, group, events, columns)


def side_table(output: str, group: ScoredGroup, events: Int64s, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return the rows of a side output; `columns` are those that not every side output has.

    An outcome is warm if the event is later than everything that may have been evicted of its key: then no missing
    event could change the outcome.
    """
    taken = group.table.take(events)
    warm = taken["time_ms"].to_numpy() >= group.scored.since_ms[group.table.codes[events]]
    fields = pa.array([list(group.plan.group.fields)] * len(events), pa.list_(pa.string()))
    known = {
        "event_id": taken["event_id"],
        "group": pa.array([group.plan.group.name] * len(events), pa.string()),
        "group_by": fields,
        "key": group.table.key_column(events),
        "event_time": taken["time_ms"].cast(TIME),
        "warm": pa.array(warm),
        "source": taken["source"].cast(pa.string()),
        "source_order": taken["source_order"],
        "position": taken["position"],
        **columns,
    }
    schema = columns_of(output, group.table.schema.largest_scale)
    return pa.table({name: known[name] for name in schema.names}, schema=schema)


def _other_ids(group: ScoredGroup, events: Int64s) -> pa.Array:
    return pa.array([group.scored.other_id(event) for event in events.tolist()], pa.string())


MAKERS: dict[str, Callable[[ScoredGroup], pa.Table | None]] = {
    LATE_EVENTS: late_events,
    COLLISIONS: collisions,
    DUPLICATES: duplicates,
}
"""What makes each side output. A small batch is mostly the making of tables, so one that would be empty is None."""
