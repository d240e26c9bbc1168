"""A timeline as bytes, as it lies in the state store.

Layout of version 1, integers as LEB128 varints, signed ones zigzagged:

    version (1 byte) · columns · clock_ms (signed) · cells
    times:   first (signed), then the gaps between neighbours (never negative, cells are sorted)
    values:  column by column, one signed integer a cell
    ids:     for each cell its length in bytes, then the event id in UTF-8

A cell is one raw event. Close times and common amounts take two to four bytes each; the id is the largest part.
Nothing here depends on which rules are in force: columns are those of the group's layout at the time of writing,
a reader with more columns takes the missing ones as 0, one with fewer passes over the others.

Source: LEB128 and zigzag as in Protocol Buffers' encoding, https://protobuf.dev/programming-guides/encoding/
"""

from typing import Final

import numpy as np

from buckets.compiled import leaf
from buckets.timeline import Timeline, rebuild

CODEC_VERSION: Final = 1
LONGEST_VARINT: Final = 10
"""Bytes of the longest 64-bit varint."""


@leaf
def _write_varint(out, at, number):
    """Write a non-negative number (as uint64); returns the place after it."""
    rest = np.uint64(number)
    while rest >= np.uint64(128):
        out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@leaf
def _read_varint(data, at):
    """Read a varint as uint64; returns it and the place after it."""
    number = np.uint64(0)
    shift = np.uint64(0)
    while data[at] >= 128:
        number |= np.uint64(data[at] & 127) << shift
        shift += np.uint64(7)
        at += 1
    return number | (np.uint64(data[at]) << shift), at + 1


@leaf
def _zigzag(number):
    return np.uint64((number << 1) ^ (number >> 63))


@leaf
def _unzigzag(number):
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))


@leaf
def decode_counts(data, start, end):
    """Read only how many cells an encoded timeline has; -1 where the version is not this one."""
    if end <= start:
        return 0
    if data[start] != CODEC_VERSION:
        return -1
    _, at = _read_varint(data, start + 2)
    count, _ = _read_varint(data, at)
    return np.int64(count)


@leaf
def decode(data, start, end, timeline: Timeline):
    """Read the timeline in `data[start:end]` into `timeline`, ids as places in `data`.

    Args:
        data: uint8 array that holds the encoded timeline.
        start: its first byte.
        end: the place after its last byte; an empty stretch is an empty timeline.
        timeline: taken over whole; must have room for the cells.

    Returns:
        The key's clock in ms; the least int64 where the key is new.
    """
    timeline.size[0] = 0
    if end <= start:
        rebuild(timeline)
        return np.int64(-(2**63))
    columns = np.int64(data[start + 1])
    raw, at = _read_varint(data, start + 2)
    clock_ms = _unzigzag(raw)
    raw, at = _read_varint(data, at)
    cells = np.int64(raw)
    time_ms = np.int64(0)
    for cell in range(cells):
        raw, at = _read_varint(data, at)
        time_ms = _unzigzag(raw) if cell == 0 else time_ms + np.int64(raw)
        timeline.times_ms[cell] = time_ms
    for column in range(columns):
        for cell in range(cells):
            raw, at = _read_varint(data, at)
            if column < timeline.values.shape[0]:
                timeline.values[column, cell] = _unzigzag(raw)
    for column in range(columns, timeline.values.shape[0]):
        timeline.values[column, :cells] = 0
    for cell in range(cells):
        raw, at = _read_varint(data, at)
        timeline.id_start[cell] = at
        timeline.id_length[cell] = np.int64(raw)
        at += np.int64(raw)
    timeline.size[0] = cells
    rebuild(timeline)
    return clock_ms


@leaf
def encoded_bound(timeline: Timeline):
    """Bytes that `encode` needs at the most."""
    cells = timeline.size[0]
    columns = timeline.values.shape[0]
    ids = np.int64(0)
    for cell in range(cells):
        ids += timeline.id_length[cell]
    return 2 + LONGEST_VARINT * (2 + cells * (columns + 2)) + ids


@leaf
def encode(out, at, timeline: Timeline, pool, clock_ms, keep_from_ms):
    """Write a timeline's cells at or after `keep_from_ms`.

    Args:
        out: uint8 array with room for `encoded_bound` bytes from `at`.
        at: where to begin.
        timeline: the cells.
        pool: uint8 array in which the ids lie.
        clock_ms: the key's clock.
        keep_from_ms: older cells are left out.

    Returns:
        The place after the last byte.
    """
    first = np.int64(0)
    cells = timeline.size[0]
    while first < cells and timeline.times_ms[first] < keep_from_ms:
        first += 1
    out[at] = CODEC_VERSION
    out[at + 1] = timeline.values.shape[0]
    at = _write_varint(out, at + 2, _zigzag(np.int64(clock_ms)))
    at = _write_varint(out, at, cells - first)
    for cell in range(first, cells):
        if cell == first:
            at = _write_varint(out, at, _zigzag(timeline.times_ms[cell]))
        else:
            at = _write_varint(out, at, timeline.times_ms[cell] - timeline.times_ms[cell - 1])
    for column in range(timeline.values.shape[0]):
        for cell in range(first, cells):
            at = _write_varint(out, at, _zigzag(timeline.values[column, cell]))
    for cell in range(first, cells):
        length = timeline.id_length[cell]
        at = _write_varint(out, at, length)
        start = timeline.id_start[cell]
        for byte in range(length):
            out[at + byte] = pool[start + byte]
        at += length
    return at
