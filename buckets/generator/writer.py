"""Writes a stream into files in arrival order, and the truth about it beside them.

Every file is written under a hidden name and then renamed, so that a job that watches the folder never reads
half of one. Streaming file sources take files by modification time: it ascends by one second from file to
file, and that of the last file is the present.
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
OnLines = Callable[[int], None]
"""Called with the number of lines written so far."""


@dataclass(frozen=True)
class WrittenStream:
    """What `write` wrote."""

    files: tuple[Path, ...]
    truth: Path
    line_count: int


def write(stream: Stream, out_path: Path, progress: OnLines | None = None, overwrite: bool = False) -> WrittenStream:
    """Write a stream and its truth, as `destination` says; `progress` is called with the lines written so far.

    Raises:
        BucketsError: the destination is taken, cannot hold the stream, or cannot be written.
    """
    target = destination(out_path, bool(stream.malformed), overwrite)
    report = progress or (lambda _: None)
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
        target.truth.unlink(missing_ok=True)
        write_stream = _write_folder if target.form == "folder" else _write_one
        files = write_stream(stream, target, report)
        _write_lines(target.truth, (case.to_json() for case in stream.truth))
    except OSError as error:
        message = f"output {out_path}: cannot be written: {error.strerror or error}; choose another path"
        raise BucketsError(message) from error
    return WrittenStream(files, target.truth, stream.line_count)


def _write_folder(stream: Stream, target: Destination, report: OnLines) -> tuple[Path, ...]:
    target.path.mkdir(exist_ok=True)
    for stale in target.stale_files():
        stale.unlink()
    lines = _counted(stream.json_lines(), report)
    rows_per_file = stream.settings.rows_per_file
    files = tuple(target.file(number) for number in range(-(-stream.line_count // rows_per_file)))
    first_seconds = int(time.time()) - len(files) + 1
    for number, path in enumerate(files):
        _write_lines(path, islice(lines, rows_per_file), first_seconds + number)
    return files


def _write_one(stream: Stream, target: Destination, report: OnLines) -> tuple[Path, ...]:
    if target.form == "parquet":
        _write_parquet(stream, target.path, report)
    elif target.form == "csv":
        _write_lines(target.path, chain([CSV_HEADER], _counted(csv_lines(stream.transactions), report)))
    else:
        _write_lines(target.path, _counted(stream.json_lines(), report))
    return (target.path,)


def _counted(lines: Iterator[str], report: OnLines) -> Iterator[str]:
    """Yield the same lines; report now and then how many there were so far, and at the end."""
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


def _write_parquet(stream: Stream, path: Path, report: OnLines) -> None:
    part = _part_of(path)
    count = len(stream.transactions)
    with pq.ParquetWriter(part, ARROW_SCHEMA) as file:
        for start in range(0, count, ROWS_AT_ONCE):
            file.write_batch(record_batch(stream.transactions.take(slice(start, start + ROWS_AT_ONCE))))
            report(min(start + ROWS_AT_ONCE, count))
    part.replace(path)
