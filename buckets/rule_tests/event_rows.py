"""Events of files and tables as they are written in a test: each a mapping of fields to text, true, false or null.

An array is a list of these.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.arrivals import EventColumns, parse
from buckets.events.bad_rows import BadRows
from buckets.events.clock_times import written
from buckets.events.event_file import file_arrivals, open_event_file
from buckets.events.schema import EventSchema
from buckets.events.time_units import PER_SECOND
from buckets.moment import iso_text
from buckets.numbers.fixed_point import format_scaled

EventRow = dict[str, Any]
"""Field to text, true, false or None; an array to a list of these."""


def file_rows(path: Path, schema: EventSchema, most: int) -> list[EventRow]:
    """Return the events of a file, in its order.

    Raises:
        BucketsError: the file cannot be read, one of its rows is no event, or there are too many.
    """
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
    """Return events with each field as it is written in a test; fields without a value are left out."""
    columns: dict[str, Iterable[Any]] = {
        schema.event_id: events.event_id.to_pylist(),
        schema.event_time.field: (written_time(time_ms, schema) for time_ms in events.times_ms.tolist()),
    }
    for name, attribute in events.attributes.items():
        columns[name] = (_written(value) for value in attribute.to_pylist())
    for name, measure in events.measures.items():
        scale = schema.measures[name].scale
        columns[name] = (None if value is None else format_scaled(value, scale) for value in measure.to_pylist())
    rows = zip(*columns.values(), strict=True)
    return [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in rows]


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(element) for element in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def written_time(time_ms: int, schema: EventSchema) -> str:
    """Return a time as the event schema has it.

    Raises:
        BucketsError: its format or its zone cannot say it.
    """
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
