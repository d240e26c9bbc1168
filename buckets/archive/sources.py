"""What a job has read, read once more: the arrivals of each batch, by where the stream was cut."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from buckets.archive.delta_source import delta_arrivals
from buckets.archive.topic_source import lost_messages, topic_arrivals
from buckets.checkpoint.cuts import Cut
from buckets.checkpoint.folders import spark_folder
from buckets.checkpoint.terms import Terms
from buckets.checkpoint.unread_files import UnreadFiles
from buckets.config.job import Job
from buckets.config.source import DeltaSource, FileSource, KafkaSource
from buckets.errors import BucketsError
from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.json_records import record_arrivals
from buckets.events.line_reader import line_reader
from buckets.events.made_ids import with_made_ids
from buckets.events.message_fields import without_made_id
from buckets.events.parquet_rows import MOST_ROWS, read_arrivals
from buckets.events.schema import EventSchema
from buckets.events.source_files import is_hidden, modified_ms
from buckets.events.text_file import open_text
from buckets.monitor.file_watch import Taken, TakenFiles
from buckets.stores.location import found_location

Arrived = Iterator[tuple[int, pa.RecordBatch]]
"""Batches by their number, each in one or more pieces, in the order of arrival."""


class BatchRange(NamedTuple):
    """The batches that are wanted: their cuts, and how far the source had been read before them, None for nothing."""

    before: Cut | None
    cuts: Sequence[Cut]


def source_arrivals(job: Job, wanted: BatchRange, schemas: Mapping[int, EventSchema]) -> Arrived:
    """Read the arrivals of batches once more.

    Raises:
        BucketsError: the source does not have any more what a batch has read.
    """
    match job.settings.source:
        case KafkaSource():
            return topic_arrivals(job, wanted.before, wanted.cuts, schemas)
        case DeltaSource() as source:
            return delta_arrivals(source, wanted.cuts, schemas)
        case FileSource() as source:
            return _file_arrivals(job, source, wanted, schemas)
        case source:
            raise NotImplementedError(source.kind)


def lost_batches(job: Job, wanted: BatchRange, terms_of: Callable[[int], Terms]) -> Sequence[int]:
    """Return the batches that can never be archived, because not all of their messages have been kept.

    Args:
        job: the job.
        wanted: the batches that are looked at.
        terms_of: returns the terms of a batch.

    Raises:
        BucketsError: nothing of a topic has been kept yet.
    """
    is_topic = isinstance(job.settings.source, KafkaSource)
    return lost_messages(job, wanted.before, wanted.cuts, terms_of) if is_topic else ()


def _file_arrivals(job: Job, source: FileSource, wanted: BatchRange, schemas: Mapping[int, EventSchema]) -> Arrived:
    taken = TakenFiles(spark_folder(job.checkpoint))
    taken.read()
    unread = UnreadFiles(job.checkpoint).read()
    files = sorted((file.batch, file.modified_ms, path) for path, file in taken.files.items())
    read = -1 if wanted.before is None else _log_offset(wanted.before)
    for cut in wanted.cuts:
        until = _log_offset(cut)
        of_batch = [
            (path, Taken(modified_ms, number))
            for number, modified_ms, path in files
            if read < number <= until and unread.get(path) != number and _is_read(found_location(path), source)
        ]
        for rows in _in_order(of_batch, source, schemas[cut.batch_id]):
            yield cut.batch_id, rows
        read = until


def _log_offset(cut: Cut) -> int:
    return int(json.loads(cut.end)["logOffset"])


def _is_read(path: Path, source: FileSource) -> bool:
    """Return whether a file that Spark lists as taken has been read."""
    if path == source.folder:
        return True
    folders = path.relative_to(source.folder).parts[:-1] if path.is_relative_to(source.folder) else ()
    return not folders or (source.subfolders and not any(map(is_hidden, folders)))


def _in_order(files: Iterable[tuple[str, Taken]], source: FileSource, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files of a batch, in the order of arrival."""
    by_time = sorted(files, key=lambda file: (file[1].modified_ms, file[0]))
    pieces = (rows for path, taken in by_time for rows in _rows(found_location(path), taken, source, schema))
    if source.arrival is None:
        yield from pieces
        return
    table = pa.Table.from_batches(list(pieces))
    if len(table):
        ordered = table.sort_by([(name, "ascending") for name in (SOURCE_ORDER, SOURCE, POSITION)])
        yield from ordered.combine_chunks().to_batches(max_chunksize=MOST_ROWS)


def _rows(path: Path, taken: Taken, source: FileSource, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file, as the job has read them.

    Raises:
        BucketsError: it is gone, or has changed since.
    """
    if not path.exists():
        message = f"events {path}: was read by the job and is gone; put it back, so that it can be archived"
        raise BucketsError(message)
    if modified_ms(path) != taken.modified_ms:
        message = f"events {path}: has changed since the job read it; put the file back as it was, with its time"
        raise BucketsError(message)
    if not path.stat().st_size:  # Spark passes over it, whatever its format
        return iter(())
    readable = without_made_id(schema)
    if source.file_format == "parquet":
        rows = read_arrivals(path, taken.modified_ms, readable, source.arrival)
    elif schema.records is not None:
        rows = record_arrivals(path, taken.modified_ms, readable)
    else:
        rows = line_reader(source.file_format, readable, None)(_lines(path, taken.modified_ms))
    return with_made_ids(rows, schema, source.folder)


def _lines(path: Path, modified_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a text file, which may be compressed.

    Raises:
        BucketsError: the file is damaged.
    """
    with open_text(path, "put the file back as the job has read it") as file:
        while lines := [line.removesuffix(b"\n") for line in islice(file, MOST_ROWS)]:
            order = pa.repeat(pa.scalar(modified_ms, pa.int64()), len(lines))
            source = pa.repeat(pa.scalar(str(path)), len(lines))
            yield pa.record_batch({RAW: pa.array(lines, pa.binary()), SOURCE: source, SOURCE_ORDER: order})
