"""One file of events, cut into parts of N rows, so that a stream takes a part as one micro-batch.

Each part is a Parquet file with the rows' numbers in the original file: lines of text as they stand, or typed columns.
Modification times ascend, which is the order in which a file stream takes them.
"""

import codecs
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from buckets.arrivals import RAW, check_columns
from buckets.csv_lines import split_header
from buckets.errors import BucketsError, first_line
from buckets.event_schema import EventSchema
from buckets.job import SourceKind

KINDS: dict[str, SourceKind] = {
    ".jsonl": "json",
    ".json": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
ROW_NUMBER = "__buckets_row_number__"
"""Column of a part that holds the numbers of the rows in the original file."""
_FIRST_MTIME_S = 1_700_000_000
_LINES_LOOKED_AT = 100


@dataclass(frozen=True)
class EventFile:
    """A file of events: its path, its kind, and the header of a CSV file."""

    path: Path
    kind: SourceKind
    header: list[str] | None = None


def open_event_file(path: Path, schema: EventSchema, needed: frozenset[str]) -> EventFile:
    """Look at a file of events before anything is done with it.

    Args:
        path: the file.
        schema: the event schema.
        needed: fields that rules use; other attributes and measures may be missing.

    Raises:
        BucketsError: no such file, a directory, empty, of an unknown kind, or without the declared columns.
    """
    if path.is_dir():
        message = f"events {path}: is a directory; name one .jsonl, .csv or .parquet file"
        raise BucketsError(message)
    if not path.exists():
        message = f"events {path}: no such file; check the path"
        raise BucketsError(message)
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        message = f"events {path}: unknown kind {path.suffix!r}; the name must end in {', '.join(KINDS)}"
        raise BucketsError(message)
    if kind == "parquet":
        _check_parquet(path, schema, needed)
        return EventFile(path, kind)
    first = next(_lines(path), None)
    if first is None:
        message = f"events {path}: is empty"
        raise BucketsError(message)
    if kind == "json":
        _check_json(path, schema)
        return EventFile(path, kind)
    try:
        header = split_header(first[1].decode("utf-8"))
    except ValueError as error:
        message = f"events {path}:{first[0]}: the header line is {error}"
        raise BucketsError(message) from None
    check_columns(header, schema, needed, str(path))
    if next(islice(_lines(path), 1, None), None) is None:
        message = f"events {path}: has a header line and no events"
        raise BucketsError(message)
    return EventFile(path, kind, header)


def _check_parquet(path: Path, schema: EventSchema, needed: frozenset[str]) -> None:
    try:
        columns, rows = pq.read_schema(path).names, pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowException) as error:
        message = f"events {path}: is no Parquet file ({first_line(error)})"
        raise BucketsError(message) from None
    check_columns(columns, schema, needed, str(path))
    if not rows:
        message = f"events {path}: is empty"
        raise BucketsError(message)


def _check_json(path: Path, schema: EventSchema) -> None:
    """See that some line near the top has the id and the time: else the file is about something else."""
    there: dict[str, None] = {}
    for _, line in islice(_lines(path), _LINES_LOOKED_AT):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            there |= dict.fromkeys(row)
    for name in (schema.event_id, schema.event_time.field):
        if there and name not in there:
            message = (
                f"events {path}: no field {name!r}, which event schema {schema.name!r} declares, in the first "
                f"{_LINES_LOOKED_AT} lines; there are: {', '.join(there)}"
            )
            raise BucketsError(message)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, as they stand, with their numbers from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip(b"\r\n")
            text = text.removeprefix(codecs.BOM_UTF8) if number == 1 else text
            if text.strip():
                yield number, text


def stage(file: EventFile, folder: Path, batch_rows: int | None) -> int:
    """Cut a file into parts.

    Args:
        file: the file.
        folder: where the parts go.
        batch_rows: rows a part; None for one part of all rows.

    Returns:
        How many parts there are.
    """
    folder.mkdir(parents=True)
    parts = 0
    for parts, table in enumerate(_tables(file, batch_rows), 1):
        part = folder / f"part-{parts:09d}.parquet"
        pq.write_table(table, part)
        os.utime(part, (_FIRST_MTIME_S + parts, _FIRST_MTIME_S + parts))
    return parts


def _tables(file: EventFile, batch_rows: int | None) -> Iterator[pa.Table]:
    if file.kind == "parquet":
        yield from _parquet_tables(file.path, batch_rows)
        return
    lines = _lines(file.path)
    if file.header is not None:
        next(lines)
    while chunk := list(islice(lines, batch_rows)):
        numbers, texts = zip(*chunk, strict=True)
        yield pa.table({ROW_NUMBER: pa.array(numbers, pa.int64()), RAW: pa.array(texts, pa.binary())})


def _parquet_tables(path: Path, batch_rows: int | None) -> Iterator[pa.Table]:
    source = pq.ParquetFile(path)
    first = 1
    for batch in source.iter_batches(batch_size=batch_rows or max(1, source.metadata.num_rows)):
        numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
        yield pa.Table.from_batches([batch]).append_column(ROW_NUMBER, numbers)
        first += batch.num_rows
