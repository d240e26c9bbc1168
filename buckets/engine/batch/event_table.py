"""Events as tables on their way between the stages: what their columns are called, and how they lie in files.

A table of one group that lies in a file or in the state has its keys as a dictionary, and no column for a field that
its group groups by: that is said by the key.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.batch.events_by_key import EventsByKey
from buckets.engine.storage.key import decode_key
from buckets.events.arrivals import JUDGED
from buckets.events.conversion import ARROW_TYPES
from buckets.events.schema import EventSchema
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
