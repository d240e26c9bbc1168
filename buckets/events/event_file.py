"""One file of events: what is checked of it, and its rows, in parts of N lines of text."""

import codecs
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from buckets.errors import BucketsError
from buckets.events.arrivals import (
    BROKEN,
    POSITION,
    RAW,
    SOURCE,
    SOURCE_ORDER,
    MissingColumn,
    check_columns,
    field_column,
)
from buckets.events.csv_lines import split_header
from buckets.events.field_paths import reachable
from buckets.events.json_object import read_object
from buckets.events.line_reader import line_reader
from buckets.events.parquet_rows import MOST_ROWS, check_parquet, read_arrivals
from buckets.events.schema import EventSchema
from buckets.events.source_files import FileFormat
from buckets.events.times_seen import told
from buckets.printable import short_line
from buckets.stores.location import found_location
from buckets.yaml_file import is_utf16

KINDS: dict[str, FileFormat] = {
    ".jsonl": "json",
    ".json": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
ROW_NUMBER = "__buckets_row_number__"
"""Column of a part that has the numbers of the rows in the original file."""
_LINES_LOOKED_AT = 100
_LONGEST_NAME = 200


@dataclass(frozen=True)
class EventFile:
    """A file of events.

    Attributes:
        path: where it is.
        kind: how it is read.
        header: of a CSV file.
        fields: the declared fields that it has; of JSON those that its first lines have.
    """

    path: Path
    kind: FileFormat
    header: list[str] | None = None
    fields: frozenset[str] = frozenset()


def open_event_file(path: Path, schema: EventSchema, kind: FileFormat | None = None) -> EventFile:
    """Check a file of events before anything is done with it; fields other than id and time may be missing.

    The kind follows from the name where it is not given.

    Raises:
        BucketsError: no such file, a directory, empty, of an unknown kind, or without id or time.
    """
    path = found_location(str(path))
    if path.is_dir():
        message = f"events {path}: is a directory; name one .jsonl, .csv or .parquet file"
        raise BucketsError(message)
    if not path.exists():
        message = f"events {path}: no such file; check the path"
        raise BucketsError(message)
    kind = kind or KINDS.get(path.suffix.lower())
    if kind is None:
        message = f"events {path}: unknown kind {path.suffix!r}; the name must end in {', '.join(KINDS)}"
        raise BucketsError(message)
    if kind == "parquet":
        parquet = check_parquet(path, schema)
        if not parquet.metadata.num_rows:
            message = f"events {path}: is empty"
            raise BucketsError(message)
        return EventFile(path, kind, fields=_declared(reachable(schema.field_names, parquet.schema_arrow), schema))
    first = next(_lines(path), None)
    if first is None:
        message = f"events {path}: is empty"
        raise BucketsError(message)
    _check_utf8(path)
    if kind == "json":
        return EventFile(path, kind, fields=_fields_of_json(path, schema))
    header = _header(path, *first, schema)
    check_columns(header, schema, str(path))
    if next(islice(_lines(path), 1, None), None) is None:
        message = f"events {path}: has a header line and no events"
        raise BucketsError(message)
    return EventFile(path, kind, header, _declared(header, schema))


def _header(path: Path, number: int, line: bytes, schema: EventSchema) -> list[str]:
    """Read the header line of a CSV file, which is about events of the schema."""
    try:
        header = split_header(line.decode("utf-8"))
    except ValueError as error:
        message = f"events {path}:{number}: the header line is {error}"
        raise BucketsError(message) from None
    if not set(header) & set(schema.field_names):
        message = (
            f"events {path}:{number}: the first line names no field of event schema {schema.name!r}, it begins "
            f"{short_line(header[0])!r}; write the names of the columns above it, as in {','.join(schema.field_names)}"
        )
        raise BucketsError(message)
    return header


def _check_utf8(path: Path) -> None:
    with path.open("rb") as file:
        if is_utf16(file.read(2)):
            message = f"events {path}: is UTF-16; save it as UTF-8"
            raise BucketsError(message)


def _declared(names: Iterable[str], schema: EventSchema) -> frozenset[str]:
    return frozenset(schema.field_names).intersection(names)


def _fields_of_json(path: Path, schema: EventSchema) -> frozenset[str]:
    """Return the declared fields that lines near the top have.

    Raises:
        MissingColumn: none has the id, or none the time, so that the file is about something else.
    """
    first = list(islice(_lines(path), _LINES_LOOKED_AT))
    rows = next(numbered_lines(EventFile(path, "json"), _LINES_LOOKED_AT))
    read = next(line_reader("json", schema, None)([_lines_of(path, rows)]))
    columns = {name: read.column(field_column(index)) for index, name in enumerate(schema.field_names)}
    there = frozenset(name for name, column in columns.items() if column.null_count < len(column))
    names: dict[str, None] = {}
    for _, line in first:
        with contextlib.suppress(ValueError):
            names |= dict.fromkeys(name for name, _ in read_object(line.decode()))
    is_object = pc.any(pc.is_null(read.column(BROKEN))).as_py()
    for name in (schema.event_id, schema.event_time.field):
        if names and is_object and name not in there:
            message = (
                f"events {path}: no field {name!r}, which event schema {schema.name!r} declares, in the first "
                f"{_LINES_LOOKED_AT} lines; there are: {', '.join(map(_printable, names))}"
            )
            raise MissingColumn(message)
    return there


def _printable(name: str) -> str:
    """Return a field's name so that it can be shown in one line, whatever it holds."""
    shown = name if name.isprintable() else ascii(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…"


def raw_lines(file: EventFile) -> Iterator[bytes]:
    """Read the lines of a text file that are not blank, unchanged."""
    return (line for _, line in _lines(file.path))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield lines that are not blank, unchanged, with their numbers from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip(b"\r\n")
            text = text.removeprefix(codecs.BOM_UTF8) if number == 1 else text
            if text.strip():
                yield number, text


def numbered_lines(file: EventFile, batch_rows: int | None) -> Iterator[pa.Table]:
    """Read a text file in parts: lines as they are, with their numbers in the file, without those of a header."""
    lines = _lines(file.path)
    if file.header is not None:
        next(lines)
    while chunk := list(islice(lines, batch_rows)):
        numbers, texts = zip(*chunk, strict=True)
        yield pa.table({ROW_NUMBER: pa.array(numbers, pa.int64()), RAW: pa.array(texts, pa.binary())})


def file_arrivals(
    file: EventFile, schema: EventSchema, batch_rows: int = MOST_ROWS, say: Callable[[str], None] = lambda line: None
) -> Iterator[pa.RecordBatch]:
    """Read a file as arrivals, without Spark.

    Args:
        file: the file.
        schema: the event schema.
        batch_rows: the most lines of a piece.
        say: told at the end what is to be known of the times, such as that they have no zone.

    Raises:
        BucketsError: a Parquet file is damaged, or the times at the beginning are in another unit than the declared.
    """
    return told(_arrivals(file, schema, batch_rows), schema, f"events {file.path}", say)


def _arrivals(file: EventFile, schema: EventSchema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    if file.kind == "parquet":
        yield from read_arrivals(file.path, 0, schema, None)
        return
    read = line_reader(file.kind, schema, file.header)
    yield from read(_lines_of(file.path, table) for table in numbered_lines(file, batch_rows))


def _lines_of(path: Path, table: pa.Table) -> pa.RecordBatch:
    """Bring numbered lines into the form that `text_lines` takes."""
    numbers = table[ROW_NUMBER].combine_chunks()
    order = pa.repeat(pa.scalar(0, pa.int64()), len(table))
    source = pa.repeat(pa.scalar(path.name), len(table))
    raw = table[RAW].combine_chunks()
    return pa.record_batch({RAW: raw, SOURCE: source, SOURCE_ORDER: order, POSITION: numbers})
