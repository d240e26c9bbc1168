"""Events of files and tables as they are written in a test: each a mapping of fields to text, true, false or null."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from buckets.errors import BucketsError
from buckets.events import csv_events, json_events
from buckets.events.arrivals import RAW, SOURCE, SOURCE_ORDER, Events, parse
from buckets.events.bad_rows import BadRows
from buckets.events.event_file import open_event_file
from buckets.events.parquet_rows import as_arrivals, field_batches
from buckets.events.schema import EventSchema
from buckets.events.text_lines import text_lines
from buckets.moment import iso_text
from buckets.numbers.fixed_point import format_scaled

EventRow = dict[str, Any]
"""Field to text, true, false or None."""


def file_rows(path: Path, schema: EventSchema, most: int) -> list[EventRow]:
    """The events of a file, in its order.

    Args:
        path: a .jsonl, .csv or .parquet file.
        schema: the event schema.
        most: how many events there may be.

    Raises:
        BucketsError: the file cannot be read, one of its rows is no event, or there are too many.
    """
    rows: list[EventRow] = []
    for batch in file_arrivals(path, schema):
        rows += arrival_rows(batch, schema, str(path))
        if len(rows) > most:
            message = f"events {path}: has more than {most:,} events, the limit of a test; name a smaller file"
            raise BucketsError(message)
    return rows


def file_arrivals(path: Path, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """The rows of a file as arrivals, each with its line or row as its position, from 1.

    Raises:
        BucketsError: the file cannot be read.
    """
    yield from source_arrivals(path, open_event_file(path, schema, frozenset()).kind, schema)


def source_arrivals(path: Path, kind: str, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """The rows of a file of a known kind as arrivals; see `file_arrivals`."""
    if kind == "parquet":
        first = 1
        for batch in field_batches(path, schema.field_names):
            numbers = pa.array(range(first, first + len(batch)), pa.int64())
            yield as_arrivals(batch, schema, str(path), _zeros(len(batch)), numbers)
            first += len(batch)
        return
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        message = f"events {path}: cannot be read ({error.strerror}); see that it is there and who may read it"
        raise BucketsError(message) from None
    yield from text_arrivals(lines, kind, schema, str(path))


def text_arrivals(texts: list[bytes], kind: str, schema: EventSchema, source: str) -> Iterator[pa.RecordBatch]:
    """Lines of JSON or CSV, the latter with a header line, as arrivals."""
    names = pa.repeat(pa.scalar(source), len(texts))
    rows = pa.record_batch({SOURCE: names, SOURCE_ORDER: _zeros(len(texts)), RAW: pa.array(texts, pa.binary())})
    lines = text_lines([rows])
    if kind == "csv":
        return csv_events.read_events(lines, schema, None)
    return (json_events.read_events(batch, schema) for batch in lines)


def _zeros(rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int64()), rows)


def arrival_rows(arrivals: pa.RecordBatch, schema: EventSchema, origin: str) -> list[EventRow]:
    """Arrivals as rows of a test.

    Raises:
        BucketsError: one is no event.
    """
    events, dead_letters = parse(arrivals, schema, frozenset())
    if dead_letters:
        bad = BadRows()
        found = ((each.source, each.position, each.reason) for each in dead_letters)
        bad.take(arrivals.num_rows, len(dead_letters), found)
        message = f"events {origin}: {bad.text}; correct them or leave them out"
        raise BucketsError(message)
    return written_events(events, schema)


def written_events(events: Events, schema: EventSchema) -> list[EventRow]:
    """Events with each field as it is written in a test; fields without a value are left out."""
    columns: dict[str, Iterable[Any]] = {
        schema.event_id: events.event_id.to_pylist(),
        schema.event_time.field: (written_time(each, schema) for each in events.times_ms.tolist()),
    }
    for name, attribute in events.attributes.items():
        columns[name] = (_written(value) for value in attribute.to_pylist())
    for name, measure in events.measures.items():
        scale = schema.measures[name].scale
        columns[name] = (None if value is None else format_scaled(value, scale) for value in measure.to_pylist())
    rows = zip(*columns.values(), strict=True)
    return [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in rows]


def _written(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def written_time(time_ms: int, schema: EventSchema) -> str:
    """A time as the event schema has it."""
    if schema.event_time.unit == "ms":
        return str(time_ms)
    if schema.event_time.unit == "s":
        return format_scaled(time_ms, 3)
    return iso_text(time_ms)
