"""Checks a file of events, and reads its rows in parts of N lines of text."""

import codecs
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

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
    declared_fields,
    replaced,
    without_column,
)
from buckets.events.bad_rows import bad_source
from buckets.events.csv_events import BYTE_ORDER_MARK, read_header, recoded_lines
from buckets.events.csv_format import PLAIN_CSV, CsvFormat
from buckets.events.field_paths import reachable
from buckets.events.json_events import Fields, read_object, read_value
from buckets.events.json_records import check_records, read_texts, record_arrivals
from buckets.events.message_fields import as_declared, schema_to_read, told
from buckets.events.parquet_rows import MOST_ROWS, check_parquet, folder_values, read_arrivals
from buckets.events.schema import EventSchema
from buckets.events.source_files import COMPRESSED, FileFormat, line_reader, open_text, text_suffix
from buckets.expressions.expression import ELEMENTS
from buckets.printable import short_line
from buckets.stores.location import found_location
from buckets.yaml_file import is_utf16

_DEEPEST = 5
_LOOKED_AT = 16 * 2**20  # Bytes of a file to search for the end of its first value


def check_layout(path: Path, lines: Iterable[bytes], schema: EventSchema) -> None:
    """Refuse a file that is not one object per line; single bad lines become dead letters later."""
    first = list(islice(lines, 2))
    with contextlib.suppress(ValueError):
        value = read_value(first[0].decode())
        if isinstance(value, list) and len(first) == 1:
            raise _other(path, "one JSON array", ELEMENTS)
        records = _records(value, schema) if len(first) == 1 else None
        if records is not None:
            raise _other(path, "an object with a list of objects", records)
        return
    begin = first[0].strip()
    if not begin.startswith((b"[", b"{")):
        return
    value = None
    with open_text(path) as file, contextlib.suppress(ValueError, RecursionError):
        # The first value of the file, if it ends in another line than the first.
        text = file.read(_LOOKED_AT).decode(errors="replace").removeprefix(BYTE_ORDER_MARK).lstrip()
        value, _ = json.JSONDecoder(object_pairs_hook=Fields).raw_decode(text)
    if value is None and begin not in (b"[", b"{"):
        return
    if begin.startswith(b"["):
        raise _other(path, "a JSON array over many lines", ELEMENTS)
    raise _other(path, "JSON objects over many lines", _records(value, schema))


def _other(path: Path, layout: str, records: str | None) -> BucketsError:
    wanted = f", or `records: {json.dumps(records)}` into the event schema" if records else ""
    return bad_source(path, f"has {layout}; write one object a line{wanted}")


def _records(value: Any, schema: EventSchema) -> str | None:
    """Return the path, as for `records`, of the only list of objects in an object that is not itself an event."""
    if not isinstance(value, Fields):
        return None
    there = {name for name, _ in value}
    for name in (*schema.spellings(schema.event_id), *schema.spellings(schema.event_time.field)):
        if name in there or name.split(".")[0].partition("[")[0] in there:
            return None
    found = list(_lists(value, ()))
    names = found[0] if len(found) == 1 else ()
    if not names or not all(names) or any(set(".[") & set(name) for name in names):
        return None
    return short_line(f"{'.'.join(names)}{ELEMENTS}")


def _lists(value: Fields, outer: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each list of objects that is not nested too deep."""
    for name, inside in value:
        way = (*outer, name)
        if isinstance(inside, list) and inside and all(isinstance(element, Fields) for element in inside):
            yield way
        elif isinstance(inside, Fields) and len(way) < _DEEPEST:
            yield from _lists(inside, way)


KINDS: dict[str, FileFormat] = {
    ".jsonl": "json",
    ".json": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
_LINES_LOOKED_AT = 100


@dataclass(frozen=True)
class EventFile:
    """A file of events."""

    path: Path  # where it is
    kind: FileFormat  # how it is read
    header: list[str] | None = None  # the names in the header line of a CSV file, None where it has none
    fields: frozenset[str] = frozenset()  # the declared fields that it has; in JSON, those of its first lines
    csv: CsvFormat = PLAIN_CSV  # how a CSV file is written
    folder: Path | None = None  # of a source; rows are named by paths below it; None for a single file


def open_event_file(path: Path, schema: EventSchema, kind: FileFormat | None = None) -> EventFile:
    """Check a file of events, of the given kind or that of its name; only id and time must be present."""
    path = found_location(str(path))
    if path.is_dir():
        raise bad_source(path, "is a directory; name one .jsonl, .csv or .parquet file")
    if not path.exists():
        raise bad_source(path, "no such file; check the path")
    kind = kind or file_kind(path)
    if kind is None:
        raise bad_source(
            path,
            f"unknown kind {path.suffix!r}; the name must end in {', '.join(KINDS)}; "
            f"all but Parquet may be compressed: {', '.join(COMPRESSED)} behind it",
        )
    if schema.records is not None:
        return EventFile(path, kind, fields=_fields_of_records(path, kind, schema))
    if kind == "parquet":
        parquet = check_parquet(path, schema)
        if not parquet.metadata.num_rows:
            raise bad_source(path, "is empty")
        columns = reachable(schema.all_names, parquet.schema_arrow)
        return EventFile(path, kind, fields=_declared(columns, schema, path))
    if kind == "csv":
        return _open_csv(path, schema)
    if next(_lines(path), None) is None:
        raise bad_source(path, "is empty")
    _check_utf8(path, "save it as UTF-8")
    check_layout(path, (line for _, line in _lines(path)), schema)
    first = next(_text_rows(EventFile(path, kind), schema_to_read(schema), _LINES_LOOKED_AT))
    return EventFile(path, kind, fields=_fields_of_json(path, first, schema))


def _open_csv(path: Path, schema: EventSchema) -> EventFile:
    written = schema.csv
    if written.is_by_line:
        _check_utf8(path, "save it as UTF-8, or write into the event schema: csv: {encoding: utf-16}")
        with open_text(path) as file:
            fault = written.mark_fault(file.read(len(codecs.BOM_UTF8)))
        if fault is not None:
            raise bad_source(path, f"{fault}")
    first = next(_lines(path, written), None)
    if first is None:
        raise bad_source(path, "is empty")
    if written.header:
        check_columns([*written.header, *folder_values(str(path))], schema, str(path))
        with contextlib.suppress(ValueError):
            if set(written.header) <= set(read_header(first[1].decode(written.line_encoding), schema)):
                message = f"events {path}:{first[0]}: the first line has the names of the columns; leave csv.header out"
                raise BucketsError(message)
        return EventFile(path, "csv", None, _declared(written.header, schema, path), written)
    header = _header(path, *first, schema_to_read(schema))
    check_columns([*header, *folder_values(str(path))], schema, str(path))
    if next(islice(_lines(path, written), 1, None), None) is None:
        raise bad_source(path, "has a header line and no events")
    return EventFile(path, "csv", header, _declared(header, schema, path), written)


def lacking(files: Sequence[EventFile], schema: EventSchema, needed: Iterable[str]) -> str:
    """Name the fields that rules need and that no file has; empty if there are none."""
    gone = without_column(frozenset[str]().union(*(file.fields for file in files)), schema, needed)
    is_json = gone and any(file.kind == "json" for file in files)
    return gone.replace("no column", f"the first {_LINES_LOOKED_AT} events have no") if is_json else gone


def file_kind(path: Path) -> FileFormat | None:
    """Return how to read a file by the ending of its name; None for other endings. Text may be compressed."""
    kind = KINDS.get(text_suffix(path).lower())
    return None if kind == "parquet" and path.suffix in COMPRESSED else kind


def _fields_of_records(path: Path, kind: FileFormat, schema: EventSchema) -> frozenset[str]:
    """Check a file of records, and return the declared fields found in its first records."""
    assert schema.records is not None
    if kind != "json":
        reason = f"event schema {schema.name!r} has `records: {json.dumps(schema.records)}`, which is for JSON files"
        raise bad_source(path, f"{reason}; leave it out")
    texts = check_records(path, schema.records)[:_LINES_LOOKED_AT]
    return _fields_of_json(path, read_texts(texts, path, schema_to_read(schema)), schema)


def _header(path: Path, number: int, line: bytes, schema: EventSchema) -> list[str]:
    try:
        return read_header(line.decode(schema.csv.line_encoding), schema)
    except UnicodeDecodeError:
        reason = f"the header line is not valid {schema.csv.encoding_name}"
    except ValueError as error:
        reason = str(error)
    message = f"events {path}:{number}: {reason}"
    raise BucketsError(message)


def _check_utf8(path: Path, remedy: str) -> None:
    with open_text(path) as file:
        if is_utf16(file.read(2)):
            raise bad_source(path, f"is UTF-16; {remedy}")


def _declared(names: Iterable[str], schema: EventSchema, path: Path) -> frozenset[str]:
    """Return the declared fields among names, and those given by the names of a file's folders."""
    return frozenset(schema.declared([*names, *folder_values(str(path))]))


def _fields_of_json(path: Path, read: pa.RecordBatch, schema: EventSchema) -> frozenset[str]:
    """Return the declared fields found in decoded lines or records near the top of a file."""
    readable = schema_to_read(schema)
    columns = declared_fields(read, readable)
    there = frozenset(schema.declared(name for name, column in columns.items() if column.null_count < len(column)))
    names: dict[str, None] = {}
    for text in read.column(RAW).to_pylist():
        with contextlib.suppress(ValueError):
            names |= dict.fromkeys(name for name, _ in read_object(text))
    is_object = pc.any(pc.is_null(read.column(BROKEN))).as_py()
    texts = "lines" if schema.records is None else "records"
    for name in filter(None, (readable.event_id, schema.event_time.field)):
        if names and is_object and name not in there:
            message = (
                f"events {path}: no field {name!r}, which event schema {schema.name!r} declares, in the first "
                f"{_LINES_LOOKED_AT} {texts}; there are: {', '.join(map(short_line, names))}"
            )
            raise MissingColumn(message)
    return there


def raw_lines(file: EventFile, schema: EventSchema) -> Iterator[bytes]:
    """Read the nonblank lines of a text file, or the records of a JSON file, unchanged."""
    if schema.records is not None:
        return iter(check_records(file.path, schema.records))
    return (line for _, line in _lines(file.path))


def _lines(path: Path, csv: CsvFormat = PLAIN_CSV) -> Iterator[tuple[int, bytes]]:
    """Yield nonblank lines, unchanged, numbered from 1; their ends are found in the bytes."""
    with open_text(path) as file:
        try:
            for number, line in enumerate(file if csv.is_by_line else recoded_lines(file, csv.encoding), 1):
                text = line.rstrip(b"\r\n")
                text = text.removeprefix(codecs.BOM_UTF8) if number == 1 else text
                if text.strip():
                    yield number, text
        except UnicodeError as error:
            reason = getattr(error, "reason", error)
            raise bad_source(path, f"is not valid {csv.encoding_name} ({reason}); correct csv.encoding") from None


def numbered_lines(file: EventFile, batch_rows: int | None) -> Iterator[pa.RecordBatch]:
    """Read a text file in parts, as `line_reader` takes them: raw lines without the header."""
    lines = _lines(file.path, file.csv)
    if file.header is not None:
        next(lines)
    while chunk := list(islice(lines, batch_rows)):
        numbers, texts = zip(*chunk, strict=True)
        rows = {
            RAW: pa.array(texts, pa.binary()),
            SOURCE: pa.repeat(pa.scalar(str(file.path)), len(texts)),
            SOURCE_ORDER: pa.repeat(pa.scalar(0, pa.int64()), len(texts)),
            POSITION: pa.array(numbers, pa.int64()),
        }
        yield pa.record_batch(rows)


def file_arrivals(
    file: EventFile, schema: EventSchema, batch_rows: int = MOST_ROWS, say: Callable[[str], None] = lambda line: None
) -> Iterator[pa.RecordBatch]:
    """Read a file as arrivals, without Spark, in pieces of at most `batch_rows` lines.

    At the end `say` gets the remarks about times, such as a missing zone.
    """
    return told(_arrivals(file, schema, batch_rows), schema, f"events {file.path}", say)


def _arrivals(file: EventFile, schema: EventSchema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    readable = schema_to_read(schema)
    if file.kind == "parquet":
        rows = read_arrivals(file.path, 0, readable, None)
    elif schema.records is not None:
        rows = record_arrivals(file.path, 0, readable, batch_rows)
    else:
        rows = _text_rows(file, readable, batch_rows)
    for read in as_declared(rows, schema, file.folder or file.path):
        if file.kind == "parquet" or file.folder is not None:
            yield read
        else:
            name = pa.repeat(pa.scalar(file.path.name), len(read))
            yield replaced(read, SOURCE, name)


def _text_rows(file: EventFile, schema: EventSchema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    return line_reader(file.kind, schema, file.header)(numbered_lines(file, batch_rows))
