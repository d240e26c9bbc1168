"""Text files as a stream of arrivals.

Spark reads lines of bytes, a whole file in one task; what they say is read in Python, JSON and CSV alike.
"""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from buckets.config.settings import SourceSettings
from buckets.events.arrivals import RAW, SOURCE
from buckets.events.csv_events import read_events as csv_events
from buckets.events.json_events import read_events as json_events
from buckets.events.schema import EventSchema
from buckets.events.source_files import plain_path
from buckets.events.text_lines import text_lines
from buckets.spark.arrival_stream import ArrivalStream, Normalise
from buckets.spark.file_stream import file_columns, file_reader, of_source


def open_text(spark: SparkSession, source: SourceSettings, schema: EventSchema) -> ArrivalStream:
    """A folder of JSON lines or CSV files as a stream."""
    reader = file_reader(spark, source.max_files_per_trigger)
    # By default Spark would also end a line at a lone carriage return, which JSON takes for white space.
    text = reader.option("lineSep", "\n").text(source.path).where(of_source(source))
    lines = text.select(F.col("value").cast("binary").alias(RAW), *file_columns())
    lines = lines.coalesce(spark.sparkContext.defaultParallelism)
    read = text_reader(source.kind, schema, header=None)
    return ArrivalStream(lines, lambda batches: read(map(_with_paths, batches)))


def text_reader(kind: str, schema: EventSchema, header: list[str] | None) -> Normalise:
    """What reads lines of text: columns `raw` (bytes), `source`, `source_order`, and `position` where it is known.

    Args:
        kind: json or csv.
        schema: the event schema.
        header: the fields of CSV lines, where the header line is not among them.
    """
    if kind == "csv":
        return lambda batches: csv_events(text_lines(batches), schema, header)
    return lambda batches: (json_events(rows, schema) for rows in text_lines(batches))


def _with_paths(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with file addresses as plain paths."""
    source = rows.column(SOURCE).dictionary_encode()
    paths = [plain_path(name) if name.startswith("file:") else name for name in source.dictionary.to_pylist()]
    plain = pa.array(paths, pa.string()).take(source.indices)
    return rows.set_column(rows.schema.get_field_index(SOURCE), SOURCE, plain)
