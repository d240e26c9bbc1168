"""Converts the events of a test, as written or from files and tables, to a table for evaluation.

`at` is a time relative to the start of the test, and so is a duration in the event time's field. Missing ids are
generated.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.arrivals import EventColumns, convert, parse
from buckets.events.bad_rows import BadRows
from buckets.events.clock_times import PER_SECOND, written
from buckets.events.event_file import file_arrivals, open_event_file
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema, EventTime
from buckets.moment import iso_text
from buckets.numbers.fixed_point import format_scaled
from buckets.printable import short_line
from buckets.rule_files.rule_tests import MOST_EVENTS, GivenEvent, GivenFile, Repeat, RuleTest
from buckets.stores.store_path import StorePath
from buckets.validation import Location

EventRow = dict[str, Any]  # Field to text, true, false or None; an array to a list of these


def file_rows(path: Path, schema: EventSchema, most: int) -> list[EventRow]:
    """Return the events of a file; BucketsError if it cannot be read, a row is not an event, or there are too many."""
    rows: list[EventRow] = []
    for batch in file_arrivals(open_event_file(path, schema), schema):
        events, dead_letters = parse(batch, schema, frozenset())
        if dead_letters:
            bad = BadRows()
            bad.take(
                len(batch), len(dead_letters), ((str(path), letter.position, letter.reason) for letter in dead_letters)
            )
            message = f"events {path}: {bad.text}; correct them or leave them out"
            raise BucketsError(message)
        rows += written_events(events, schema)
        if len(rows) > most:
            message = f"events {path}: has more than {most:,} events, the limit of a test; name a smaller file"
            raise BucketsError(message)
    return rows


def written_events(events: EventColumns, schema: EventSchema) -> list[EventRow]:
    """Return events with fields as written in a test, without derived and missing ones."""
    columns: dict[str, Iterable[Any]] = {
        schema.event_id: events.event_id.to_pylist(),
        schema.event_time.field: (written_time(time_ms, schema) for time_ms in events.times_ms.tolist()),
    }
    for name, attribute in events.attributes.items():
        columns[name] = (_written(value) for value in attribute.to_pylist())
    for name, measure in events.measures.items():
        scale = schema.measures[name].scale
        columns[name] = (None if value is None else format_scaled(value, scale) for value in measure.to_pylist())
    columns = {name: column for name, column in columns.items() if name not in schema.derive}
    rows = zip(*columns.values(), strict=True)
    return [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in rows]


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(element) for element in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def written_time(time_ms: int, schema: EventSchema) -> str:
    """Return a time in the format of the event schema; BucketsError if its format or zone cannot express it."""
    declared = schema.event_time
    if declared.unit == "s":
        return format_scaled(time_ms, 3)
    if declared.unit != "iso8601":
        return str(time_ms * PER_SECOND[declared.unit] // 1000)
    if declared.format is None:
        return iso_text(time_ms)
    text = written(time_ms, declared.format, declared.zone or "UTC")
    read_ms, _ = conversion.times_ms(pa.array([text]), declared)
    if read_ms[0] != time_ms:
        way = f"{declared.format} in {declared.zone or 'UTC'}"
        message = f"{iso_text(time_ms)} cannot be written as {way}, as event_time wants it"
        raise BucketsError(message)
    return text


START_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z, a Monday: the default for `at: 0s`
_OFFSET = re.compile(r"\s*(\d+[a-z]+)((?:\s*[+-]\s*\d+[a-z]+)*)\s*", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_ONCE = Repeat(times=1)
_STEP = re.compile(r"([+-])\s*(\d+[a-z]+)", re.ASCII)

Fault = Callable[[Location, str], BucketsError]  # Makes the error that names the line of a field of the test


@dataclass(frozen=True)
class GivenEvents:
    """The events of a test."""

    table: pa.Table  # a row an event, in arrival order, with all declared fields as text, arrays as lists of text
    ids: tuple[str | None, ...]  # of each event, as they were written or made up
    origins: tuple[Location, ...]  # where each event stands in the test
    schema: EventSchema  # their event schema

    def lacking(self, attribute: str) -> list[int]:
        """Return the positions of events without a value for an attribute, also a derived one."""
        if attribute in self.table.column_names:
            is_null = self.table[attribute].is_null()
        else:
            pieces = table_arrivals(self.table, self.schema)
            events = (convert(rows, self.schema, frozenset(), counts=False).every for rows in pieces)
            is_null = pa.chunked_array([each.attributes[attribute].is_null() for each in events], pa.bool_())
        positions: list[int] = np.flatnonzero(is_null.to_numpy()).tolist()
        return positions

    def positions(self, reference: str) -> frozenset[int]:
        """Return the events referred to by a number, from 1, or by an id; empty if there are none."""
        if _NUMBER.fullmatch(reference) and 1 <= int(reference) <= len(self.ids):
            return frozenset({int(reference) - 1})
        return frozenset(at for at, event_id in enumerate(self.ids) if event_id == reference)


def given_events(test: RuleTest, schema: EventSchema, folder: Path, fault: Fault) -> GivenEvents:
    """Return the events of a test; BucketsError if a field does not fit, or a file cannot be read."""
    origins, rows = _Reader(test, schema, fault).rows(folder)
    written = {row.get(schema.event_id) for row in rows}
    for number, row in enumerate(rows, 1):
        if schema.event_id not in row:
            name = f"e{number}"
            while name in written:
                name += "-"
            row[schema.event_id] = name
    ids = tuple(row[schema.event_id] for row in rows)
    return GivenEvents(events_table(rows, schema), ids, tuple(origins), schema)


def events_table(rows: Sequence[EventRow], schema: EventSchema) -> pa.Table:
    """Return events as a table with all declared fields as text, arrays as lists of text."""
    names = (name for name in schema.field_names if name not in schema.arrays)
    columns = {name: pa.array([as_text(row.get(name)) for row in rows], pa.string()) for name in names}
    for name in schema.arrays:
        lists = [None if row.get(name) is None else list(map(as_text, row[name])) for row in rows]
        columns[name] = pa.array(lists, pa.list_(pa.string()))
    return pa.table(columns)


def as_text(value: Any) -> str | None:
    """Return a value in the form of an event field; numbers are texts already."""
    return ("true" if value else "false") if isinstance(value, bool) else value


class _Reader:
    def __init__(self, test: RuleTest, schema: EventSchema, fault: Fault) -> None:
        self._test, self._schema, self._fault = test, schema, fault
        self._time_field = schema.event_time.field
        self._check_fields(test.defaults, ("defaults",))

    def rows(self, folder: Path) -> tuple[list[Location], list[EventRow]]:
        """Return the location of each event in the test, and its fields."""
        given, defaults = self._test.given, self._test.defaults
        if isinstance(given, GivenFile):
            path = folder / given.file
            if not isinstance(path, StorePath) and not path.resolve().is_relative_to(folder.resolve()):
                reason = f"{short_line(given.file)} leads out of the folder of the rule file; put the events into it"
                raise self._fault(("given", "file"), reason)
            try:
                rows = file_rows(path, self._schema, MOST_EVENTS)
            except BucketsError as error:
                raise self._fault(("given", "file"), error.message) from None
            return [("given", "file")] * len(rows), [defaults | row for row in rows]
        start_ms = self._start_ms(self._schema.event_time)
        rows, origins = [], list[Location]()
        for index, event in enumerate(given):
            location: Location = ("given", index)
            rows += self._event_rows(event, start_ms, location)
            origins += [location] * (len(rows) - len(origins))
            if len(rows) > MOST_EVENTS:
                raise self._fault(location, f"are more than {MOST_EVENTS:,} events, the limit of a test; give fewer")
        return origins, rows

    def _start_ms(self, declared: EventTime) -> int:
        if self._test.start is None:
            return START_MS if declared.earliest_ms <= START_MS < declared.latest_ms else declared.earliest_ms
        text = as_text(self._test.start)
        for way in (declared, declared.model_copy(update={"unit": "iso8601", "format": None, "zone": "UTC"})):
            times, faults = conversion.times_ms(pa.array([text]), way)
            if not faults:
                return int(times[0])
        form = f"write a time of {declared.field}, or one as in 2026-01-05T00:00:00Z"
        raise self._fault(("start",), f"{faults[0]}; {form}")

    def _event_rows(self, event: GivenEvent, start_ms: int, location: Location) -> Iterator[EventRow]:
        """Return an event, or several if it is repeated."""
        written: EventRow = dict(event.__pydantic_extra__)
        is_counted = "at" in event.model_fields_set and "at" not in self._schema.field_names
        if "at" in event.model_fields_set and not is_counted:
            written["at"] = event.at
        self._check_fields(written, location)
        row = self._test.defaults | written
        if not is_counted and self._time_field not in row:
            raise self._fault(location, f"has no time; write `at`, as in `at: 0s`, or {self._time_field}")
        if is_counted and self._time_field in written:
            raise self._fault((*location, "at"), f"goes without {self._time_field}; write one of them")
        offset_ms = _offset_ms(event.at if is_counted else row[self._time_field])
        if is_counted and offset_ms is None:
            form = "is not a time counted from the start; write it as in 0s, 23h or 24h + 1ms"
            raise self._fault((*location, "at"), f"{short_line(repr(event.at))} {form}")
        repeat = event.repeat or _ONCE
        if offset_ms is None and repeat.every:
            raise self._fault((*location, "repeat"), "goes with a time counted from the start, as in `at: 0s`")
        for step in range(repeat.times):
            time = {}
            if offset_ms is not None:
                time = {self._time_field: self._time(start_ms + offset_ms + step * repeat.every, location)}
            yield row | time

    def _time(self, time_ms: int, location: Location) -> str:
        declared = self._schema.event_time
        if not declared.earliest_ms <= time_ms < declared.latest_ms:
            reason = f"lies outside {declared.limits}, the times that the event schema accepts; see `start` and `at`"
            raise self._fault(location, reason)
        try:
            return written_time(time_ms, self._schema)
        except BucketsError as error:
            raise self._fault(location, f"{error.message}; see `start` and `at`") from None

    def _check_fields(self, given: EventRow, location: Location) -> None:
        for name, value in given.items():
            if name in self._schema.derive:
                raise self._fault((*location, name), "is derived from other fields; leave it out, and give those")
            if name not in self._schema.field_names:
                fields = ", ".join(self._schema.field_names)
                raise self._fault((*location, name), f"unknown field; event schema {self._schema.name!r} has {fields}")
            is_array = name in self._schema.arrays
            if value is not None and isinstance(value, list) != is_array:
                reason = "is an array; write a list, as in [A, B]" if is_array else "must be one value, not a list"
                raise self._fault((*location, name), reason)
            kind = (self._schema.attributes | self._schema.arrays).get(name, "text")
            flag = next((one for one in (value if is_array else [value]) or () if isinstance(one, bool)), None)
            if flag is not None and kind != "boolean":
                raise self._fault((*location, name), f"{as_text(flag)} is not a {kind}; put text in quotes")


def _offset_ms(text: Any) -> int | None:
    """Return a duration, or a sum of durations with signs, in ms; None for anything else."""
    match = _OFFSET.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    try:
        steps = [(sign, parse_duration_ms(step)) for sign, step in _STEP.findall(match[2])]
        return parse_duration_ms(match[1]) + sum(-step if sign == "-" else step for sign, step in steps)
    except ValueError:
        return None
