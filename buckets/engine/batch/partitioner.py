"""Assigns the events of a piece to shards: which keys an event has in each group, and which shard holds each key.

Keys are encoded as in `engine.storage.key`: the grouping fields' values as text, separated by NUL. One call handles all
groups.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Int32s, Int64s
from buckets.byte_strings import ByteStrings, hash_bytes, same_bytes, slots_for
from buckets.compiled import allocating, compiled, copy_bytes, leaf
from buckets.numbers.varint import crc32

_NONE = -1


class Partitioned(NamedTuple):
    """Events by shard, then by group, then by key, each key's events in arrival order."""

    keys: Int64s  # int64 `(shards, groups)`, how many keys each shard gets of each group
    key_events: Int32s  # int32 `(keys,)`, how many events each key has
    key_bytes: Int32s  # int32 `(keys,)`, how many bytes each key has
    key_data: npt.NDArray[np.uint8]  # uint8, the keys one after the other
    rows: Int32s  # int32 `(events of keys,)`, the event of each, as its index among the events of its shard
    # int64, the events of each shard in arrival order; an event appears once for each shard that gets it
    events: Int64s
    key_start: Int64s  # int64 `(shards + 1,)`, where the keys of each shard begin
    data_start: Int64s  # int64 `(shards + 1,)`, where their bytes begin
    row_start: Int64s  # int64 `(shards + 1,)`, where its `rows` begin
    event_start: Int64s  # int64 `(shards + 1,)`, where its `events` begin

    def stretches(self, shard: int) -> tuple[slice, ...]:
        """Return the slices of a shard's keys, of their bytes, of `rows` and of `events`."""
        starts = self.key_start, self.data_start, self.row_start, self.event_start
        return tuple(slice(*start[shard : shard + 2].tolist()) for start in starts)


class _Found(NamedTuple):
    """The keys of all groups in order of first occurrence, and the keys of each event."""

    key_at: Int64s  # int64 `(keys + 1,)`, where the bytes of each begin
    data: npt.NDArray[np.uint8]  # uint8, their bytes
    shard: Int64s  # int64 `(keys,)`
    events: Int32s  # int32 `(keys,)`, how many events each has
    code: Int32s  # int32 `(events of keys,)`, the key of each, group by group
    row: Int32s  # int32 `(events of keys,)`, the event
    key_start: Int64s  # int64 `(groups + 1,)`, where the keys of each group begin
    row_start: Int64s  # int64 `(groups + 1,)`, where its events of keys begin


@compiled
def assign_shards(texts: ByteStrings, fields, field_start, seeds, passed, shards):
    """Assign events to shards.

    Args:
        texts: the values of each field for all events, one field after the other.
        fields: int64, the key fields of the groups as indices, group by group, in key order.
        field_start: int64 `(groups + 1,)`, where the fields of each group begin.
        seeds: int64 `(groups,)`, the CRC-32 of each group's identity.
        passed: bool `(groups, events)`, which events enter each group.
        shards: the number of shards.

    Returns:
        The assignment, as `Partitioned`.
    """
    found = _new_found(texts, fields, field_start, passed)
    table = np.empty(slots_for(passed.shape[1]), np.int32)
    for group in range(passed.shape[0]):
        _find_keys(texts, fields, field_start, group, passed, seeds[group], shards, table, found)
    return _laid_out(found, shards, passed.shape[1])


@allocating
def _new_found(texts: ByteStrings, fields, field_start, passed):
    """Allocate room for the keys of all groups."""
    groups, events, rows = passed.shape[0], passed.shape[1], passed.sum()
    return _Found(
        np.zeros(rows + 1, np.int64),
        np.empty(_room(texts, fields, events), np.uint8),
        np.empty(rows, np.int64),
        np.zeros(rows, np.int32),
        np.empty(rows, np.int32),
        np.empty(rows, np.int32),
        np.zeros(groups + 1, np.int64),
        np.zeros(groups + 1, np.int64),
    )


@leaf
def _room(texts: ByteStrings, fields, events):
    """Return an upper bound on the bytes of all keys of all groups."""
    longest, room = np.int64(1), fields.shape[0] * events
    for at in range(texts.data.shape[0]):
        if texts.data[at] < 2:
            longest = np.int64(2)
    for field in fields:
        room += longest * (texts.start[(field + 1) * events] - texts.start[field * events])
    return room


@leaf
def _find_keys(texts: ByteStrings, fields, field_start, group, passed, seed, shards, table, found: _Found):
    """Number the keys of a group, and note the key of each event."""
    table[:] = _NONE
    mask, events = table.shape[0] - 1, passed.shape[1]
    first, touch = found.key_start[group], found.row_start[group]
    count = first
    for event in range(events):
        if not passed[group, event]:
            continue
        begin = found.key_at[count]
        end = _write_key(texts, fields, field_start[group], field_start[group + 1], event, events, found.data, begin)
        slot = np.int64(hash_bytes(found.data, begin, end - begin) >> np.uint64(32)) & mask
        while table[slot] != _NONE:
            other_at = found.key_at[table[slot]]
            is_as_long = found.key_at[table[slot] + 1] - other_at == end - begin
            if is_as_long and same_bytes(found.data, begin, found.data, other_at, end - begin):
                break
            slot = (slot + 1) & mask
        if table[slot] == _NONE:
            table[slot] = count
            found.shard[count] = np.int64(crc32(found.data, begin, end, seed)) % shards
            found.key_at[count + 1] = end
            count += 1
        found.events[table[slot]] += 1
        found.code[touch] = table[slot]
        found.row[touch] = event
        touch += 1
    found.key_start[group + 1], found.row_start[group + 1] = count, touch


@leaf
def _write_key(texts: ByteStrings, fields, first, end, event, events, data, at):
    """Write the key of an event in a group; returns the position after it."""
    for index in range(first, end):
        if index > first:
            data[at] = 0
            at += 1
        text = fields[index] * events + event
        for place in range(texts.start[text], texts.start[text + 1]):
            byte = texts.data[place]
            if byte < 2:
                data[at] = 1
                data[at + 1] = 2 if byte == 1 else 1
                at += 2
            else:
                data[at] = byte
                at += 1
    return at


@allocating
def _laid_out(found: _Found, shards, events):
    """Arrange keys and events by shard."""
    groups, keys, touches = found.key_start.shape[0] - 1, found.key_start[-1], found.row_start[-1]
    counts, key_start = np.zeros((shards, groups), np.int64), np.zeros(shards + 1, np.int64)
    key_events, key_bytes = np.empty(keys, np.int32), np.empty(keys, np.int32)
    place = np.empty(keys, np.int64)
    _count_keys(found, counts, key_start)
    _place_keys(found, key_start[:-1].copy(), place, key_events, key_bytes)
    row_at, data_at = _starts(key_events), _starts(key_bytes)
    row_start, data_start = row_at[key_start], data_at[key_start]
    key_data, rows = np.empty(data_at[keys], np.uint8), np.empty(touches, np.int32)
    _copy_keys(found, place, data_at, key_data)
    _place_rows(found, place, row_at, rows)
    of_shards, event_start = np.empty(min(touches, shards * events), np.int64), np.zeros(shards + 1, np.int64)
    _number_events(rows, row_start, of_shards, event_start, np.full(events, _NONE, np.int32))
    return Partitioned(
        counts,
        key_events,
        key_bytes,
        key_data,
        rows,
        of_shards[: event_start[shards]],
        key_start,
        data_start,
        row_start,
        event_start,
    )


@allocating
def _starts(lengths):
    """Return the offsets of consecutive stretches of these lengths, and the end of the last one."""
    start = np.zeros(lengths.shape[0] + 1, np.int64)
    for index in range(lengths.shape[0]):
        start[index + 1] = start[index] + lengths[index]
    return start


@leaf
def _count_keys(found: _Found, counts, key_start):
    """Count the keys of each shard and group, and find where each shard's keys begin."""
    shards, groups = counts.shape
    for group in range(groups):
        for key in range(found.key_start[group], found.key_start[group + 1]):
            counts[found.shard[key], group] += 1
    for shard in range(shards):
        key_start[shard + 1] = key_start[shard]
        for group in range(groups):
            key_start[shard + 1] += counts[shard, group]


@leaf
def _place_keys(found: _Found, next_place, place, key_events, key_bytes):
    """Find the place of each key: by shard, then in order of first occurrence."""
    for key in range(place.shape[0]):
        shard = found.shard[key]
        place[key] = next_place[shard]
        next_place[shard] += 1
        key_events[place[key]] = found.events[key]
        key_bytes[place[key]] = found.key_at[key + 1] - found.key_at[key]


@leaf
def _copy_keys(found: _Found, place, data_at, data):
    """Copy the bytes of keys to their places."""
    for key in range(place.shape[0]):
        copy_bytes(data, data_at[place[key]], found.data, found.key_at[key], found.key_at[key + 1] - found.key_at[key])


@leaf
def _place_rows(found: _Found, place, next_row, rows):
    """Write the events of each key in arrival order from `next_row` of the key on, which is advanced."""
    for touch in range(found.row.shape[0]):
        key = place[found.code[touch]]
        rows[next_row[key]] = found.row[touch]
        next_row[key] += 1


@leaf
def _number_events(rows, row_start, of_shards, event_start, local):
    """Number each shard's events in arrival order, and rewrite `rows` with these numbers; `local` starts below 0."""
    at = np.int64(0)
    for shard in range(event_start.shape[0] - 1):
        first = at
        for row in range(row_start[shard], row_start[shard + 1]):
            local[rows[row]] = 0
        for event in range(local.shape[0]):
            if local[event] == 0:
                local[event] = at - first
                of_shards[at] = event
                at += 1
        for row in range(row_start[shard], row_start[shard + 1]):
            rows[row] = local[rows[row]]
        for event in range(first, at):
            local[of_shards[event]] = _NONE
        event_start[shard + 1] = at


@compiled
def sort_by_code(codes, distinct):
    """Sort rows by code: a stable counting sort.

    Args:
        codes: integers `(rows,)` in `[0, distinct)`.
        distinct: the number of codes.

    Returns:
        The rows sorted by code, int64 `(rows,)`, and where each code's rows begin, int64 `(distinct + 1,)`.
    """
    start = np.zeros(distinct + 1, np.int64)
    for row in range(codes.shape[0]):
        start[codes[row] + 1] += 1
    for code in range(distinct):
        start[code + 1] += start[code]
    next_row = start[:-1].copy()
    order = np.empty(codes.shape[0], np.int64)
    for row in range(codes.shape[0]):
        order[next_row[codes[row]]] = row
        next_row[codes[row]] += 1
    return order, start


@compiled
def number_pairs(one, other):
    """Number distinct pairs of integers in order of first occurrence.

    Args:
        one: int64 `(rows,)`, the first of each pair.
        other: int64 `(rows,)`, the second.

    Returns:
        The number of each row's pair, int64 `(rows,)`, and the first row of each number, int64.
    """
    rows = one.shape[0]
    size = slots_for(rows)
    table, numbers, seen = np.full(size, -1, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    count = 0
    for row in range(rows):
        mixed = (np.uint64(other[row]) ^ (np.uint64(one[row]) << np.uint64(40))) * np.uint64(0xD6E8FEB86659FD93)
        slot = np.int64(mixed >> np.uint64(32)) & (size - 1)
        while table[slot] >= 0 and (one[seen[table[slot]]] != one[row] or other[seen[table[slot]]] != other[row]):
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = count
            seen[count] = row
            count += 1
        numbers[row] = table[slot]
    return numbers, seen[:count]
