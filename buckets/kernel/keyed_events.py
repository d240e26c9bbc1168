"""The events of one group in one micro-batch, key by key."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class EventIds(NamedTuple):
    """Event ids one after the other.

    Attributes:
        data: uint8, the ids in UTF-8.
        start: int64 `(events + 1,)`, where each begins in `data`, and where the last one ends.
    """

    data: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[str]) -> "EventIds":
        """Lay out ids given as text."""
        encoded = [text.encode() for text in ids]
        start = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=start[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), start)


class KeyedEvents(NamedTuple):
    """Events of several keys, key by key, each key's in arrival order.

    Attributes:
        key_start: int64 `(keys + 1,)`, where each key's events begin.
        times_ms: int64 `(events,)`.
        values: int64 `(columns, events)`, scaled measures in the order of the group's layout.
        nulls: bool `(columns, events)`, where an event has no value; `values` means nothing there.
        ids: the events' ids.
    """

    key_start: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.bool_]
    ids: EventIds


def no_events(keys: int, columns: int) -> KeyedEvents:
    """Return no events of so many keys, with so many measures."""
    no_values, no_nulls = np.empty((columns, 0), np.int64), np.empty((columns, 0), np.bool_)
    return KeyedEvents(np.zeros(keys + 1, np.int64), np.empty(0, np.int64), no_values, no_nulls, EventIds.of([]))
