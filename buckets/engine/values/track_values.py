"""The values that timelines keep of events, a column of integers for each track; and how duplicates differ."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.aggregates.component import SQUARES, ColumnKind
from buckets.arrays import Flags, Int64s
from buckets.engine.batch.fan_out import EventFields
from buckets.engine.values.group_parts import ScoredGroup, names_told
from buckets.events.schema import EventSchema
from buckets.kernel.result_rows import Rows
from buckets.numbers.fixed_point import INT64_MAX, format_scaled
from buckets.numbers.wide_sum import decimals
from buckets.outputs.output import value_type
from buckets.rules.completeness import as_arrays
from buckets.rules.feature import Track, field_kind, holds_texts
from buckets.rules.filter import Filter, field_of, matches, names_this, needed_fields, with_this
from buckets.timeline.timeline import text_place

_UNCOUNTED: dict[ColumnKind, int] = {"least": np.iinfo(np.int64).max, "greatest": np.iinfo(np.int64).min}
"""What an event that does not count has, where that is not 0: a neutral element for min or max."""
_DIGEST_BITS = 63
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def track_values(
    tracks: Mapping[int, Track], fields: EventFields, size: int, texts_from: int = 0
) -> tuple[Int64s, Flags, bytes]:
    """Compute the values of tracks, numbered below `size`, at events; places of texts begin at `texts_from`.

    Returns:
        The values, int64 `(size, events)`, 0 for none and the place of a text; where an event that counts has no value,
        bool `(size, events)`; and the distinct texts, one after the other.
    """
    texts: dict[str, bytes] = {}  # by field, in one piece
    places: dict[str, Int64s] = {}
    for track in tracks.values():
        if track.of is not None and track.of not in places and holds_texts(track, fields.schema):
            begin = texts_from + sum(map(len, texts.values()))
            texts[track.of], places[track.of] = _places(fields.fields([track.of])[track.of], begin)
    values, nulls = np.zeros((size, len(fields)), np.int64), np.zeros((size, len(fields)), np.bool_)
    counted: dict[Filter, Flags] = {}
    for number, track in tracks.items():
        is_text = track.of is not None and holds_texts(track, fields.schema)
        column = places[str(track.of)] if is_text else _column(track, fields)
        of = None if track.of is None else fields.fields([track.of])[track.of]
        missing = of.is_null().to_numpy(zero_copy_only=False) if of is not None and of.null_count else None
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
    return values, nulls, b"".join(texts.values())


def _places(column: pa.Array, begin: int) -> tuple[bytes, Int64s]:
    """Return the distinct texts of a column, concatenated, and the place of each row's text, counted from `begin`."""
    coded = column.fill_null("").dictionary_encode()
    texts = [text.encode() for text in coded.dictionary.to_pylist()]
    lengths = np.array([len(text) for text in texts], np.int64)
    places = text_place(begin + np.cumsum(lengths) - lengths, lengths)
    places[lengths == 0] = 0
    return b"".join(texts), places[coded.indices.to_numpy()]


def counts(where: Filter, table: EventFields, events: Int64s | None = None) -> Flags:
    """Return which of some events, or of all, pass a filter."""
    size = len(table) if events is None else len(events)
    if not where:
        return np.ones(size, np.bool_)
    names = needed_fields(where, table.schema)
    columns, schema = table.fields(map(field_of, names), events) | {"": pa.nulls(size)}, table.schema
    if names_this(where):  # An event beside itself.
        columns, schema = columns | {name: columns[field_of(name)] for name in names}, with_this(schema)
    mask = matches(where, columns, schema, table.lists)
    assert mask is not None
    passed: Flags = mask.to_numpy(zero_copy_only=False)
    return passed


def values_of(field: str, table: EventFields, events: Int64s) -> npt.NDArray[Any]:
    """Return a field of some events as in features: texts as objects with "" for null, all else as in `numbers_of`."""
    if field_kind(field, table.schema) != "string":
        return numbers_of(field, table, events)
    texts: npt.NDArray[Any] = table.fields([field], events)[field].fill_null("").to_numpy(zero_copy_only=False)
    return texts


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
    if track.of is None:
        return np.ones(len(table), np.int64)
    if track.kind in ("digest_high", "digest_low"):
        return _identity(track.of, table)[track.kind == "digest_low"]
    values = numbers_of(track.of, table)
    if track.kind not in SQUARES:
        return values
    word: Int64s = _squared(values)[SQUARES.index(track.kind)].astype(np.int64)
    return word


def _identity(field: str, table: EventFields) -> tuple[Int64s, Int64s]:
    """Return two integers that identify a value: the halves of a text's digest, or a number and 0."""
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


@dataclass(frozen=True)
class Compared:
    """A comparison of a duplicate with the event that had arrived."""

    fields: list[str]  # those that could be compared
    # the fields that differ, with the values of the event that had arrived, as far as they are known
    other: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)  # the fields that differ, with the duplicate's values


@dataclass(frozen=True)
class _Kept:
    """The columns that a timeline keeps of a field, and whether they hold the values or digests."""

    field: str
    columns: list[int]
    tracks: list[Track]
    is_value: bool


def compare_duplicates(group: ScoredGroup, events: Int64s) -> list[Compared]:
    """Compare duplicates, given as indices of events, with the events that had arrived."""
    schema, other_ms = group.table.schema, group.scored.outcomes.other_ms[events]
    times_ms, time = group.table.times_ms(events), group.table.schema.event_time.field
    found = [
        Compared([time]) if other == own else Compared([time], {time: other}, {time: own})
        for other, own in zip(other_ms.tolist(), times_ms.tolist(), strict=True)
    ]
    for kept in _kept(group):
        other, own = group.scored.outcomes.other_values[events][:, kept.columns], _values(group, kept, events)
        is_known, differs = _complete(group, kept, times_ms) <= other_ms, (other != own).any(axis=(1, 2))
        values = group.table.fields([kept.field], events)[kept.field].to_pylist()
        for row in np.flatnonzero(is_known).tolist():
            found[row].fields.append(kept.field)
            if differs[row]:
                found[row].own[kept.field] = _shown(values[row], kept.field, schema)
                least, greatest = other[row, 0].tolist()
                if kept.is_value or least > greatest:
                    value = None if least > greatest else least
                    found[row].other[kept.field] = _shown(value, kept.field, schema)
    return found


def _kept(group: ScoredGroup) -> Iterator[_Kept]:
    """Yield the fields whose value or digest a timeline keeps for each event, in the order of its columns."""
    schema, measures, tracks = group.table.schema, group.plan.group.measures, group.plan.group.derived_tracks
    plain: dict[str, dict[str, tuple[int, Track]]] = {}
    for column, track_name in enumerate(measures):
        track = tracks.get(track_name)
        if track is not None and track.of is not None and not track.where:
            plain.setdefault(track.of, {})[track.kind] = column, track
    for name, kinds in plain.items():
        is_text = field_kind(name, schema) == "string"
        if "value" in kinds and not is_text:
            column, track = kinds["value"]
            yield _Kept(name, [column], [track], True)
        elif {"digest_high", "digest_low"} <= kinds.keys():
            halves = [kinds["digest_high"], kinds["digest_low"]]
            yield _Kept(name, [column for column, _ in halves], [track for _, track in halves], not is_text)


def _values(group: ScoredGroup, kept: _Kept, events: Int64s) -> Int64s:
    """Return least and greatest value that a timeline would keep of events, int64 `(events, columns, 2)`."""
    table = group.table
    chosen = EventFields(table.schema, table.events, table.lists, table.rows_of(events))
    values, nulls, _ = track_values(dict(enumerate(kept.tracks)), chosen, len(kept.tracks))
    both = np.stack([values, values], axis=-1)
    both[nulls] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    return np.swapaxes(both, 0, 1)


def _complete(group: ScoredGroup, kept: _Kept, times_ms: Int64s) -> Int64s:
    """Return since when the columns of a field are complete for events at these times, in ms."""
    known = group.plan.group.completeness(*(track.name for track in kept.tracks))
    from_ms, since_ms = as_arrays([known])
    complete_ms: Int64s = since_ms[0][np.searchsorted(from_ms, times_ms, side="right") - 1]
    return complete_ms


def _shown(value: Any, name: str, schema: EventSchema) -> Any:
    """Return a value in the form of event JSON; a boolean may be given as the number that a timeline keeps."""
    if value is None or name not in schema.measures:
        return bool(value) if value is not None and schema.attributes[name] == "boolean" else value
    return format_scaled(value, schema.measures[name].scale)


_MOST_OF_FACTOR = 18
RowColumns = Mapping[str, npt.NDArray[Any]]
"""The columns of rows that describe values, with bounds only if some window is uncertain: see `names_told`."""


def row_columns(rows: Rows) -> RowColumns:
    """Return the columns of rows that describe values."""
    return {name: getattr(rows, name) for name in names_told(rows)}


def number_columns(scales: Int64s, are_counts: Flags, schema: EventSchema, rows: RowColumns) -> dict[str, pa.Array]:
    """Return value, bounds and counts in the form of outputs; a value over no events is NULL, except a count.

    `scales` are the digits after the point of each row's value.
    """
    kind = value_type(schema.largest_scale)
    # How many of the last digits of a decimal make one unit of a rule's values: of small ones more than 64 bits say.
    digits = kind.scale - scales
    beyond, factors = _powers(digits - _MOST_OF_FACTOR), _powers(np.minimum(digits, _MOST_OF_FACTOR))
    count = count_lower = count_upper = rows["event_count"]
    value = lower = upper = decimals(_times(rows["whole"], beyond), rows["micro"], factors, kind)
    exact = np.ones(len(count), np.bool_)
    if "exact" in rows:
        count_lower, count_upper, exact = rows["count_lower"], rows["count_upper"], rows["exact"]
        lower = decimals(_times(rows["lower_whole"], beyond), rows["lower_micro"], factors, kind)
        upper = decimals(_times(rows["upper_whole"], beyond), rows["upper_micro"], factors, kind)
    return {
        "value": _null_without_events(value, count + are_counts),
        "lower": _null_without_events(lower, count_upper + are_counts),
        "upper": _null_without_events(upper, count_upper + are_counts),
        "exact": pa.array(exact),
        "count": pa.array(count),
        "count_lower": pa.array(count_lower),
        "count_upper": pa.array(count_upper),
    }


def _powers(digits: Int64s) -> Int64s:
    return np.power(np.int64(10), np.maximum(digits, 0))


def _times(whole: Int64s, factors: Int64s) -> Int64s:
    """Multiply counts and scores by the rest of their factors; no measure has a scale so small."""
    if not len(factors) or factors.max() == 1:
        return whole
    if (np.abs(whole) > INT64_MAX // factors).any():
        message = "a count or a score has more digits than a column of values has room for"
        raise OverflowError(message)
    return whole * factors


def _null_without_events(values: pa.Array, events: Int64s) -> pa.Array:
    is_null = events == 0
    return pc.if_else(pa.array(is_null), pa.scalar(None, values.type), values) if is_null.any() else values
