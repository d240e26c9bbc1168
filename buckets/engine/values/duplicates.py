"""How duplicates differ from the events that had arrived, as far as the timeline says what those were.

A timeline keeps of an event its id, its time, and the values of the fields that rules of its group compute something
of. So these are compared, and no others: what is said of a duplicate does not depend on the batch in which it came. Of
a field of which only a digest is kept, as for `count_distinct`, it is known that it differs and not what it was; of one
that is kept for filtered features alone nothing is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from buckets.engine.batch.keyed_table import EventFields
from buckets.engine.values.scored_group import ScoredGroup
from buckets.engine.values.track_values import track_values
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import format_scaled
from buckets.rules.completeness import as_arrays
from buckets.rules.feature import field_kind
from buckets.rules.track import Track

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Compared:
    """A duplicate beside the event that had arrived.

    Attributes:
        fields: those that could be compared.
        other: of these the ones that differ, as the event had them that had arrived; without those that are not known.
        own: the same fields as the duplicate has them.
    """

    fields: list[str]
    other: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kept:
    """What a timeline keeps of a field: the columns of its values, and whether these are the values themselves."""

    field: str
    columns: list[int]
    tracks: list[Track]
    is_value: bool


def compare_duplicates(group: ScoredGroup, events: Int64s) -> list[Compared]:
    """Compare duplicates with the events that had arrived.

    Args:
        group: the scored events of a group.
        events: int64, which of them are duplicates.
    """
    schema, other_ms = group.table.schema, group.scored.outcomes.other_ms[events]
    times_ms, time = group.table.times_ms(events), group.table.schema.event_time.field
    found = [
        Compared([time]) if other == own else Compared([time], {time: other}, {time: own})
        for other, own in zip(other_ms.tolist(), times_ms.tolist(), strict=True)
    ]
    for kept in _kept(group):
        other, own = group.scored.outcomes.other_values[events][:, kept.columns], _values(group, kept, events)
        is_known, differs = _complete(group, kept, times_ms) <= other_ms, (other != own).any(axis=(1, 2))
        values = group.table.fields([kept.field], events)[kept.field].to_pylist()
        for row in np.flatnonzero(is_known).tolist():
            found[row].fields.append(kept.field)
            if differs[row]:
                found[row].own[kept.field] = _shown(values[row], kept.field, schema)
                least, greatest = other[row, 0].tolist()
                if kept.is_value or least > greatest:
                    value = None if least > greatest else least
                    found[row].other[kept.field] = _shown(value, kept.field, schema)
    return found


def _kept(group: ScoredGroup) -> Iterator[_Kept]:
    """Yield the fields of which a timeline keeps a value or a digest of each event, in the order of its columns."""
    schema, measures, tracks = group.table.schema, group.plan.group.measures, group.plan.group.derived_tracks
    plain: dict[str, dict[str, tuple[int, Track]]] = {}
    for column, track_name in enumerate(measures):
        track = tracks.get(track_name)
        if track is not None and track.of is not None and not track.where:
            plain.setdefault(track.of, {})[track.kind] = column, track
    for name, kinds in plain.items():
        is_text = field_kind(name, schema) == "string"
        if "value" in kinds and not is_text:
            column, track = kinds["value"]
            yield _Kept(name, [column], [track], True)
        elif {"digest_high", "digest_low"} <= kinds.keys():
            halves = [kinds["digest_high"], kinds["digest_low"]]
            yield _Kept(name, [column for column, _ in halves], [track for _, track in halves], not is_text)


def _values(group: ScoredGroup, kept: _Kept, events: Int64s) -> Int64s:
    """Return what a timeline would keep of events: int64 `(events, columns, 2)`, the least and the greatest value."""
    table = group.table
    chosen = EventFields(table.schema, table.events, table.lists, table.rows_of(events))
    values, nulls = track_values(dict(enumerate(kept.tracks)), chosen, len(kept.tracks))
    both = np.stack([values, values], axis=-1)
    both[nulls] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    return np.swapaxes(both, 0, 1)


def _complete(group: ScoredGroup, kept: _Kept, times_ms: Int64s) -> Int64s:
    """Return since when the columns of a field are complete, for events at these times."""
    known = group.plan.group.completeness(*(track.name for track in kept.tracks))
    from_ms, since_ms = as_arrays([known])
    complete_ms: Int64s = since_ms[0][np.searchsorted(from_ms, times_ms, side="right") - 1]
    return complete_ms


def _shown(value: Any, name: str, schema: EventSchema) -> Any:
    """Return a value as events in JSON have it; a boolean may be the number that a timeline keeps of it."""
    if value is None or name not in schema.measures:
        return bool(value) if value is not None and schema.attributes[name] == "boolean" else value
    return format_scaled(value, schema.measures[name].scale)
