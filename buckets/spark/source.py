"""Sources: topics, files and Delta tables as streams of arrivals, in the form that `buckets.arrivals` describes.

Text files are read as lines of bytes, a whole file by one task; what they say is read in Python, JSON and CSV alike.
Parquet and Delta, which have typed columns, are in `file_source`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from buckets.arrivals import INGESTED, POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.csv_events import read_events as csv_events
from buckets.event_schema import EventSchema
from buckets.job import SourceSettings
from buckets.json_events import read_events as json_events
from buckets.kafka.settings import KafkaSettings
from buckets.source_files import plain_path
from buckets.spark.file_source import file_place, file_reader, of_source, open_delta, open_parquet_files
from buckets.text_lines import as_text, text_lines

Normalise = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Arrivals:
    """A stream of rows, and what brings its Arrow batches into the form of `buckets.arrivals`."""

    frame: DataFrame
    normalise: Normalise


def open_source(
    spark: SparkSession,
    source: SourceSettings,
    schema: EventSchema,
    needed: frozenset[str],
    kafka: KafkaSettings | None = None,
) -> Arrivals:
    """Open the stream that a configuration names.

    Args:
        spark: the session.
        source: where events come from.
        schema: the event schema.
        needed: fields that rules use.
        kafka: how Kafka is reached, for a topic.

    Raises:
        BucketsError: columns are missing.
    """
    if source.kind == "kafka":
        assert kafka is not None
        return _open_topic(spark, source, kafka, schema)
    if source.kind in ("json", "csv"):
        return _open_text(spark, source, schema)
    if source.kind == "delta":
        return Arrivals(*open_delta(spark, source, schema, needed))
    return Arrivals(*open_parquet_files(spark, source, schema, needed))


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """How Spark's own Kafka client is set up.

    By its defaults Spark notices only after minutes that no broker answers; what it says then is waited out by us.
    """
    reached = {f"kafka.{name}": value for name, value in kafka.java().items()}
    return reached | {
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "10000",
        "fetchOffset.numRetries": "1",
        "kafkaConsumer.pollTimeoutMs": "20000",
        # What a batch reads is there already; a fetch that was begun at the end must not hold up the next one.
        "kafka.fetch.max.wait.ms": "10",
    }


def _open_topic(spark: SparkSession, source: SourceSettings, kafka: KafkaSettings, schema: EventSchema) -> Arrivals:
    """Messages in the order of partition and offset; a value is one JSON object."""
    reader = spark.readStream.format("kafka").options(**kafka_options(kafka)).option("subscribe", source.topic)
    reader = reader.option("startingOffsets", source.starting_offsets)
    reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
    messages = reader.load().select(
        F.coalesce(F.col("value"), F.lit(b"")).alias(RAW),
        F.format_string(f"{source.topic}[%d]", "partition").alias(SOURCE),
        F.col("partition").cast("long").alias(SOURCE_ORDER),
        F.col("offset").alias(POSITION),
        F.unix_millis("timestamp").alias(INGESTED),
    )
    return Arrivals(messages, lambda batches: (json_events(as_text(rows), schema) for rows in batches))


def _open_text(spark: SparkSession, source: SourceSettings, schema: EventSchema) -> Arrivals:
    reader = file_reader(spark, source.max_files_per_trigger)
    # Left alone, Spark would also end a line at a lone carriage return, which to JSON is white space.
    text = reader.option("lineSep", "\n").text(source.path).where(of_source(source))
    lines = text.select(F.col("value").cast("binary").alias(RAW), *file_place())
    lines = lines.coalesce(spark.sparkContext.defaultParallelism)
    read = text_reader(source.kind, schema, header=None)
    return Arrivals(lines, lambda batches: read(map(_with_paths, batches)))


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
