"""The source that a configuration names, as a stream of arrivals; each format has a module of its own."""

from pyspark.sql import SparkSession

from buckets.checkpoint.topic_generations import TopicGenerations
from buckets.config.job import Job
from buckets.rules.rule_set import first_rule_set
from buckets.spark.arrival_stream import ArrivalStream
from buckets.spark.delta_source import open_delta
from buckets.spark.kafka_source import open_topic
from buckets.spark.parquet_source import open_parquet
from buckets.spark.text_source import open_text


def open_source(spark: SparkSession, job: Job) -> ArrivalStream:
    """Open the source of a job.

    Raises:
        BucketsError: columns are missing that the event schema or a rule needs.
    """
    source, schema = job.settings.source, job.event_schema
    needed = first_rule_set(job.rules).named_fields
    match source.kind:
        case "kafka":
            assert job.settings.kafka is not None
            assert source.topic is not None
            generation = max(1, len(TopicGenerations(job.checkpoint).of(source.topic)))
            return open_topic(spark, source, job.settings.kafka, schema, generation)
        case "delta":
            return open_delta(spark, source, schema, needed)
        case "parquet":
            return open_parquet(spark, source, schema, needed)
        case "json" | "csv":
            return open_text(spark, source, schema)
