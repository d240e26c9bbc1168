"""Text files as a stream of arrivals.

Spark reads lines of bytes, a whole file in one task; what they say is read in Python, JSON and CSV alike. Of files of
JSON records it only lists which there are.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from buckets.config.source import TextSource
from buckets.events.arrivals import RAW, SOURCE
from buckets.events.json_records import record_arrivals
from buckets.events.line_reader import line_reader
from buckets.events.made_ids import with_made_ids
from buckets.events.message_fields import without_made_id
from buckets.events.schema import EventSchema
from buckets.events.source_files import plain_path
from buckets.spark.arrival_stream import ArrivalStream, RecordBatches
from buckets.spark.file_stream import file_columns, file_reader, of_source
from buckets.spark.parquet_source import open_files


def open_text(spark: SparkSession, source: TextSource, schema: EventSchema) -> ArrivalStream:
    """Open a folder of JSON or CSV files as a stream."""
    if schema.records is not None:
        return open_files(spark, source, lambda path, modified_ms, schema: _records(path, modified_ms, schema, source))
    reader = file_reader(spark, source.max_files_per_trigger)
    # By default Spark would also end a line at a lone carriage return, which JSON takes for white space.
    text = reader.option("lineSep", "\n").text(source.path).where(of_source(source))
    lines = text.select(F.col("value").cast("binary").alias(RAW), *file_columns(source.folder))
    lines = lines.coalesce(spark.sparkContext.defaultParallelism)
    kind = source.file_format

    def read(batches: Iterable[pa.RecordBatch], schema: EventSchema) -> RecordBatches:
        rows = line_reader(kind, without_made_id(schema), header=None)(map(_with_paths, batches))
        return with_made_ids(rows, schema, source.folder)

    return ArrivalStream(lines, read)


def _records(path: Path, modified_ms: int, schema: EventSchema, source: TextSource) -> RecordBatches:
    return with_made_ids(record_arrivals(path, modified_ms, without_made_id(schema)), schema, source.folder)


def _with_paths(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with file addresses as plain paths."""
    source = rows.column(SOURCE).dictionary_encode()
    plain = pa.array(map(plain_path, source.dictionary.to_pylist()), pa.string()).take(source.indices)
    return rows.set_column(rows.schema.get_field_index(SOURCE), SOURCE, plain)
