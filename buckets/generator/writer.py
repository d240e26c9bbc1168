"""Writes a stream into files in arrival order, and its truth beside them.

Every file is written under a hidden name and then renamed, so that a job that watches the folder never reads
half of one. Streaming file sources take files by modification time: it ascends by one second from file to
file, and the last is that of now.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import pyarrow.parquet as pq

from buckets.errors import BucketsError
from buckets.generator.destination import Destination, destination
from buckets.generator.line import ARROW_SCHEMA, CSV_HEADER, ROWS_AT_ONCE, csv_lines, record_batch
from buckets.generator.stream import Stream

LINES_BETWEEN_REPORTS = 10_000
Progress = Callable[[int], None]
"""Called with the number of lines written so far."""


@dataclass(frozen=True)
class Written:
    """What `write` wrote.

    Attributes:
        files: the stream's files, in order.
        truth: the truth file.
        line_count: lines of the stream, or rows of a Parquet file.
    """

    files: tuple[Path, ...]
    truth: Path
    line_count: int


def write(stream: Stream, out_path: Path, progress: Progress | None = None, overwrite: bool = False) -> Written:
    """Write a stream and its truth.

    Args:
        stream: from `generate`.
        out_path: a file that ends with .jsonl, .csv or .parquet, or a folder, which gets
            `transactions-00000.jsonl` and so on.
        progress: called with the number of lines written so far.
        overwrite: whether an earlier stream there may be replaced.

    Raises:
        BucketsError: the place is taken, cannot hold the stream, or cannot be written.
    """
    place = destination(out_path, bool(stream.malformed), overwrite)
    report = progress or (lambda _: None)
    try:
        place.path.parent.mkdir(parents=True, exist_ok=True)
        place.truth.unlink(missing_ok=True)
        write_stream = _write_folder if place.form == "folder" else _write_one
        files = write_stream(stream, place, report)
        _write_lines(place.truth, (case.to_json() for case in stream.truth))
    except OSError as error:
        message = f"output {out_path}: cannot be written: {error.strerror or error}; choose another path"
        raise BucketsError(message) from error
    return Written(files, place.truth, stream.line_count)


def _write_folder(stream: Stream, place: Destination, report: Progress) -> tuple[Path, ...]:
    place.path.mkdir(exist_ok=True)
    for stale in place.stale_files():
        stale.unlink()
    lines = _counted(stream.json_lines(), report)
    rows_per_file = stream.settings.rows_per_file
    files = tuple(place.file(number) for number in range(-(-stream.line_count // rows_per_file)))
    first_seconds = int(time.time()) - len(files) + 1
    for number, path in enumerate(files):
        _write_lines(path, islice(lines, rows_per_file), first_seconds + number)
    return files


def _write_one(stream: Stream, place: Destination, report: Progress) -> tuple[Path, ...]:
    if place.form == "parquet":
        _write_parquet(stream, place.path, report)
    elif place.form == "csv":
        _write_lines(place.path, chain([CSV_HEADER], _counted(csv_lines(stream.transactions), report)))
    else:
        _write_lines(place.path, _counted(stream.json_lines(), report))
    return (place.path,)


def _counted(lines: Iterator[str], report: Progress) -> Iterator[str]:
    """The same lines; reports now and then how many there were so far, and at the end."""
    count = 0
    for count, line in enumerate(lines, start=1):
        yield line
        if count % LINES_BETWEEN_REPORTS == 0:
            report(count)
    report(count)


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _write_lines(path: Path, lines: Iterable[str], modified_seconds: int | None = None) -> None:
    part = _part_of(path)
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    if modified_seconds is not None:
        os.utime(part, (modified_seconds, modified_seconds))
    part.replace(path)


def _write_parquet(stream: Stream, path: Path, report: Progress) -> None:
    part = _part_of(path)
    count = len(stream.transactions)
    with pq.ParquetWriter(part, ARROW_SCHEMA) as file:
        for start in range(0, count, ROWS_AT_ONCE):
            file.write_batch(record_batch(stream.transactions.take(slice(start, start + ROWS_AT_ONCE))))
            report(min(start + ROWS_AT_ONCE, count))
    part.replace(path)
