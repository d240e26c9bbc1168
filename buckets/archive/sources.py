"""What a job has read, read once more: the arrivals of each batch, by where the stream was cut.

How many events a file, a folder of files or a Delta table has, about, without reading them.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from buckets.archive.delta_source import delta_arrivals
from buckets.archive.topic_source import lost_messages, topic_arrivals
from buckets.checkpoint.basis import Terms
from buckets.checkpoint.cuts import Cut
from buckets.checkpoint.record_files import UnreadFiles
from buckets.checkpoint.source_offsets import spark_folder
from buckets.config.job import Job
from buckets.config.source import DeltaSource, FileSource, KafkaSource
from buckets.delta.whole_table import is_table, open_table
from buckets.errors import BucketsError
from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.json_records import record_arrivals
from buckets.events.message_fields import with_made_ids, without_made_id
from buckets.events.parquet_rows import MOST_ROWS, read_arrivals
from buckets.events.schema import EventSchema
from buckets.events.source_files import COMPRESSED, is_hidden, line_reader, modified_ms, open_text, readable_files
from buckets.monitor.words import Taken, TakenFiles
from buckets.stores.location import as_input, found_location

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


_LOOKED_AT = 8
_SAMPLE_BYTES = 1 << 16
_BYTES_A_ROW = 100  # Of a text whose lines are longer than a sample, as of one that is a single array


def rows_about(path: Path) -> int:
    """Return about how many events there are; 0 where nothing can be read, which whoever reads them then says.

    A Delta table counts its rows in its log, and so does a file of Parquet in its footer. Of text the first lines are
    looked at, and of many files the largest ones.

    Args:
        path: what `open_events` opens.
    """
    try:
        path = found_location(str(path))
        if is_table(path):
            return int(open_table(path).count())
        sizes = {file: file.stat().st_size for file in readable_files(path, subfolders=False)}
        largest = sorted(sizes, key=lambda file: sizes[file])[-_LOOKED_AT:]
        looked_at = sum(sizes[file] for file in largest)
        return round(
            sum(_row_estimate_rows(file, sizes[file]) for file in largest) * sum(sizes.values()) / max(looked_at, 1)
        )
    except (BucketsError, OSError, pa.ArrowException):
        return 0


def _row_estimate_rows(file: Path, size_bytes: int) -> float:
    """Return about how many rows a file has."""
    if file.suffix.lower() == ".parquet":
        return float(pq.read_metadata(as_input(file)).num_rows)
    with file.open("rb") as opened:
        sample = opened.read(_SAMPLE_BYTES)
    text = _plain(file, sample)
    lines = text.count(b"\n") or len(text) / _BYTES_A_ROW
    return lines * size_bytes / max(len(sample), 1)


def _plain(file: Path, sample: bytes) -> bytes:
    """Return what the beginning of a file holds, up to where it is cut off if it is compressed."""
    codec = COMPRESSED.get(file.suffix.lower())
    if codec is None:
        return sample
    parts: list[bytes] = []
    with (
        contextlib.suppress(OSError, pa.ArrowException),
        pa.CompressedInputStream(pa.BufferReader(sample), codec) as stream,
    ):
        while part := stream.read(_BYTES_A_ROW):
            parts.append(part)
    return b"".join(parts)
