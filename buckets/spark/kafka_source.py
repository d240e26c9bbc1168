"""A topic as a stream of arrivals."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from buckets.checkpoint.topic_generations import generation_name
from buckets.checkpoint.topic_values import TopicValues
from buckets.config.kafka import KafkaSettings, RegistrySettings
from buckets.config.source import KafkaSource, TopicSelection
from buckets.events.arrivals import INGESTED, POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.message_fields import HEADERS, STAMPED, columns_beside_value
from buckets.events.schema import KEY, EventSchema
from buckets.kafka.registry import Registry
from buckets.spark.arrival_stream import ArrivalStream
from buckets.spark.batch_properties import batch_of_task, terms_of_task


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return how Spark's own Kafka client is set up.

    By its defaults Spark notices only after minutes that no broker answers; we wait out what it reports then.
    """
    reached = {f"kafka.{name}": value for name, value in kafka.java().items()}
    return reached | {
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "10000",
        "fetchOffset.numRetries": "1",
        "kafkaConsumer.pollTimeoutMs": "20000",
        # What a batch reads is there already; a fetch that was begun at the end must not hold up the next one.
        "kafka.fetch.max.wait.ms": "10",
        "kafka.isolation.level": kafka.isolation,
    }


_BESIDE_VALUE = {KEY: "key", HEADERS: "headers", STAMPED: "timestampType"}
"""The columns of Spark that have what lies beside the value of a message."""


def topic_values(source: KafkaSource, checkpoint: Path, registry: RegistrySettings | None) -> TopicValues:
    """Return what reads the values of a topic in the tasks, which ask the registry for schemas that are not known yet.

    Args:
        source: the topic.
        checkpoint: of the job.
        registry: how it is reached; None where values need none.
    """
    return TopicValues(source, checkpoint, None if registry is None else Registry(registry).schema)


def _names(generations: Mapping[str, int]) -> Column:
    """Return what the generation of the topic of a message is called; of one that is not known it is the first."""
    named = {topic: generation_name(topic, number) for topic, number in generations.items() if number > 1}
    names = F.create_map(*(F.lit(text) for pair in named.items() for text in pair)) if named else None
    return F.col("topic") if names is None else F.coalesce(names[F.col("topic")], F.col("topic"))


def subscription(topics: TopicSelection) -> dict[str, str]:
    """Return how Spark is told which topics it reads."""
    if topics.pattern is None:
        return {"subscribe": ",".join(topics.names)}
    return {"subscribePattern": topics.expression}


def open_topics(
    spark: SparkSession,
    source: KafkaSource,
    kafka: KafkaSettings,
    values: TopicValues,
    schema: EventSchema,
    generations: Mapping[str, int],
) -> ArrivalStream:
    """Open topics: messages in the order of partition, topic and offset; a value is one event.

    Args:
        spark: the session.
        source: the topic, and how it is read.
        kafka: how Kafka is reached.
        values: what reads its values.
        schema: what an event is.
        generations: by topic, the number of its generation, from 1; left out of topics that are not known yet.
    """
    reader = spark.readStream.format("kafka").options(**kafka_options(kafka))
    reader = reader.options(**subscription(source.selection))
    reader = reader.option("startingOffsets", source.starting_offsets)
    reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)

    def columns(schema: EventSchema) -> list[str]:
        return columns_beside_value(schema, source.envelope)

    beside = columns(schema)
    reader = reader.option("includeHeaders", HEADERS in beside)
    messages = reader.load().select(
        F.col("value").alias(RAW),
        F.format_string("%s[%d]", _names(generations), "partition").alias(SOURCE),
        F.col("partition").cast("long").alias(SOURCE_ORDER),
        F.col("offset").alias(POSITION),
        F.unix_millis("timestamp").alias(INGESTED),
        *(F.col(_BESIDE_VALUE[name]).alias(name) for name in beside),
    )

    def normalise(batches: Iterable[pa.RecordBatch], schema: EventSchema) -> Iterator[pa.RecordBatch]:
        batch_id, terms = batch_of_task(), terms_of_task()
        return (values.read(rows, schema, batch_id, terms) for rows in batches)

    return ArrivalStream(messages, normalise, columns, schema)
