"""The events of one group and shard as they came in their payload, and what several outputs take from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch.fan_out import attribute_column, measure_column
from buckets.engine.storage.key import decode_key, key_json
from buckets.events.arrivals import event_json
from buckets.events.schema import EventSchema
from buckets.lists.lists import NO_LISTS, Lists, ListsAt
from buckets.rules.group import Group

Int64s = npt.NDArray[np.int64]
ATTRIBUTE_TYPES = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}


@dataclass(frozen=True)
class KeyedTable:
    """Events with their keys. Methods take the indices of some events, int64 `(n,)`.

    Attributes:
        group: the group.
        schema: the event schema.
        events: the events as they came in their payload, without their keys.
        keys: the key of each code, Arrow string `(keys,)`.
        codes: int64 `(events,)`, each event's key.
        lists: those of the batch, into which filters and conditions may look.
    """

    group: Group
    schema: EventSchema
    events: pa.Table
    keys: pa.Array
    codes: Int64s
    lists: Lists = field(default_factory=lambda: NO_LISTS)

    def take(self, events: Int64s) -> pa.Table:
        """Return the events as they came."""
        return self.events.take(pa.array(events))

    def times_ms(self, events: Int64s) -> Int64s:
        """Return when events happened."""
        times_ms: Int64s = self.events["time_ms"].to_numpy()[events]
        return times_ms

    def lists_at(self, events: Int64s) -> ListsAt:
        """Return the lists as they are at events."""
        return ListsAt(self.lists, self.times_ms(events))

    def key_column(self, events: Int64s, order: Sequence[str] = ()) -> pa.Array:
        """Return the keys of events, as JSON text, with their fields in that order or the one of the group."""
        codes, index = np.unique(self.codes[events], return_inverse=True)
        texts = [key_json(self.group, key, self.schema, order) for key in self.keys.take(pa.array(codes)).to_pylist()]
        return pa.array(texts, pa.string()).take(pa.array(index))

    def fields(self, names: Iterable[str], events: Int64s | None = None) -> dict[str, pa.Array]:
        """Return fields of some events or all: attributes in their type, measures as scaled int64, times in ms."""
        found = {name: self._field(name) for name in names}
        if events is None:
            return found
        rows = pa.array(events)
        return {name: column.take(rows) for name, column in found.items()}

    def _field(self, name: str) -> pa.Array:
        """Return a field of all events."""
        schema = self.schema
        if name == schema.event_time.field:
            return self.events["time_ms"].combine_chunks()
        if name in schema.measures:
            return self.events[measure_column(name)].combine_chunks()
        if name not in self.group.fields:
            return self.events[attribute_column(name)].combine_chunks()
        values = [decode_key(self.group, key, schema)[name] for key in self.keys.to_pylist()]
        return pa.array(values, ATTRIBUTE_TYPES[schema.attributes[name]]).take(pa.array(self.codes))

    def event_texts(self, events: Int64s, taken: pa.Table) -> list[str]:
        """Return events as JSON text.

        Args:
            events: indices of events.
            taken: the same events, as `take` gives them.
        """
        names = {attribute_column(name): name for name in self.schema.attributes}
        names |= {measure_column(name): name for name in self.schema.measures}
        known = [name for name in taken.column_names if name in names]
        own_keys = self.keys.take(pa.array(self.codes[events])).to_pylist()
        keys = [decode_key(self.group, key, self.schema) for key in own_keys]
        others = taken.select(known).rename_columns([names[name] for name in known]).to_pylist()
        ids, times_ms = taken["event_id"].to_pylist(), taken["time_ms"].to_pylist()
        declared = [*self.schema.attributes, *self.schema.measures]
        texts = []
        for event_id, time_ms, key, other in zip(ids, times_ms, keys, others, strict=True):
            fields = key | other
            texts.append(event_json(self.schema, event_id, time_ms, {name: fields[name] for name in declared}))
        return texts
