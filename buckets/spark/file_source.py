"""Files and Delta tables as streams: which files are read and in which order, and their typed columns as arrivals.

Spark lists files and remembers those it has taken; rows of Parquet files are read in Python, by each file's own schema.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import (
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from buckets.arrivals import BROKEN, POSITION, SOURCE, SOURCE_ORDER, check_columns, field_column
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.job import SourceSettings
from buckets.parquet_rows import check_parquet, read_arrivals
from buckets.source_files import plain_path, readable_files

Batches = Iterator[pa.RecordBatch]
ReadFile = Callable[[Path, int], Batches]
_FILE = "path string, modificationTime timestamp, length bigint, content binary"
"""What Spark knows of a file. Its content is never asked for, and so is not read."""
_PATH = "_metadata.file_path"
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_MOMENTS = (DateType, TimestampType, TimestampNTZType)


def file_reader(spark: SparkSession, most_files: int) -> DataStreamReader:
    """A reader of files that takes each file in and below its folder once, however old it is.

    Args:
        spark: the session.
        most_files: how many one micro-batch takes at the most.
    """
    return (
        spark.readStream.option("maxFilesPerTrigger", most_files)
        # By default a file that is a week older than the newest one is passed over, and nobody is told.
        .option("maxFileAge", "10000000d")
        # Otherwise a folder called `day=1` would make a partitioned table of all, without the files beside it.
        .option("recursiveFileLookup", True)
        .option("pathGlobFilter", "[!_.]*")
    )


def of_source(source: SourceSettings) -> Column:
    """Whether a row's file is read, by its path alone: Spark lists the others as taken, and opens none of them."""
    depth = len(Path(os.path.normpath(source.path)).parts) - 1
    below = "([^_./][^/]*/)*" if source.subfolders else ""
    return F.col(_PATH).rlike(f"^file:/*([^/]+/){{0,{depth}}}{below}[^/]+$")


def file_place() -> list[Column]:
    """Where a row of a file stands, and what orders files."""
    return [
        F.col(_PATH).alias(SOURCE),
        F.unix_millis("_metadata.file_modification_time").alias(SOURCE_ORDER),
    ]


def list_files(reader: DataStreamReader, path: str) -> DataFrame:
    """A stream of the files of a folder, of which nothing is read."""
    return reader.schema(_FILE).format("binaryFile").load(path)


def read_files(files: DataFrame, read: ReadFile) -> tuple[DataFrame, Callable[..., Batches]]:
    """A stream of files whose rows are read in Python.

    Args:
        files: as `list_files` makes them.
        read: reads one file, given its path and when it was modified, in ms since the epoch.

    Returns:
        The stream, a row for each file, and what makes its rows of them.
    """
    files = files.select(*file_place())

    def rows(batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            for file in batch.to_pylist():
                yield from read(Path(plain_path(file[SOURCE])), file[SOURCE_ORDER])

    return files.coalesce(files.sparkSession.sparkContext.defaultParallelism), rows


def open_parquet_files(
    spark: SparkSession, source: SourceSettings, schema: EventSchema, needed: frozenset[str]
) -> tuple[DataFrame, Callable[..., Batches]]:
    """A folder of Parquet files as a stream.

    Raises:
        BucketsError: the first file has not the columns that are needed.
    """
    first = min(readable_files(Path(source.path), source.subfolders), default=None)
    if first is not None:
        check_parquet(first, schema, needed, source.arrival)

    def read(path: Path, modified_ms: int) -> Batches:
        return read_arrivals(path, modified_ms, schema, source.arrival)

    files = list_files(file_reader(spark, source.max_files_per_trigger), source.path)
    return read_files(files.where(of_source(source)), read)


def open_delta(
    spark: SparkSession, source: SourceSettings, schema: EventSchema, needed: frozenset[str]
) -> tuple[DataFrame, Callable[..., Batches]]:
    """A Delta table as a stream, in the order of a column.

    Raises:
        BucketsError: a column is missing, or the arrival column has a type without an order.
    """
    assert source.arrival is not None
    reader = spark.readStream.option("maxFilesPerTrigger", source.max_files_per_trigger)
    frame = reader.format("delta").load(source.path)
    check_columns(frame.columns, schema, needed | {source.arrival}, source.path)
    there = set(frame.columns)
    fields = [
        (_column(name) if name in there else F.lit(None).cast("string")).alias(field_column(index))
        for index, name in enumerate(schema.field_names)
    ]
    order = _order(frame, source)
    missing = F.lit(f"{source.arrival}: is missing or null, and gives the arrival order")
    known = F.coalesce(order, F.lit(0).cast("long"))
    place = [F.lit("").alias(SOURCE), known.alias(SOURCE_ORDER), known.alias(POSITION)]
    return frame.select(*place, F.when(order.isNull(), missing).alias(BROKEN), *fields), iter


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _order(frame: DataFrame, source: SourceSettings) -> Column:
    """The arrival column as an integer; moments in microseconds."""
    assert source.arrival is not None
    kind, column = frame.schema[source.arrival].dataType, _column(source.arrival)
    if isinstance(kind, _MOMENTS):
        return F.unix_micros(column.cast(TimestampType()))
    if isinstance(kind, DecimalType) and kind.scale == 0:
        return column.try_cast("long")
    if not isinstance(kind, _INTEGERS):
        message = (
            f"events {source.path}: column {source.arrival!r} is of type {kind.simpleString()} and cannot be "
            "source.arrival; name a column of whole numbers, dates or timestamps"
        )
        raise BucketsError(message)
    return column.cast("long")
