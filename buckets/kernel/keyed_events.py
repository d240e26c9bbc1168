"""The events of one group in one micro-batch, key by key."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings


class KeyedEvents(NamedTuple):
    """Events of several keys, key by key, each key's in arrival order.

    Attributes:
        key_start: int64 `(keys + 1,)`, where each key's events begin.
        times_ms: int64 `(events,)`.
        values: int64 `(columns, events)`, scaled measures in the order of the group's layout.
        nulls: bool `(columns, events)`, where an event has no value; `values` means nothing there.
        ids: the events' ids, in UTF-8.
    """

    key_start: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.bool_]
    ids: ByteStrings


def no_events(keys: int, columns: int) -> KeyedEvents:
    """Return no events of so many keys, with so many measures."""
    no_values, no_nulls = np.empty((columns, 0), np.int64), np.empty((columns, 0), np.bool_)
    return KeyedEvents(np.zeros(keys + 1, np.int64), np.empty(0, np.int64), no_values, no_nulls, ByteStrings.of([]))
