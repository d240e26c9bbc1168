"""The ids of one key's single events: a hash table, where an event of the same id at another time may be a duplicate.

It is filled when the key's timeline is loaded, and learns the id of each event that goes in, so looking one up costs
the same however many events there are. What it says is looked up in the timeline, so that an event that was taken out
again, or replaced, needs not be forgotten. Linear probing; half of the slots are free, at least.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.compiled import allocating, inlined, leaf, read_word
from buckets.timeline.timeline import Timeline, find_id, first_ending_at_or_after, is_raw

_FREE: Final = 0
_FEWEST_SLOTS: Final = 16
_FACTOR: Final = 0x9E3779B97F4A7C15


class KnownIds(NamedTuple):
    """The table of the key at hand.

    Attributes:
        slots: int64 `(1,)`, how many slots are in use, a power of two.
        hash: uint64 `(capacity,)`, that of an id; 0 in a free slot.
        time_ms: int64 `(capacity,)`, when its event happened.
    """

    slots: npt.NDArray[np.int64]
    hash: npt.NDArray[np.uint64]
    time_ms: npt.NDArray[np.int64]


@leaf
def _slots_for(ids):
    """Return the slots of a table of so many ids: at least twice as many, and a power of two."""
    slots = np.int64(_FEWEST_SLOTS)
    while slots < 2 * ids:
        slots *= 2
    return slots


@allocating
def new_known_ids(ids):
    """Make a table with room for so many ids."""
    capacity = _slots_for(ids)
    return KnownIds(np.zeros(1, np.int64), np.zeros(capacity, np.uint64), np.empty(capacity, np.int64))


@inlined
def _hash(pool, start, length):
    """Return a hash of some bytes, never 0."""
    mixed, factor = np.uint64(length), np.uint64(_FACTOR)
    byte = 0
    while byte + 8 <= length:
        mixed = (mixed ^ read_word(pool, start + byte)) * factor
        mixed ^= mixed >> np.uint64(29)
        byte += 8
    while byte < length:
        mixed = (mixed ^ np.uint64(pool[start + byte])) * factor
        mixed ^= mixed >> np.uint64(29)
        byte += 1
    return mixed | np.uint64(1)


@leaf
def learn_id(ids: KnownIds, pool, start, length, time_ms):
    """Take an id in."""
    mixed, mask = _hash(pool, start, length), ids.slots[0] - 1
    slot = np.int64(mixed >> np.uint64(32)) & mask
    while ids.hash[slot] != _FREE:
        slot = (slot + 1) & mask
    ids.hash[slot] = mixed
    ids.time_ms[slot] = time_ms


@leaf
def learn_ids(ids: KnownIds, timeline: Timeline, pool, more):
    """Forget all ids, take in those of a timeline, and have room for more."""
    ids.slots[0] = _slots_for(timeline.size[0] + more)
    ids.hash[: ids.slots[0]] = _FREE
    for cell in range(timeline.size[0]):
        if is_raw(timeline, cell):
            learn_id(ids, pool, timeline.id_start[cell], timeline.id_length[cell], timeline.first_ms[cell])


@leaf
def find_repeat(ids: KnownIds, timeline: Timeline, pool, start, length, time_ms, low_ms, high_ms):
    """Return the cell of an event that has an id and lies in `[low_ms, high_ms]`; -1 where none does.

    Of several the one that is nearest to a time, and of two that are as near the earlier one.
    """
    mixed, mask = _hash(pool, start, length), ids.slots[0] - 1
    slot, found = np.int64(mixed >> np.uint64(32)) & mask, np.int64(-1)
    while ids.hash[slot] != _FREE:
        other_ms = ids.time_ms[slot]
        if ids.hash[slot] == mixed and low_ms <= other_ms <= high_ms:
            cell = find_id(timeline, first_ending_at_or_after(timeline, other_ms), other_ms, pool, start, length)
            if cell >= 0:
                distance_ms = abs(other_ms - time_ms)
                best_ms = abs(timeline.first_ms[found] - time_ms) if found >= 0 else distance_ms + 1
                if distance_ms < best_ms or (distance_ms == best_ms and other_ms < time_ms):
                    found = np.int64(cell)
        slot = (slot + 1) & mask
    return found
