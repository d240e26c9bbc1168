"""Fields of a message outside its value: in its key or headers, or its timestamp; and generated ids.

Headers, and keys without a declared format (`envelope`), are text in UTF-8. A missing header is null; if one is
repeated, the last counts, as in Kafka's own clients.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.arrivals import BROKEN, INGESTED, POSITION, SOURCE, declared_fields, field_column, with_declared
from buckets.events.clock_times import Faults, unit_fault
from buckets.events.conversion import COUNTED, MISFITS, SKIPPED, TIMES, TWICE, WITHOUT_ZONE, event_times
from buckets.events.schema import KEY, OF_ENVELOPE, OF_HEADERS, OF_KEY, EventId, EventSchema, EventTime
from buckets.numbers.fixed_point import format_scaled
from buckets.stores.store_path import StorePath

HEADERS, STAMPED = "headers", "stamped"
"""Columns of rows beside `key`: headers as a list of key and value, and what the timestamp is, as Kafka numbers it."""
_STAMPS = {"create_time": 0, "log_append_time": 1}
_STAMPED_BY = {0: "was stamped when it was made, as create_time", 1: "was stamped by the broker, as log_append_time"}

_NO_ID = EventId.model_construct(field="")


class _PartOfSchema(EventSchema):
    """A part of an event schema; its id and time have empty names if they are not in the part."""

    @property
    def field_names(self) -> list[str]:
        return [name for name in dict.fromkeys(super().field_names) if name]


def columns_beside_value(schema: EventSchema) -> list[str]:
    """Return the columns that rows need besides the value, out of `key`, `headers` and `stamped`."""
    origins = schema.origins.values()
    wanted = {
        KEY: any(is_of_key(origin) for origin in origins),
        HEADERS: any(origin.startswith(OF_HEADERS) for origin in origins),
        STAMPED: schema.event_time.broker is not None,
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def is_of_key(origin: str) -> bool:
    """Return whether an origin is the key of a message, or inside it."""
    return origin == KEY or origin.startswith(OF_KEY)


def value_schema(schema: EventSchema) -> EventSchema:
    """Return the event schema by which values are read: the fields that lie in them."""
    schema = schema_to_read(schema)
    beside = schema.beside_value
    names = {name: name for name in schema.field_names if name not in beside}
    return part_of_schema(schema, names) if beside else schema


def schema_to_read(schema: EventSchema) -> EventSchema:
    """Return the event schema for reading events, before `as_declared` makes ids and joins renamed fields.

    It has no generated id, and each old name of a field is a separate field.
    """
    if not schema.identity.is_made and not schema.aliases:
        return schema
    read = dict(schema) | ({"identity": _NO_ID} if schema.identity.is_made else {})
    for alias, name in schema.new_names.items():
        role = next((role for role in ("measures", "arrays") if name in getattr(schema, role)), "attributes")
        read[role] = read[role] | {alias: getattr(schema, role).get(name, "string")}
    return _PartOfSchema.model_construct(**read)


def part_of_schema(schema: EventSchema, names: Mapping[str, str], texts: Collection[str] = ()) -> EventSchema:
    """Return an event schema of the fields `names`, each under its new name, and of further text fields."""
    time = schema.event_time
    attributes = {names[name]: kind for name, kind in schema.attributes.items() if name in names}
    return _PartOfSchema.model_construct(
        name=schema.name,
        identity=EventId.model_construct(field=names.get(schema.event_id, "")),
        event_time=time.model_copy(update={"field": names.get(time.field, "")}),
        attributes=dict.fromkeys(texts, "string") | attributes,
        measures={names[name]: measure for name, measure in schema.measures.items() if name in names},
        arrays={names[name]: kind for name, kind in schema.arrays.items() if name in names},
        aliases={
            names[name]: tuple(names[alias] for alias in aliases if alias in names)
            for name, aliases in schema.aliases.items()
            if name in names
        },
        csv=schema.csv,
    )


def with_message_fields(rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
    """Add the fields from outside the value, and drop the columns that they come from.

    These are the columns of `columns_beside_value`; for envelopes and formatted keys, columns named like the origins.
    """
    beside = schema.beside_value
    if not beside:
        return rows
    fields = declared_fields(rows, value_schema(schema))
    faults: Faults = {}
    for name, origin in beside.items():
        fields[name], faulty = _field(rows, origin)
        for row, reason in faulty.items():
            faults.setdefault(row, f"{name}: {reason}")
    broken = enumerate(rows.column(BROKEN).to_pylist())
    reasons = [reason or faults.get(row) for row, reason in broken] if faults else None
    unwanted = {KEY, HEADERS, STAMPED, *beside.values()}.intersection(rows.schema.names)
    return with_declared(rows.drop_columns(list(unwanted)), fields, schema, reasons)


def _field(rows: pa.RecordBatch, origin: str) -> tuple[pa.Array, Faults]:
    if origin.startswith(OF_HEADERS):
        return header_text(rows, origin.removeprefix(OF_HEADERS))
    if is_of_key(origin) or origin.startswith(OF_ENVELOPE):
        column = rows.column(origin)
        return _as_text(column) if pa.types.is_binary(column.type) else (column, {})
    return _times_ms(rows.column(INGESTED), rows.column(STAMPED), _STAMPS[origin])


def header_text(rows: pa.RecordBatch, name: str) -> tuple[pa.StringArray, Faults]:
    """Return the text of the last header of this name in each message, null if it is missing or not text."""
    headers = rows.column(HEADERS)
    flat, messages = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    named = np.flatnonzero(pc.equal(pc.struct_field(flat, "key"), name).to_numpy(zero_copy_only=False))
    at = np.full(len(headers), -1, np.int64)
    at[messages[named]] = named
    return _as_text(pc.struct_field(flat, "value").take(pa.array(at, mask=at < 0)))


def _as_text(values: pa.BinaryArray) -> tuple[pa.StringArray, Faults]:
    try:
        return pc.cast(values, pa.string()), {}
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    faults: Faults = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            faults[row] = "is not valid UTF-8"
    return pa.array(texts, pa.string()), faults


def _times_ms(times_ms: pa.Array, stamped: pa.Array, wanted: int) -> tuple[pa.Array, Faults]:
    """Return the timestamps of the wanted kind, null for others; an unknown kind counts as the wanted one."""
    kinds = stamped.fill_null(wanted).to_numpy(zero_copy_only=False)
    others = np.flatnonzero(kinds != wanted)
    if not len(others):
        return times_ms, {}
    faults = {int(row): _STAMPED_BY.get(int(kinds[row]), "has no timestamp") for row in others}
    return pc.if_else(pa.array(kinds == wanted), times_ms, None), faults


_ID_BYTES = 16


def as_declared(
    batches: Iterable[pa.RecordBatch], schema: EventSchema, folder: Path | None = None
) -> Iterator[pa.RecordBatch]:
    """Give events, read by `schema_to_read`, the fields of their schema: generated ids, and renamed fields joined.

    `folder` is the source's folder, or its one file; None if `source` already names rows.
    """
    is_read_so = not schema.identity.is_made and not schema.aliases
    return iter(batches) if is_read_so else (_as_declared(rows, schema, folder) for rows in batches)


def _as_declared(rows: pa.RecordBatch, schema: EventSchema, folder: Path | None) -> pa.RecordBatch:
    read = declared_fields(rows, schema_to_read(schema))
    fields = {
        name: _first_known([read[spelling] for spelling in schema.spellings(name)])
        for name in schema.field_names
        if name in read
    }
    if not schema.identity.is_made:
        return with_declared(rows, fields, schema)
    if schema.identity.row:
        ids = _row_ids(rows, folder)
    else:
        parts = [_with_lengths(_text(fields[name], name, schema)) for name in schema.identity.hash]
        texts = pc.binary_join_element_wise(*parts, "").to_pylist()
        ids = pa.array([blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest() for text in texts])
    return with_declared(rows, fields | {schema.event_id: ids}, schema)


def _first_known(columns: list[pa.Array]) -> pa.Array:
    """Return the first value in each row that is not null, as text if the types differ."""
    there = [column for column in columns if column.null_count < len(column)] or columns[:1]
    if len({column.type for column in there}) > 1:
        there = [conversion.attributes(column, "string")[0] for column in there]
    return pc.coalesce(*there)


def _row_ids(rows: pa.RecordBatch, folder: Path | None) -> pa.StringArray:
    source = rows.column(SOURCE).dictionary_encode()
    begin = os.path.normpath(folder) if folder and not isinstance(folder, StorePath) else str(folder or "")
    names = pa.array([_below(path, begin) for path in source.dictionary.to_pylist()], pa.string())
    return pc.binary_join_element_wise(names.take(source.indices), rows.column(POSITION).cast(pa.string()), ":")


def _below(path: str, folder: str) -> str:
    """Return the path of a file below a folder; its name if the file is the whole source."""
    return path.rpartition("/")[2] if path == folder else path.removeprefix(f"{folder}/")


def _with_lengths(texts: pa.Array) -> pa.Array:
    """Prefix texts with their lengths, so that no two sequences of texts look alike."""
    lengths = pc.binary_length(texts).cast(pa.string())
    return pc.binary_join_element_wise(lengths, texts, ":").fill_null("-")


def _text(column: pa.Array, name: str, schema: EventSchema) -> pa.Array:
    """Return the values of a field as texts that do not depend on the format of the source."""
    if name == schema.event_time.field:
        times_ms, _ = conversion.times_ms(column, schema.event_time)
        return pa.array(times_ms, mask=column.is_null().to_numpy(zero_copy_only=False)).cast(pa.string())
    if name in schema.measures:
        scale = schema.measures[name].scale
        scaled, *_ = conversion.measures(column, schema.measures[name])
        texts = [format_scaled(value, scale) for value in scaled.tolist()]
        shortest = [text.rstrip("0").rstrip(".") if scale else text for text in texts]
        return pa.array(shortest, pa.string(), mask=column.is_null().to_numpy(zero_copy_only=False))
    if name in schema.arrays:
        lists, _ = conversion.arrays(column, schema.arrays[name])
        written = _with_lengths(lists.flatten().cast(pa.string())).to_pylist()
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
        starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        joined = ["".join(written[start:end]) for start, end in pairwise(starts)]
        return pc.if_else(lists.is_valid(), pa.array(joined, pa.string()), None)
    values, _ = conversion.attributes(column, schema.attributes[name])
    return values.cast(pa.string())


UNCLEAR: Final = (WITHOUT_ZONE, TWICE, SKIPPED)  # Kinds of times that a clock alone does not make clear
_OF_ZONE: Final[dict[str, str]] = {
    TWICE: "lie in an hour that clocks of {zone} show twice, and are taken for the first",
    SKIPPED: "lie in an hour that clocks of {zone} skip, and are read as if these had not been put forward",
}


def clock_lines(counts: Mapping[str, int], declared: EventTime) -> Iterator[tuple[str, str]]:
    """Yield the kinds of ambiguous times, each with a line of text about it, from `EventTimes.counts`."""
    for kind in UNCLEAR:
        if not counts.get(kind):
            continue
        many = f"{counts[kind]:,} of {counts[TIMES]:,} times"
        if kind in _OF_ZONE:
            yield kind, f"{many} {_OF_ZONE[kind].format(zone=declared.zone)}"
        elif declared.zone is None:
            remedy = "write `zone: Europe/Berlin` or another in event_time, or `zone: UTC`"
            yield kind, f"{many} have no time zone and are read as UTC; {remedy}"


def wrong_unit(counts: Mapping[str, int], low_ms: int, high_ms: int, declared: EventTime) -> str | None:
    """Report that times are in another unit than the declared one; None if not, or if `earliest` vouches for them.

    `low_ms` and `high_ms` are the least and the greatest of the times in `EventTimes.counts`.
    """
    if "earliest" in declared.model_fields_set or not counts.get(COUNTED):
        return None
    return unit_fault(low_ms, high_ms, counts[COUNTED], declared.unit)


def misfit(counts: Mapping[str, int], declared: EventTime) -> str | None:
    """Report that at least half of the times are absurd but plausible in another unit; None if not."""
    for unit, name in MISFITS.items():
        times = counts.get(name, 0)
        if times and times >= counts[TIMES]:
            return (
                f"{times:,} of {counts[TIMES] + times:,} times are outside {declared.limits} with `unit: "
                f"{declared.unit}`, and would not be with `unit: {unit}`; write `unit: {unit}` in event_time"
            )
    return None


class TimesSeen:
    """The times of arrivals of one origin."""

    def __init__(self, schema: EventSchema, origin: str) -> None:
        self._declared, self._origin = schema.event_time, origin
        self._column = field_column(schema.field_names.index(schema.event_time.field))
        self._counts, self._is_checked = Counter[str](), False

    def take(self, rows: pa.RecordBatch) -> None:
        """Examine the times of arrivals; for numbers only the first rows, since a file has one unit."""
        written = rows.column(self._column)
        is_number = self._declared.unit != "iso8601" and not pa.types.is_temporal(written.type)
        if is_number and self._is_checked:
            return
        times = event_times(written, self._declared)
        good = written.is_valid().to_numpy(zero_copy_only=False)
        good[list(times.faults)] = False
        counts = times.counts(good)
        self._counts += counts
        if counts[COUNTED]:
            self._is_checked, seen_ms = True, times.ms[good]
            fault = wrong_unit(counts, int(seen_ms.min()), int(seen_ms.max()), self._declared)
            if fault is not None:
                message = f"{self._origin}: {fault}"
                raise BucketsError(message)

    @property
    def lines(self) -> list[str]:
        """The remarks about them, as lines of text."""
        return [line for _, line in clock_lines(self._counts, self._declared)]


def told(
    arrivals: Iterable[pa.RecordBatch], schema: EventSchema, origin: str, say: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Pass arrivals of an origin through, and at their end report each kind of times without a zone to `say`."""
    seen = TimesSeen(schema, origin)
    for rows in arrivals:
        seen.take(rows)
        yield rows
    for line in seen.lines:
        say(f"{origin}: {line}")
