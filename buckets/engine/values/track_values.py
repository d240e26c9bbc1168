"""What a timeline keeps of events: a column of integers for each track of their group."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.component import ColumnKind
from buckets.engine.batch.keyed_table import EventFields
from buckets.rules.feature import field_kind
from buckets.rules.filter import Filter, matches, needed_fields
from buckets.rules.track import Track

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_UNCOUNTED: dict[ColumnKind, int] = {"least": np.iinfo(np.int64).max, "greatest": np.iinfo(np.int64).min}
"""What an event that does not count has, where that is not 0: a neutral element for min or max."""
_DIGEST_BITS = 63
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def track_values(tracks: Mapping[int, Track], fields: EventFields, size: int) -> tuple[Int64s, Flags]:
    """Return what tracks keep of events.

    Args:
        tracks: the tracks that are wanted, by their number.
        fields: the fields of the events.
        size: how many numbers there are; of those without a track nothing is kept.

    Returns:
        The values, int64 `(size, events)`, 0 where there is none; and where an event that counts has none, bool.
    """
    values, nulls = np.zeros((size, len(fields)), np.int64), np.zeros((size, len(fields)), np.bool_)
    counted: dict[Filter, npt.NDArray[np.bool_]] = {}
    for number, track in tracks.items():
        column = _column(track, fields)
        missing = None if track.of is None else _missing(track.of, fields)
        if not track.where:
            values[number] = column
            if missing is not None:
                nulls[number] = missing
            continue
        if track.where not in counted:
            counted[track.where] = counts(track.where, fields)
        values[number] = np.where(counted[track.where], column, _UNCOUNTED.get(track.kind, 0))
        if missing is not None:
            nulls[number] = missing & counted[track.where]
    return values, nulls


def _missing(field: str, table: EventFields) -> Flags | None:
    """Return which events have no value in a field; None where all have."""
    column = table.fields([field])[field]
    return None if not column.null_count else column.is_null().to_numpy(zero_copy_only=False)


def counts(where: Filter, table: EventFields, events: Int64s | None = None) -> npt.NDArray[np.bool_]:
    """Return which events pass a filter, of some of them or of all."""
    size = len(table) if events is None else len(events)
    if not where:
        return np.ones(size, np.bool_)
    columns = table.fields(needed_fields(where, table.schema), events) | {"": pa.nulls(size)}
    mask = matches(where, columns, table.schema, table.lists)
    assert mask is not None
    passed: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return passed


def numbers_of(field: str, table: EventFields, events: Int64s | None = None) -> Int64s:
    """Return a field of events as integers: a measure scaled, a boolean as 0 or 1; 0 for a text, and for null."""
    column = table.fields([field], events)[field]
    if field_kind(field, table.schema) == "string":
        return np.zeros(len(column), np.int64)
    column = column.cast(pa.int64())
    integers: Int64s = (column.fill_null(0) if column.null_count else column).to_numpy()
    return integers


def has_value(field: str, table: EventFields, events: Int64s) -> Flags:
    """Return which of some events have a value in a field."""
    found: Flags = table.fields([field], events)[field].is_valid().to_numpy(zero_copy_only=False)
    return found


def _column(track: Track, table: EventFields) -> Int64s:
    """Return what a track keeps of events that count."""
    if track.of is None:
        return np.ones(len(table), np.int64)
    if track.kind in ("digest_high", "digest_low"):
        return _identity(track.of, table)[track.kind == "digest_low"]
    values = numbers_of(track.of, table)
    return _SQUARES[track.kind](values) if track.kind in _SQUARES else values


def _identity(field: str, table: EventFields) -> tuple[Int64s, Int64s]:
    """Return what tells values apart: a text's digest in two halves; a number, and 0."""
    if field_kind(field, table.schema) != "string":
        values = numbers_of(field, table)
        return values, np.zeros(len(values), np.int64)
    texts = table.fields([field])[field].fill_null("").dictionary_encode()
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts.dictionary.to_pylist()]
    codes = texts.indices.to_numpy()
    mask = (1 << _DIGEST_BITS) - 1
    high, low = (
        np.array([int.from_bytes(digest[half : half + 8]) & mask for digest in digests], np.int64)[codes]
        for half in (0, 8)
    )
    return high, low


def _squared(values: Int64s) -> tuple[Any, Any, Any, Any]:
    """Return squares as four words of 32 bits, the lowest first: uint64 arrays."""
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
