"""Sources: topics, files and Delta tables as streams of arrivals, in the form that `buckets.arrivals` describes.

Text files are read as lines of bytes, a whole file by one task; what they say is read in Python, JSON and CSV alike.
Parquet and Delta come with typed columns, and with row numbers or a column that orders them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from buckets.arrivals import BROKEN, INGESTED, POSITION, RAW, SOURCE, SOURCE_ORDER, check_columns, field_column
from buckets.csv_events import read_events as csv_events
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.job import SourceSettings
from buckets.json_events import read_events as json_events
from buckets.kafka.settings import KafkaSettings
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
        BucketsError: columns are missing, or there is nothing yet from which a schema could be read.
    """
    if source.kind == "kafka":
        assert kafka is not None
        return _open_topic(spark, source, kafka, schema)
    if source.kind in ("json", "csv"):
        return _open_text(spark, source, schema)
    reader = spark.readStream.option("maxFilesPerTrigger", source.max_files_per_trigger)
    if source.kind == "delta":
        frame = reader.format("delta").load(source.path)
    else:
        frame = reader.schema(_parquet_schema(spark, source.path)).parquet(source.path)
    check_columns(frame.columns, schema, needed | ({source.arrival} if source.arrival else set()), source.path)
    return Arrivals(_typed(frame, schema, source.arrival), _as_it_is)


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


def _parquet_schema(spark: SparkSession, path: str) -> StructType:
    files = sorted(Path(path).rglob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files:
        message = f"events {path}: no .parquet file yet, from which the columns could be read; put one there first"
        raise BucketsError(message)
    return spark.read.parquet(str(files[0])).schema


def _file_place() -> list[Column]:
    return [
        F.col("_metadata.file_path").alias(SOURCE),
        F.unix_millis("_metadata.file_modification_time").alias(SOURCE_ORDER),
    ]


def _typed(frame: DataFrame, schema: EventSchema, arrival: str | None) -> DataFrame:
    """Columns of a Parquet or Delta stream; the position is the named column, or the row's number from 1."""
    if arrival is None:
        place = [*_file_place(), (F.col("_metadata.row_index") + 1).alias(POSITION), F.lit(None).cast("string")]
    else:
        column = F.col(f"`{arrival}`")
        if isinstance(frame.schema[arrival].dataType, TimestampType):
            column = F.unix_micros(column)
        order = column.cast("long")
        missing = F.when(order.isNull(), F.lit(f"{arrival}: is missing or null, and gives the arrival order"))
        place = [F.lit("").alias(SOURCE), F.lit(0).cast("long").alias(SOURCE_ORDER)]
        place += [F.coalesce(order, F.lit(0).cast("long")).alias(POSITION), missing]
    place[-1] = place[-1].alias(BROKEN)
    return frame.select(*place, *typed_fields(frame, schema))


def typed_fields(frame: DataFrame, schema: EventSchema) -> list[Column]:
    """The declared fields of typed columns; null where there is no such column."""
    there = set(frame.columns)
    return _fields(schema, lambda name: F.col(f"`{name}`") if name in there else F.lit(None).cast("string"))


def _fields(schema: EventSchema, column: Callable[[str], Column]) -> list[Column]:
    return [column(name).alias(field_column(index)) for index, name in enumerate(schema.field_names)]


def _open_text(spark: SparkSession, source: SourceSettings, schema: EventSchema) -> Arrivals:
    reader = spark.readStream.option("maxFilesPerTrigger", source.max_files_per_trigger)
    # Left alone, Spark would also end a line at a lone carriage return, which to JSON is white space.
    text = reader.option("lineSep", "\n").text(source.path)
    lines = text.select(F.col("value").cast("binary").alias(RAW), *_file_place())
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


def _as_it_is(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        yield _with_paths(rows)


def _with_paths(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with file addresses as plain paths."""
    source = rows.column(SOURCE).dictionary_encode()
    paths = [
        unquote(urlsplit(name).path) if name.startswith("file:") else name for name in source.dictionary.to_pylist()
    ]
    plain = pa.array(paths, pa.string()).take(source.indices)
    return rows.set_column(rows.schema.get_field_index(SOURCE), SOURCE, plain)
