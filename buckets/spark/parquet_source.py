"""Parquet files as a stream of arrivals.

Spark only lists the files and remembers those it has taken; their rows are read in Python, by each file's own schema.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from buckets.config.source import FileSource, ParquetSource
from buckets.events.arrivals import SOURCE, SOURCE_ORDER, MissingColumn
from buckets.events.made_ids import with_made_ids
from buckets.events.message_fields import without_made_id
from buckets.events.parquet_rows import check_parquet, read_arrivals
from buckets.events.schema import EventSchema
from buckets.events.source_files import plain_path, readable_files
from buckets.spark.arrival_stream import ArrivalStream, RecordBatches
from buckets.spark.file_stream import file_columns, file_reader, of_source
from buckets.stores.location import found_location

ReadFile = Callable[[Path, int, EventSchema], RecordBatches]
_FILE = "path string, modificationTime timestamp, length bigint, content binary"
"""What Spark knows of a file. Its content is never asked for, and so is not read."""
_FILES_LOOKED_AT = 20


def open_parquet(spark: SparkSession, source: ParquetSource, schema: EventSchema) -> ArrivalStream:
    """Open a folder of Parquet files as a stream.

    Raises:
        BucketsError: none of the first files has id and time.
    """
    _check_some(source, schema)

    def read(path: Path, modified_ms: int, schema: EventSchema) -> RecordBatches:
        rows = read_arrivals(path, modified_ms, without_made_id(schema), source.arrival)
        return with_made_ids(rows, schema, source.folder)

    return open_files(spark, source, read)


def open_files(spark: SparkSession, source: FileSource, read: ReadFile) -> ArrivalStream:
    """Open a folder of files as a stream, each of which is read in Python."""
    files = list_files(file_reader(spark, source.max_files_per_trigger), source.path)
    return read_files(files.where(of_source(source)).select(*file_columns(source.folder)), read)


def _check_some(source: ParquetSource, schema: EventSchema) -> None:
    """See that one of the first files has id and time, since those of before a column came lack it."""
    faults: list[MissingColumn] = []
    for path in sorted(readable_files(source.folder, source.subfolders))[:_FILES_LOOKED_AT]:
        try:
            check_parquet(path, schema, source.arrival)
        except MissingColumn as error:
            faults.append(error)
        else:
            return
    if faults:
        raise faults[0]


def list_files(reader: DataStreamReader, path: str) -> DataFrame:
    """Return a stream of the files of a folder, none of which is opened."""
    return reader.schema(_FILE).format("binaryFile").load(path)


def read_files(files: DataFrame, read: ReadFile) -> ArrivalStream:
    """Return a stream of files whose rows are read in Python.

    Args:
        files: the columns of `file_columns`; the stream has one row for each file.
        read: reads one file, given its path, when it was modified, in ms since the epoch, and the event schema.
    """

    def rows(batches: Iterable[pa.RecordBatch], schema: EventSchema) -> RecordBatches:
        for batch in batches:
            for file in batch.to_pylist():
                yield from read(found_location(plain_path(file[SOURCE])), file[SOURCE_ORDER], schema)

    return ArrivalStream(files.coalesce(files.sparkSession.sparkContext.defaultParallelism), rows)
