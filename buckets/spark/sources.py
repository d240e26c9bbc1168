"""Every source as a stream of arrivals: rows of Spark, and the code that reads them in Python."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from buckets.checkpoint.topic_generations import TopicGenerations, generation_name
from buckets.config.source import DeltaSource, FileSource, KafkaSource, ParquetSource, TextSource, TopicSelection
from buckets.errors import BucketsError
from buckets.events.arrivals import (
    INGESTED,
    POSITION,
    RAW,
    SOURCE,
    SOURCE_ORDER,
    MissingColumn,
    check_columns,
)
from buckets.events.field_paths import reachable
from buckets.events.json_records import record_arrivals
from buckets.events.message_fields import HEADERS, STAMPED, as_declared, columns_beside_value, schema_to_read
from buckets.events.parquet_rows import check_parquet, read_arrivals
from buckets.events.schema import KEY, EventSchema
from buckets.events.source_files import line_reader, plain_path, readable_files
from buckets.spark.arrow_types import to_arrow_schema
from buckets.spark.batch_properties import terms_of_task
from buckets.spark.frame_rows import Arrange, by_number, column_at, order_number, travelling
from buckets.spark.session_folder import check_delta, check_kafka
from buckets.stores.location import found_location
from buckets.stores.store_path import StorePath

if TYPE_CHECKING:  # Workers that read files need no Kafka modules.
    from buckets.config.job import Job
    from buckets.config.kafka import KafkaSettings
    from buckets.events.messages import TopicMessages

_PATH = "_metadata.file_path"


def file_reader(spark: SparkSession, most_files: int) -> DataStreamReader:
    """Return a reader that takes each file in and below its folder once, however old it is."""
    return (
        spark.readStream.option("maxFilesPerTrigger", most_files)
        # By default Spark silently skips a file that is a week older than the newest one.
        .option("maxFileAge", "10000000d")
        # Otherwise a folder called `day=1` would turn the whole into a partitioned table, without the other files.
        .option("recursiveFileLookup", True)
        .option("pathGlobFilter", "[!_.]*")
    )


def of_source(source: FileSource) -> Column:
    """Return whether a row's file is read, judged by its path; Spark lists others as taken without opening them."""
    folder = source.folder
    in_store = isinstance(folder, StorePath)
    depth = len((folder if in_store else Path(os.path.normpath(folder))).parts) - 1
    below = "([^_./][^/]*/)*" if source.subfolders else ""
    return F.col(_PATH).rlike(f"^{folder.parts[0] if in_store else 'file:'}/*([^/]+/){{0,{depth}}}{below}[^/]+$")


def file_columns(folder: Path) -> list[Column]:
    """Return the columns for a row's file and for the order of files, as in `modified_ms`."""
    modified_ms = F.unix_millis("_metadata.file_modification_time")
    if isinstance(folder, StorePath):
        modified_ms -= modified_ms % 1000
    return [F.col(_PATH).alias(SOURCE), modified_ms.alias(SOURCE_ORDER)]


RecordBatches = Iterator[pa.RecordBatch]
Normalise = Callable[[Iterable[pa.RecordBatch], EventSchema], RecordBatches]


@dataclass(frozen=True)
class ArrivalStream:
    """A stream of rows."""

    frame: DataFrame  # the rows, in the columns of its source
    # converts Arrow batches of them to `buckets.events.arrivals`, in the tasks, given the event schema of
    # the batch
    normalise: Normalise
    # whether the rows have what an event schema needs; otherwise the stream must be reopened
    has_all_of: Callable[[EventSchema], bool] = lambda schema: True


ReadFile = Callable[[Path, int, EventSchema], RecordBatches]
_FILE = "path string, modificationTime timestamp, length bigint, content binary"
"""Spark's columns for a file. Nothing selects `content`, so Spark does not read it."""
_FILES_LOOKED_AT = 20


def open_parquet(spark: SparkSession, source: ParquetSource, schema: EventSchema) -> ArrivalStream:
    """Open a folder of Parquet files as a stream."""
    _check_some(source, schema)
    return open_files(spark, source, lambda path, ms, schema: read_arrivals(path, ms, schema, source.arrival))


def open_files(spark: SparkSession, source: FileSource, read: ReadFile) -> ArrivalStream:
    """Open a folder as a stream of files, each read in Python with the schema found in it."""

    def declared(path: Path, modified_ms: int, schema: EventSchema) -> RecordBatches:
        return as_declared(read(path, modified_ms, schema_to_read(schema)), schema, source.folder)

    files = list_files(file_reader(spark, source.max_files_per_trigger), source.path)
    return read_files(files.where(of_source(source)).select(*file_columns(source.folder)), declared)


def _check_some(source: ParquetSource, schema: EventSchema) -> None:
    """Check that one of the first files has id and time; files written before a column was added lack it."""
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
    """Return a stream of a folder's files, without opening them."""
    return reader.schema(_FILE).format("binaryFile").load(path)


def read_files(files: DataFrame, read: ReadFile) -> ArrivalStream:
    """Return a stream of rows from files given by `file_columns`, read in Python."""

    def rows(batches: Iterable[pa.RecordBatch], schema: EventSchema) -> RecordBatches:
        for batch in batches:
            for file in batch.to_pylist():
                yield from read(found_location(plain_path(file[SOURCE])), file[SOURCE_ORDER], schema)

    return ArrivalStream(files.coalesce(files.sparkSession.sparkContext.defaultParallelism), rows)


def open_text(spark: SparkSession, source: TextSource, schema: EventSchema) -> ArrivalStream:
    """Open a folder of JSON or CSV files as a stream."""
    if schema.records is not None:
        return open_files(spark, source, record_arrivals)
    reader = file_reader(spark, source.max_files_per_trigger)
    # By default Spark would also end a line at a lone carriage return, which is white space in JSON.
    text = reader.option("lineSep", "\n").text(source.path).where(of_source(source))
    lines = text.select(F.col("value").cast("binary").alias(RAW), *file_columns(source.folder))
    lines = lines.coalesce(spark.sparkContext.defaultParallelism)
    kind = source.file_format

    def read(batches: Iterable[pa.RecordBatch], schema: EventSchema) -> RecordBatches:
        rows = line_reader(kind, schema_to_read(schema), header=None)(map(_with_paths, batches))
        return as_declared(rows, schema, source.folder)

    return ArrivalStream(lines, read)


def _with_paths(rows: pa.RecordBatch) -> pa.RecordBatch:
    source = rows.column(SOURCE).dictionary_encode()
    plain = pa.array(map(plain_path, source.dictionary.to_pylist()), pa.string()).take(source.indices)
    return rows.set_column(rows.schema.get_field_index(SOURCE), SOURCE, plain)


def open_delta(spark: SparkSession, source: DeltaSource, schema: EventSchema) -> ArrivalStream:
    """Open a Delta table as a stream, ordered by a column."""
    assert source.arrival is not None
    check_delta(f"events {source.path}")
    reader = spark.readStream.option("maxFilesPerTrigger", source.max_files_per_trigger)
    frame = reader.format("delta").load(source.path)
    there = reachable([*schema_to_read(schema).field_names, source.arrival], to_arrow_schema(frame.schema))
    check_columns(there, schema, source.path, source.arrival)
    column = column_at(source.arrival, frame)
    kind = frame.select(column.alias(source.arrival)).schema[0].dataType
    order = order_number(column, kind)
    if order is None:
        message = (
            f"events {source.path}: column {source.arrival!r} is of type {kind.simpleString()} and cannot be "
            "source.arrival; name a column of whole numbers, dates or timestamps"
        )
        raise BucketsError(message)
    return open_frame(frame, [order], schema, by_number, source.arrival)


def open_frame(
    frame: DataFrame, order: Sequence[Column], schema: EventSchema, arrange: Arrange, what: str, has_rows: bool = False
) -> ArrivalStream:
    """Open the rows of a stream in the order of some columns; `what` names it, and `has_rows` adds whole rows."""
    rows, pick = travelling(frame, order, schema, arrange, what, has_rows)
    there = frozenset(schema_to_read(schema).field_names)
    return ArrivalStream(rows, pick, lambda wanted: there.issuperset(schema_to_read(wanted).field_names))


def kafka_options(kafka: "KafkaSettings") -> dict[str, str]:
    """Return the settings of Spark's own Kafka client.

    With its defaults Spark notices only after minutes that no broker answers; we retry after its reports.
    """
    reached = {f"kafka.{name}": value for name, value in kafka.java().items()}
    return reached | {
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "10000",
        "fetchOffset.numRetries": "1",
        "kafkaConsumer.pollTimeoutMs": "20000",
        # A batch reads only existing messages; a fetch started at the end must not delay the next one.
        "kafka.fetch.max.wait.ms": "10",
        "kafka.isolation.level": kafka.isolation,
    }


_BESIDE_VALUE = {KEY: "key", HEADERS: "headers", STAMPED: "timestampType"}
"""Spark's columns for what a message carries besides its value."""


def topic_reader(spark: SparkSession, topics: TopicSelection, kafka: "KafkaSettings") -> DataStreamReader:
    """Return a reader of topics."""
    check_kafka(f"topics at {kafka.bootstrap_servers}")
    reader = spark.readStream.format("kafka").options(**kafka_options(kafka))
    if topics.pattern is None:
        return reader.option("subscribe", ",".join(topics.names))
    return reader.option("subscribePattern", topics.expression)


def open_topics(
    spark: SparkSession,
    source: KafkaSource,
    kafka: "KafkaSettings",
    messages: "TopicMessages",
    schema: EventSchema,
    generations: Mapping[str, int],
) -> ArrivalStream:
    """Open topics: messages ordered by partition, topic and offset, one event per value.

    `messages` reads them in the tasks; `generations` numbers the generations of known topics, from 1.
    """
    reader = topic_reader(spark, source.selection, kafka)
    reader = reader.option("startingOffsets", source.starting_offsets)
    reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)

    beside = columns_beside_value(schema)
    reader = reader.option("includeHeaders", HEADERS in beside)
    named = {topic: generation_name(topic, number) for topic, number in generations.items() if number > 1}
    names = F.create_map(*(F.lit(text) for pair in named.items() for text in pair)) if named else None
    topic = F.col("topic") if names is None else F.coalesce(names[F.col("topic")], F.col("topic"))
    rows = reader.load().select(
        F.col("value").alias(RAW),
        F.format_string("%s[%d]", topic, "partition").alias(SOURCE),
        F.col("partition").cast("long").alias(SOURCE_ORDER),
        F.col("offset").alias(POSITION),
        F.unix_millis("timestamp").alias(INGESTED),
        *(F.col(_BESIDE_VALUE[name]).alias(name) for name in beside),
    )

    def normalise(batches: Iterable[pa.RecordBatch], schema: EventSchema) -> Iterator[pa.RecordBatch]:
        terms = terms_of_task()
        return (messages.read(rows, schema, terms) for rows in batches)

    return ArrivalStream(rows, normalise, lambda wanted: set(columns_beside_value(wanted)) <= set(beside))


def open_source(spark: SparkSession, job: "Job") -> ArrivalStream:
    """Open the source of a job."""
    schema = job.event_schema
    match job.settings.source:
        case KafkaSource() as source:
            from buckets.checkpoint.writer_schemas import RegisteredSchemas
            from buckets.events.messages import TopicMessages
            from buckets.kafka.registry import Registry

            assert job.settings.kafka is not None
            numbers = TopicGenerations(job.checkpoint).numbers(source.all_topics)
            registry = job.settings.kafka.registry
            ask = None if registry is None else Registry(registry).schema
            messages = TopicMessages(
                source.format, source.envelope, source.decimals, RegisteredSchemas(job.checkpoint, ask)
            )
            return open_topics(spark, source, job.settings.kafka, messages, schema, numbers)
        case DeltaSource() as source:
            return open_delta(spark, source, schema)
        case ParquetSource() as source:
            return open_parquet(spark, source, schema)
        case TextSource() as source:
            return open_text(spark, source, schema)
        case source:
            raise NotImplementedError(source.kind)
