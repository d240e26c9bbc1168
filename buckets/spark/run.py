"""The main job: a configuration into a running query."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from buckets.errors import BucketsError
from buckets.feeds import open_feed
from buckets.hold import check_free
from buckets.job import Job
from buckets.kafka.faults import Broker, Outage
from buckets.kafka.settings import KafkaSettings
from buckets.ledger import Basis, Ledger
from buckets.owned_folder import OwnedFolder
from buckets.revision import Refusal
from buckets.rule_book import RuleBook
from buckets.rule_history import open_history
from buckets.rule_set import first_rule_set
from buckets.spark.delta_sink import DeltaSink
from buckets.spark.kafka_faults import explain_spark
from buckets.spark.kafka_sink import KafkaSink
from buckets.spark.query import BatchReport, Scoring, ScoringQuery, Sink
from buckets.spark.running import Patience
from buckets.spark.session import start_session
from buckets.spark.source import open_source


def check_output(folder: OwnedFolder, ledger: Ledger, identity: str | None) -> None:
    """See that an output folder is new and the checkpoint too, or that the two belong together.

    Raises:
        BucketsError: they do not, or the folder holds something else.
    """
    if not folder.is_of(identity) and identity is not None and ledger.has_run():
        message = (
            f"output.path {folder.path} does not hold the results so far of checkpoint {ledger.checkpoint}; "
            "go back to its output folder, or name a new checkpoint"
        )
        raise BucketsError(message)


def job_session(job: Job) -> SparkSession:
    """The Spark session of a job."""
    return start_session("buckets", job.settings.partitions or job.settings.engine.shards, job.settings.spark)


@dataclass(frozen=True)
class Prepared:
    """A checkpoint and an output folder that belong to a job.

    Attributes:
        identity: of the checkpoint.
        carried_over: settings that have changed since the last start, in words.
    """

    identity: str
    carried_over: str | None


def prepare(job: Job) -> Prepared:
    """Check checkpoint, output and topics of a job, and take checkpoint and output for it.

    Raises:
        BucketsError: one of them belongs to something else or is in use, or a topic is missing.
        Outage: Kafka does not answer.
    """
    settings = job.settings
    check_free(job.checkpoint)
    basis, ledger = Basis(settings.source.name, job.event_schema, settings.engine), Ledger(job.checkpoint)
    identity = ledger.identity(basis)
    output = OwnedFolder(Path(settings.output.path), "output.path") if settings.output.kind == "delta" else None
    if output is not None:
        check_output(output, ledger, identity)
    if settings.source.topic is not None and settings.kafka is not None:
        Broker(settings.kafka).check_topics([settings.source.topic])
    carried_over = ledger.carried_over(basis)
    identity = ledger.open(basis)
    if output is not None:
        output.take(identity)
    return Prepared(identity, carried_over)


def scoring_query(
    spark: SparkSession,
    job: Job,
    on_batch: Callable[[BatchReport], None],
    on_refused: Callable[[Sequence[Refusal]], None] = lambda refusals: None,
    on_outage: Callable[[Outage], None] = lambda outage: None,
    on_remark: Callable[[str], None] = lambda remark: None,
) -> ScoringQuery:
    """The query of a job, not yet started.

    Args:
        spark: the session.
        job: the job.
        on_batch: called after each batch.
        on_refused: called with changes of rules that are not made.
        on_outage: called when Kafka does not answer and is waited for.
        on_remark: called with a line when something beside the query goes wrong, or is well again: following the
            rules, keeping their history.

    Raises:
        BucketsError: checkpoint, output or source do not fit the job.
    """
    settings, schema = job.settings, job.event_schema
    identity = prepare(job).identity
    needed = first_rule_set(job.rules).needed_fields
    arrivals = open_source(spark, settings.source, schema, needed, settings.kafka)
    lateness_ms = settings.engine.allowed_lateness
    feed = open_feed(job, on_remark)
    history = open_history(job, identity, lambda fault: on_remark(fault.message))
    scoring = Scoring(
        arrivals=arrivals,
        schema=schema,
        engine=settings.engine,
        book=RuleBook(Ledger(job.checkpoint), feed, schema, lateness_ms, on_refused, history),
        sink=_sink(spark, job, identity),
        evaluations=settings.output.evaluations,
        checkpoint=job.checkpoint / "spark",
        single_stage=settings.partitions == 1,
        patience=_patience(settings.kafka, on_outage),
    )
    return ScoringQuery(scoring, on_batch)


def _patience(kafka: KafkaSettings | None, on_outage: Callable[[Outage], None]) -> Patience:
    """What is done about faults of Kafka, where it is used."""
    if kafka is None:
        return Patience()
    return Patience(kafka.outage_patience / 1000, partial(explain_spark, kafka), on_outage)


def _sink(spark: SparkSession, job: Job, identity: str) -> Sink:
    """Where the job's results go."""
    settings = job.settings
    if settings.output.kind == "kafka":
        assert settings.kafka is not None
        kafka_sink = KafkaSink(settings.kafka, settings.output, job.event_schema, settings.engine)
        kafka_sink.prepare()
        return kafka_sink
    folder, evaluations = Path(settings.output.path), settings.output.evaluations
    sink = DeltaSink(folder, identity, job.event_schema, settings.engine, evaluations)
    sink.prepare(spark)
    return sink
