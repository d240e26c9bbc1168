"""Turns arriving rows into events: typed columns for the good ones, a dead letter for each of the others.

Every source delivers rows of one form. `source` and `position` say where a row comes from (file and line, or topic
partition and offset), `source_order` and `position` order the arrivals, `ingested_ms` and `raw` are optional, and the
declared fields follow as `field_0`, `field_1`, … Where `judged` is false, an event only fills timelines.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.clock_times import Faults
from buckets.events.derived_fields import derive, readable
from buckets.events.schema import EventSchema
from buckets.json_text import write_json
from buckets.numbers.fixed_point import format_scaled
from buckets.printable import short_line

SOURCE, SOURCE_ORDER, POSITION, RAW, BROKEN = "source", "source_order", "position", "raw", "broken"
INGESTED = "ingested_ms"
JUDGED = "judged"  # An optional column: without it, or where it is null, rules are evaluated at the event
DELETED, TOMBSTONE = "skipped: the row was deleted", "skipped: a tombstone"
TRUNCATED, LOGGED = "skipped: the table was emptied", "skipped: a message in the log of the database"
SKIPPED = {DELETED: "deleted", TOMBSTONE: "tombstone", TRUNCATED: "truncated", LOGGED: "logged"}
"""Reasons for rows that are neither events nor faulty, with a word for each; no field makes such a reason."""
_FIELD_COLUMN = re.compile(r"field_\d+")
_WRITERS: Mapping[type, Callable[[Any], str]] = {str: encode_basestring, int: str}  # As it does, without its start
LONGEST_RAW = 100_000  # The most characters of a row that a dead letter keeps


def shortened(text: str, size: str = "") -> str:
    """Cut a text to the length that a dead letter may hold, and append the full length of one that was cut.

    `size` is the length of the whole text, if `text` is only a part.
    """
    if len(text) <= LONGEST_RAW and not size:
        return text
    end = f"… ({size or f'{len(text):,} characters'} in all)"
    return text[: LONGEST_RAW - len(end)] + end


def field_column(index: int) -> str:
    """Return the name of the column that holds the declared field `index`."""
    return f"field_{index}"


def derived_column(index: int) -> str:
    """Return the name of the column that holds the derived field `index`; rows lack it until it is computed."""
    return f"derived_{index}"


def replaced(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Return rows with one of their columns replaced."""
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def declared_fields(rows: pa.RecordBatch, schema: EventSchema) -> dict[str, pa.Array]:
    """Return the columns of the declared fields by field, and of those derived fields that the rows already have."""
    fields = {name: rows.column(field_column(index)) for index, name in enumerate(schema.field_names)}
    derived = {name: derived_column(index) for index, name in enumerate(schema.derive)}
    return fields | {name: rows.column(column) for name, column in derived.items() if column in rows.schema.names}


def with_declared(
    rows: pa.RecordBatch, fields: Mapping[str, pa.Array], schema: EventSchema, reasons: list[str | None] | None = None
) -> pa.RecordBatch:
    """Return rows with their declared fields replaced by `fields`, and with `reasons`, if given, as `broken`."""
    others = {name: rows.column(name) for name in rows.schema.names if not _FIELD_COLUMN.fullmatch(name)}
    others |= {} if reasons is None else {BROKEN: pa.array(reasons, pa.string())}
    return pa.record_batch(others | {field_column(at): fields[name] for at, name in enumerate(schema.field_names)})


class MissingColumn(BucketsError):
    """Events have no id, no time, or no column that orders them."""


def check_columns(there: Iterable[str], schema: EventSchema, path: str, arrival: str | None = None) -> None:
    """Check that a source has the columns of the id, the time, and the arrival order if set; raises `MissingColumn`.

    Other fields may be missing, as in a JSON object; `without_column` names them.
    """
    names = list(there)
    known = {*names, *schema.declared(names)} | ({schema.event_id} if schema.identity.is_made else set())
    for name in filter(None, (schema.event_id, schema.event_time.field, arrival)):
        if name not in known:
            message = (
                f"events {path}: no column {name!r}, which event schema {schema.name!r} needs; "
                f"columns there: {', '.join(map(short_line, names))}"
            )
            raise MissingColumn(message)


def without_column(there: Iterable[str], schema: EventSchema, needed: Iterable[str]) -> str:
    """Name the fields that rules need, directly or for derived fields, and that have no column; empty if none."""
    gone = sorted(schema.read_for(needed).intersection(schema.field_names) - schema.declared(there))
    return f"no column {', '.join(map(repr, gone))}, which rules need: taken as missing" if gone else ""


@dataclass(frozen=True)
class EventColumns:
    """Well-formed events, in arrival order."""

    source: pa.Array  # Arrow string, the file or topic partition of each
    source_order: npt.NDArray[np.int64]  # int64 `(events,)`
    position: npt.NDArray[np.int64]  # int64 `(events,)`
    event_id: pa.Array  # Arrow string
    times_ms: npt.NDArray[np.int64]  # int64 `(events,)`
    # by name, Arrow arrays in their declared type; arrays of the schema as lists of it
    attributes: dict[str, pa.Array]
    measures: dict[str, pa.Array]  # by name, Arrow int64, scaled
    ingested_ms: pa.Array | None = None  # Arrow int64, when the source took in each event; None if unknown
    judged: pa.Array | None = None  # Arrow bool, whether rules are evaluated at each; None means at all of them
    # how many times are of which kind, as `conversion.EventTimes` counts them
    times: Counter[str] = field(default_factory=Counter)
    # by measure, bool `(events,)`, whose values were rounded; only measures with rounded values
    rounded: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def rounded_values(self) -> dict[str, int]:
        """How many values were rounded, by measure."""
        counts = {name: int(np.count_nonzero(rounded)) for name, rounded in self.rounded.items()}
        return {name: count for name, count in counts.items() if count}

    def __len__(self) -> int:
        return len(self.times_ms)

    def without(self, faults: Faults) -> "EventColumns":
        """Return the events of the rows that have no fault."""
        if not faults:
            return self
        good = good_rows(len(self), faults)
        mask = pa.array(good)
        return replace(
            self,
            source=self.source.filter(mask),
            source_order=self.source_order[good],
            position=self.position[good],
            event_id=self.event_id.filter(mask),
            times_ms=self.times_ms[good],
            attributes={name: values.filter(mask) for name, values in self.attributes.items()},
            measures={name: values.filter(mask) for name, values in self.measures.items()},
            ingested_ms=None if self.ingested_ms is None else self.ingested_ms.filter(mask),
            judged=None if self.judged is None else self.judged.filter(mask),
            rounded={name: rounded[good] for name, rounded in self.rounded.items()},
        )


@dataclass(frozen=True)
class DeadLetter:
    """A row that is not an event: its place, the reason, and its text as cut by `shortened`."""

    source: str
    source_order: int
    position: int
    reason: str
    raw: str


@dataclass(frozen=True)
class ParsedRows:
    """Rows as events, and by index the reason why a row is not an event."""

    every: EventColumns  # all rows; the values of a row that is not an event are undefined
    faults: Faults  # why rows are no events, or are skipped
    own_faults: Faults  # the same, without nulls in fields that only rules need

    @property
    def events(self) -> EventColumns:
        """The rows that are events."""
        return self.every.without(self.faults)


def parse(rows: pa.RecordBatch, schema: EventSchema, needed: frozenset[str]) -> tuple[EventColumns, list[DeadLetter]]:
    """Turn rows into events and dead letters, dropping skipped rows; the fields in `needed` may not be null."""
    parsed = convert(rows, schema, needed)
    return parsed.events, dead_letters(rows, parsed, schema)


def skipped_rows(rows: pa.RecordBatch) -> Counter[str]:
    """Count the skipped rows by the word for the reason."""
    if BROKEN not in rows.schema.names or rows.column(BROKEN).null_count == rows.num_rows:
        return Counter()
    counts = {pair["values"]: pair["counts"] for pair in rows.column(BROKEN).value_counts().to_pylist()}
    return Counter({word: counts[reason] for reason, word in SKIPPED.items() if reason in counts})


def convert(rows: pa.RecordBatch, schema: EventSchema, needed: frozenset[str], counts: bool = True) -> ParsedRows:
    """Convert rows to events, with a fault for each bad row; `needed` may not be null; `counts` asks to count times."""
    faults: Faults = {}
    if BROKEN in rows.schema.names and rows.column(BROKEN).null_count < rows.num_rows:
        faults = {row: reason for row, reason in enumerate(rows.column(BROKEN).to_pylist()) if reason is not None}
    fields, own_faults = declared_fields(rows, schema), dict(faults)

    def note(name: str, faulty: Faults, is_own: bool = True) -> None:
        for row, reason in faulty.items():
            faults.setdefault(row, f"{name}: {reason}")
            if is_own:
                own_faults.setdefault(row, f"{name}: {reason}")

    always = (schema.event_id, schema.event_time.field)
    for name in (*always, *sorted(fields.keys() & needed)):
        if fields[name].null_count:
            note(name, dict.fromkeys(_rows(fields[name].is_null()), "is missing or null"), name in always)
    event_id, faulty = conversion.attributes(fields[schema.event_id], "string")
    note(schema.event_id, faulty)
    note(schema.event_id, dict.fromkeys(_rows(pc.equal(event_id, pa.scalar(""))), "is empty"))
    times = conversion.event_times(fields[schema.event_time.field], schema.event_time)
    note(schema.event_time.field, times.faults)
    attributes, measures, rounded = {}, {}, {}
    for name, kind in ((name, kind) for name, kind in schema.attributes.items() if name in fields):
        attributes[name], faulty = conversion.attributes(fields[name], kind)
        note(name, faulty)
    for name, kind in schema.arrays.items():
        attributes[name], faulty = conversion.arrays(fields[name], kind)
        note(name, faulty)
    for name, measure in ((name, measure) for name, measure in schema.measures.items() if name in fields):
        scaled, faulty, is_rounded = conversion.measures(fields[name], measure)
        note(name, faulty)
        if is_rounded is not None:
            rounded[name] = is_rounded
        nulls = fields[name].is_null().to_numpy(zero_copy_only=False) if fields[name].null_count else None
        measures[name] = pa.array(scaled, mask=nulls)
    time = schema.event_time.field
    for name, text in schema.derive.items() if schema.derive.keys() - fields.keys() else ():
        of_event = readable(attributes | measures | {time: pa.array(times.ms)}, schema.scales, time)
        column, faulty = derive(text, of_event, len(rows))
        (measures if name in schema.measures else attributes)[name] = column
        note(name, faulty)
        if name in needed and column.null_count:
            note(name, dict.fromkeys(_rows(column.is_null()), "is missing or null"), is_own=False)
    every = EventColumns(
        source=rows.column(SOURCE),
        source_order=rows.column(SOURCE_ORDER).to_numpy(),
        position=rows.column(POSITION).to_numpy(),
        event_id=event_id,
        times_ms=times.ms,
        attributes={name: attributes[name] for name in (*schema.attributes, *schema.arrays)},
        measures={name: measures[name] for name in schema.measures},
        ingested_ms=rows.column(INGESTED) if INGESTED in rows.schema.names else None,
        judged=rows.column(JUDGED) if JUDGED in rows.schema.names else None,
        times=times.counts(good_rows(len(rows), faults)) if counts else Counter(),
        rounded=rounded,
    )
    return ParsedRows(every, faults, own_faults)


def _rows(mask: pa.BooleanArray) -> Iterable[int]:
    flags = mask.fill_null(False) if mask.null_count else mask
    return np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist()


def good_rows(rows: int, faults: Faults) -> npt.NDArray[np.bool_]:
    """Return which rows have no fault, bool `(rows,)`."""
    good = np.ones(rows, np.bool_)
    good[list(faults)] = False
    return good


def dead_letters(rows: pa.RecordBatch, parsed: ParsedRows, schema: EventSchema) -> list[DeadLetter]:
    """Return the rows that are neither events nor skipped."""
    letters = []
    for row in sorted(row for row, reason in parsed.faults.items() if reason not in SKIPPED):
        source, order, position = (rows.column(name)[row].as_py() for name in (SOURCE, SOURCE_ORDER, POSITION))
        raw = rows.column(RAW)[row].as_py() if RAW in rows.schema.names else None
        if raw is None:
            columns = declared_fields(rows, schema).items()
            fields = {name: conversion.python_value(column[row]) for name, column in columns}
            raw = json.dumps(fields, default=str, ensure_ascii=False)
        letters.append(DeadLetter(source, order, position, parsed.faults[row], shortened(raw)))
    return letters


def events_json(
    schema: EventSchema, event_ids: Iterable[str], times_ms: Iterable[int], fields: Mapping[str, Sequence[Any]]
) -> list[str]:
    """Write events as JSON: their declared fields, times in ms, measures as decimal strings.

    `fields` holds attributes and arrays in their types, and measures as scaled integers; missing fields are left out.
    """
    columns: dict[str, Iterable[Any]] = {schema.event_id: event_ids, schema.event_time.field: times_ms}
    for name, values in fields.items():
        measure = schema.measures.get(name)
        if measure is not None:
            values = [None if value is None else format_scaled(value, measure.scale) for value in values]
        columns[name] = values
    texts = {name: [_WRITERS.get(type(value), write_json)(value) for value in each] for name, each in columns.items()}
    return [*json_objects(texts)]


def json_objects(fields: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield one JSON object per row, from columns of JSON, one for each field."""
    template = ", ".join(f"{write_json(name).replace('%', '%%')}: %s" for name in fields)
    yield from map(f"{{{template}}}".__mod__, zip(*fields.values(), strict=True))
