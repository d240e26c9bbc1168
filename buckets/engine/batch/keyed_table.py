"""The events of one group and shard as they came in their payload, and what several outputs take from them.

Events as tables on their way between the stages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch.shard_events import EventsByKey
from buckets.engine.storage.key import decode_key, key_json
from buckets.events.arrivals import JUDGED, event_json
from buckets.events.conversion import ARROW_TYPES
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists, ListsAt
from buckets.rules.group import Group


def judged_flags(events: pa.Table) -> npt.NDArray[np.bool_]:
    """Return whether rules are evaluated at events, bool `(events,)`."""
    if JUDGED not in events.column_names:
        return np.ones(len(events), np.bool_)
    flags: npt.NDArray[np.bool_] = events[JUDGED].fill_null(True).to_numpy()
    return flags


def measure_column(name: str) -> str:
    """Name of a measure's column in a table of events."""
    return f"measure:{name}"


def attribute_column(name: str) -> str:
    """Name of an attribute's column in a table of events."""
    return f"attribute:{name}"


def without(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a table without columns of these names, as far as it has them."""
    return table.drop_columns([name for name in names if name in table.column_names])


def stored_table(arrived: EventsByKey, group: Group) -> pa.Table:
    """Return events of a group as they lie in files and in the state."""
    key = pa.DictionaryArray.from_arrays(pa.array(arrived.codes.astype(np.int32)), arrived.keys)
    return without(arrived.events, map(attribute_column, group.fields)).append_column("key", key)


def with_own_fields(arrived: EventsByKey, group: Group, schema: EventSchema) -> EventsByKey:
    """Return events that lay in a file or in the state with a column for each attribute that their group groups by."""
    missing = [
        name
        for name in group.fields
        if name in schema.attributes and attribute_column(name) not in arrived.events.column_names
    ]
    if not missing:
        return arrived
    events, keys = arrived.events, [decode_key(group, key, schema) for key in arrived.keys.to_pylist()]
    for name in missing:
        values = pa.array([key[name] for key in keys], ARROW_TYPES[schema.attributes[name]])
        events = events.append_column(attribute_column(name), values.take(pa.array(arrived.codes)))
    return arrived._replace(events=events)


Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventFields:
    """The fields of events."""

    schema: EventSchema  # the event schema
    events: pa.Table  # the events as they came in their payload
    # those of the batch, into which filters and conditions may look
    lists: Lists = field(default_factory=lambda: NO_LISTS)
    rows: Int64s | None = None  # int64, the row of each event; None where they are as they stand

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self.events) if self.rows is None else len(self.rows)

    def rows_of(self, events: Int64s | None) -> Int64s | None:
        """Return the rows of some events, or of all; None where all are as they stand."""
        if events is None or self.rows is None:
            return self.rows if events is None else events
        return self.rows[events]

    def fields(self, names: Iterable[str], events: Int64s | None = None) -> dict[str, pa.Array]:
        """Return fields of some events or all.

        Attributes and arrays are in their type, measures scaled int64, times in ms.
        """
        rows = self.rows_of(events)
        found = {name: self._field(name) for name in names}
        return found if rows is None else {name: column.take(pa.array(rows)) for name, column in found.items()}

    def _field(self, name: str) -> pa.Array:
        """Return a field of all rows."""
        schema = self.schema
        if name == schema.event_time.field:
            return self.events["time_ms"].combine_chunks()
        column = measure_column(name) if name in schema.measures else attribute_column(name)
        return self.events[column].combine_chunks()


@dataclass(frozen=True)
class KeyedTable(EventFields):
    """Events with their keys. Methods take the indices of some events, int64 `(n,)`."""

    group: Group = field(kw_only=True)  # the group
    keys: pa.Array = field(kw_only=True)  # the key of each code, Arrow string `(keys,)`
    codes: Int64s = field(kw_only=True)  # int64 `(events,)`, each event's key

    def take(self, events: Int64s, names: Sequence[str] = ()) -> pa.Table:
        """Return the events as they came, with the columns of these names or all."""
        table = self.events.select(names) if names else self.events
        return table.take(pa.array(self.rows_of(events)))

    def column(self, name: str) -> Int64s:
        """Return a column of integers of all events."""
        values: Int64s = self.events[name].to_numpy()
        return values if self.rows is None else values[self.rows]

    def times_ms(self, events: Int64s) -> Int64s:
        """Return when events happened."""
        times_ms: Int64s = self.events["time_ms"].to_numpy()[self.rows_of(events)]
        return times_ms

    def lists_at(self, events: Int64s) -> ListsAt:
        """Return the lists as they are at events."""
        return ListsAt(self.lists, self.times_ms(events))

    def key_column(self, events: Int64s, order: Sequence[str] = ()) -> pa.Array:
        """Return the keys of events, as JSON text, with their fields in that order or the one of the group."""
        codes, index = np.unique(self.codes[events], return_inverse=True)
        texts = [key_json(self.group, key, self.schema, order) for key in self.keys.take(pa.array(codes)).to_pylist()]
        return pa.array(texts, pa.string()).take(pa.array(index))

    def event_texts(self, taken: pa.Table) -> list[str]:
        """Return events, as `take` gives them, as JSON text."""
        schema = self.schema
        names = {attribute_column(name): name for name in (*schema.attributes, *schema.arrays)}
        names |= {measure_column(name): name for name in schema.measures}
        ids, times_ms = taken["event_id"].to_pylist(), taken["time_ms"].to_pylist()
        fields = taken.select([*names]).rename_columns([*names.values()]).to_pylist()
        return [
            event_json(schema, event_id, time_ms, of_event)
            for event_id, time_ms, of_event in zip(ids, times_ms, fields, strict=True)
        ]
