"""What a timeline keeps of events: a column of integers for each track of their group."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.aggregate import ColumnKind
from buckets.engine.keyed_table import KeyedTable
from buckets.rules.feature import field_kind
from buckets.rules.filter import Filter, filter_fields, matches
from buckets.rules.track import Track

Int64s = npt.NDArray[np.int64]
_NEVER_LEAST, _NEVER_GREATEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_DIGEST_BITS = 63
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def track_values(table: KeyedTable) -> Int64s:
    """The columns of a group's events, int64 `(columns, events)`; of a track that no rule reads any more all 0."""
    events, group = np.arange(len(table.events)), table.group
    values = np.zeros((len(group.measures), len(events)), np.int64)
    counted: dict[Filter, npt.NDArray[np.bool_]] = {}
    for index, name in enumerate(group.measures):
        track = group.derived_tracks.get(name)
        if track is None and name not in table.schema.measures:
            continue
        track = Track("value", name) if track is None else track
        if track.where not in counted:
            counted[track.where] = counts(track.where, table, events)
        values[index] = _column(track, table, events, counted[track.where])
    return values


def counts(where: Filter, table: KeyedTable, events: Int64s) -> npt.NDArray[np.bool_]:
    """Which of some events pass a filter."""
    if not where:
        return np.ones(len(events), np.bool_)
    columns = table.fields(filter_fields(where), events) | {"": pa.array(events)}
    mask = matches(where, columns, table.schema)
    assert mask is not None
    passed: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return passed


def numbers_of(field: str, table: KeyedTable, events: Int64s) -> Int64s:
    """A field of some events as integers: a measure scaled, a boolean as 0 or 1; 0 for a text."""
    if field_kind(field, table.schema) == "string":
        return np.zeros(len(events), np.int64)
    column = table.fields([field], events)[field].cast(pa.int64())
    integers: Int64s = column.fill_null(0).to_numpy()
    return integers


def _column(track: Track, table: KeyedTable, events: Int64s, counted: npt.NDArray[np.bool_]) -> Int64s:
    if track.of is None:
        return counted.astype(np.int64)
    if track.kind in ("digest_high", "digest_low"):
        return np.where(counted, _identity(track.of, table, events)[track.kind == "digest_low"], 0)
    values = numbers_of(track.of, table, events)
    if track.kind in ("least", "greatest"):
        return np.where(counted, values, _NEVER_LEAST if track.kind == "least" else _NEVER_GREATEST)
    return np.where(counted, _SQUARES.get(track.kind, lambda each: each)(values), 0)


def _identity(field: str, table: KeyedTable, events: Int64s) -> tuple[Int64s, Int64s]:
    """What tells values apart: a text's digest in two halves; a number, and 0."""
    if field_kind(field, table.schema) != "string":
        values = numbers_of(field, table, events)
        return values, np.zeros(len(values), np.int64)
    texts = table.fields([field], events)[field].dictionary_encode()
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts.dictionary.to_pylist()]
    codes = texts.indices.to_numpy()
    mask = (1 << _DIGEST_BITS) - 1
    high, low = (
        np.array([int.from_bytes(digest[half : half + 8]) & mask for digest in digests], np.int64)[codes]
        for half in (0, 8)
    )
    return high, low


def _squared(values: Int64s) -> tuple[Any, Any, Any, Any]:
    """Squares as four words of 32 bits, the lowest first: uint64 arrays."""
    size = np.abs(values).astype(np.uint64)  # the least integer has no other sign, and its bits are right as they are
    low, high = size & _LOW, size >> _HALF
    words, product, top = low * low, np.uint64(2) * low * high, high * high
    first = words & _LOW
    second = (words >> _HALF) + (product & _LOW)
    third = (second >> _HALF) + (product >> _HALF) + (top & _LOW)
    return first, second & _LOW, third & _LOW, (third >> _HALF) + (top >> _HALF)


def _word(index: int) -> Callable[[Int64s], Int64s]:
    return lambda values: _squared(values)[index].astype(np.int64)


_SQUARES: dict[ColumnKind, Callable[[Int64s], Int64s]] = {
    "square_0": _word(0),
    "square_1": _word(1),
    "square_2": _word(2),
    "square_3": _word(3),
}
