"""The source that a configuration names, as a stream of arrivals; each way of reading has a module of its own."""

from pyspark.sql import SparkSession

from buckets.checkpoint.topic_generations import TopicGenerations
from buckets.config.job import Job
from buckets.config.source import DeltaSource, KafkaSource, ParquetSource, TextSource
from buckets.spark.arrival_stream import ArrivalStream, open_delta, open_parquet, open_text
from buckets.spark.kafka_source import open_topics, topic_values


def open_source(spark: SparkSession, job: Job) -> ArrivalStream:
    """Open the source of a job.

    Raises:
        BucketsError: the id or the time of events has no column.
    """
    schema = job.event_schema
    match job.settings.source:
        case KafkaSource() as source:
            assert job.settings.kafka is not None
            numbers = TopicGenerations(job.checkpoint).numbers(source.all_topics)
            values = topic_values(source, job.checkpoint, job.settings.kafka.registry)
            return open_topics(spark, source, job.settings.kafka, values, schema, numbers)
        case DeltaSource() as source:
            return open_delta(spark, source, schema)
        case ParquetSource() as source:
            return open_parquet(spark, source, schema)
        case TextSource() as source:
            return open_text(spark, source, schema)
        case source:
            raise NotImplementedError(source.kind)
