"""One file of events: what is checked of it, and its rows, in parts of N lines of text."""

import codecs
import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa

from buckets.errors import BucketsError
from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER, check_columns
from buckets.events.csv_lines import split_header
from buckets.events.folder_values import folder_values
from buckets.events.json_layout import check_layout
from buckets.events.json_object import read_object
from buckets.events.json_records import check_records, record_arrivals
from buckets.events.line_reader import line_reader
from buckets.events.parquet_rows import MOST_ROWS, check_parquet, read_arrivals
from buckets.events.schema import EventSchema
from buckets.events.source_files import FileFormat
from buckets.events.text_file import COMPRESSED, open_text, text_suffix
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
    """A file of events: its path, its kind, and the header of a CSV file."""

    path: Path
    kind: FileFormat
    header: list[str] | None = None


def open_event_file(path: Path, schema: EventSchema, needed: frozenset[str]) -> EventFile:
    """Check a file of events before anything is done with it; fields other than id, time and `needed` may be missing.

    Raises:
        BucketsError: no such file, a directory, empty, of an unknown kind, or without the declared columns.
    """
    path = found_location(str(path))
    if path.is_dir():
        message = f"events {path}: is a directory; name one .jsonl, .csv or .parquet file"
        raise BucketsError(message)
    if not path.exists():
        message = f"events {path}: no such file; check the path"
        raise BucketsError(message)
    kind = file_kind(path)
    if kind is None:
        message = (
            f"events {path}: unknown kind {path.suffix!r}; the name must end in {', '.join(KINDS)}; "
            f"all but Parquet may be compressed: {', '.join(COMPRESSED)} behind it"
        )
        raise BucketsError(message)
    if schema.records is not None:
        _check_records(path, kind, schema)
        return EventFile(path, kind)
    if kind == "parquet":
        if not check_parquet(path, schema, needed).metadata.num_rows:
            message = f"events {path}: is empty"
            raise BucketsError(message)
        return EventFile(path, kind)
    first = next(_lines(path), None)
    if first is None:
        message = f"events {path}: is empty"
        raise BucketsError(message)
    _check_utf8(path)
    if kind == "json":
        check_layout(path, (line for _, line in _lines(path)), schema)
        _check_json(path, _lines(path), schema)
        return EventFile(path, kind)
    header = _header(path, *first, schema)
    check_columns([*header, *folder_values(str(path))], schema, needed, str(path))
    if next(islice(_lines(path), 1, None), None) is None:
        message = f"events {path}: has a header line and no events"
        raise BucketsError(message)
    return EventFile(path, kind, header)


def file_kind(path: Path) -> FileFormat | None:
    """Return how a file is read, by the ending of its name; None for others. Text may be compressed."""
    kind = KINDS.get(text_suffix(path).lower())
    return None if kind == "parquet" and path.suffix in COMPRESSED else kind


def _check_records(path: Path, kind: FileFormat, schema: EventSchema) -> None:
    assert schema.records is not None
    if kind != "json":
        message = (
            f"events {path}: event schema {schema.name!r} has `records: {json.dumps(schema.records)}`, which is for "
            "JSON files; leave it out"
        )
        raise BucketsError(message)
    _check_json(path, enumerate(check_records(path, schema.records), 1), schema)


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
    with open_text(path) as file:
        if is_utf16(file.read(2)):
            message = f"events {path}: is UTF-16; save it as UTF-8"
            raise BucketsError(message)


def _check_json(path: Path, lines: Iterable[tuple[int, bytes]], schema: EventSchema) -> None:
    """Check that some line near the top has the id and the time; otherwise the file is about something else."""
    there: dict[str, None] = {}
    for _, line in islice(lines, _LINES_LOOKED_AT):
        with contextlib.suppress(ValueError):
            there |= dict.fromkeys(name for name, _ in read_object(line.decode()))
    texts = "lines" if schema.records is None else "records"
    for name in (schema.event_id, schema.event_time.field):
        if there and name not in there and name not in folder_values(str(path)):
            message = (
                f"events {path}: no field {name!r}, which event schema {schema.name!r} declares, in the first "
                f"{_LINES_LOOKED_AT} {texts}; there are: {', '.join(map(_printable, there))}"
            )
            raise BucketsError(message)


def _printable(name: str) -> str:
    """Return a field's name so that it can be shown in one line, whatever it holds."""
    shown = name if name.isprintable() else ascii(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…"


def raw_lines(file: EventFile, schema: EventSchema) -> Iterator[bytes]:
    """Read the lines of a text file that are not blank, or the records of one of JSON, unchanged."""
    if schema.records is not None:
        return iter(check_records(file.path, schema.records))
    return (line for _, line in _lines(file.path))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield lines that are not blank, unchanged, with their numbers from 1."""
    with open_text(path) as file:
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


def file_arrivals(file: EventFile, schema: EventSchema, batch_rows: int = MOST_ROWS) -> Iterator[pa.RecordBatch]:
    """Read a file as arrivals, without Spark.

    Raises:
        BucketsError: the file is damaged.
    """
    if file.kind == "parquet":
        yield from read_arrivals(file.path, 0, schema, None)
        return
    if schema.records is not None:
        read = record_arrivals(file.path, 0, schema, batch_rows)
    else:
        lines = (_lines_of(file, table) for table in numbered_lines(file, batch_rows))
        read = line_reader(file.kind, schema, file.header)(lines)
    for rows in read:
        name = pa.repeat(pa.scalar(file.path.name), len(rows))
        yield rows.set_column(rows.schema.get_field_index(SOURCE), SOURCE, name)


def _lines_of(file: EventFile, table: pa.Table) -> pa.RecordBatch:
    """Bring numbered lines into the form that `text_lines` takes."""
    numbers = table[ROW_NUMBER].combine_chunks()
    order = pa.repeat(pa.scalar(0, pa.int64()), len(table))
    source = pa.repeat(pa.scalar(str(file.path)), len(table))
    raw = table[RAW].combine_chunks()
    return pa.record_batch({RAW: raw, SOURCE: source, SOURCE_ORDER: order, POSITION: numbers})
