"""The main job: a configuration into a running query."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from buckets.arrival_order import ArrivalOrder, Ordering
from buckets.basis import Basis
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.feeds import open_feed
from buckets.hold import check_free
from buckets.job import Job
from buckets.kafka.faults import Broker, Outage
from buckets.kafka.settings import KafkaSettings
from buckets.ledger import Ledger
from buckets.outputs import ALERTS
from buckets.owned_folder import OwnedFolder
from buckets.revision import Refusal
from buckets.rule_book import RuleBook
from buckets.rule_history import open_history
from buckets.rule_set import first_rule_set
from buckets.scaled import AVERAGE_EXTRA_DIGITS
from buckets.source_files import FileWatch
from buckets.spark.delta_sink import DeltaSink
from buckets.spark.kafka_faults import explain_spark
from buckets.spark.kafka_sink import KafkaSink
from buckets.spark.query import BatchReport, Scoring, ScoringQuery, Sink
from buckets.spark.running import Patience
from buckets.spark.session import start_session
from buckets.spark.source import open_source
from buckets.terms import Terms


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


def check_digits(folder: Path, schema: EventSchema) -> None:
    """See that the values of a schema fit into the tables that are there: their digits are those of the first start.

    Raises:
        BucketsError: a measure has more.
    """
    if not DeltaTable.is_deltatable(str(folder / ALERTS)):
        return
    stored = pa.schema(DeltaTable(folder / ALERTS).schema().to_arrow()).field("value").type
    digits = stored.scale - AVERAGE_EXTRA_DIGITS
    for name, measure in schema.measures.items():
        if measure.scale > digits:
            message = (
                f"output.path {folder} holds values of {digits} digits, and measure {name} has a scale of "
                f"{measure.scale}; give it {digits} at most, or name a new checkpoint and a new output folder"
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
    source, ledger = settings.source, Ledger(job.checkpoint)
    basis = Basis(source.name, job.event_schema, settings.engine, source.subfolders)
    identity = ledger.identity(basis)
    output = OwnedFolder(Path(settings.output.path), "output.path") if settings.output.kind == "delta" else None
    if output is not None:
        check_output(output, ledger, identity)
        check_digits(output.path, job.event_schema)
    if source.topic is not None and settings.kafka is not None:
        Broker(settings.kafka).check_topics([source.topic])
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
    say: Callable[[str], None] = lambda line: None,
) -> ScoringQuery:
    """The query of a job, not yet started.

    Args:
        spark: the session.
        job: the job.
        on_batch: called after each batch.
        on_refused: called with changes of rules that are not made.
        on_outage: called when Kafka does not answer and is waited for.
        say: told a line when files or rows arrive out of order, and when something beside the query goes wrong, or is
            well again: following the rules, keeping their history.

    Raises:
        BucketsError: checkpoint, output or source do not fit the job.
    """
    settings, schema, ledger = job.settings, job.event_schema, Ledger(job.checkpoint)
    identity = prepare(job).identity
    needed = first_rule_set(job.rules).needed_fields
    arrivals = open_source(spark, settings.source, schema, needed, settings.kafka)
    lateness_ms = settings.engine.allowed_lateness
    feed = open_feed(job, say)
    history = open_history(job, identity, lambda fault: say(fault.message))
    scoring = Scoring(
        arrivals=arrivals,
        terms=terms_of(job),
        ledger=ledger,
        book=RuleBook(ledger, feed, schema, lateness_ms, on_refused, history),
        sink=_sink(job, identity),
        checkpoint=job.checkpoint / "spark",
        single_stage=settings.partitions == 1,
        patience=_patience(settings.kafka, on_outage),
        order=_arrival_order(job, say),
    )
    return ScoringQuery(scoring, on_batch)


def terms_of(job: Job) -> Terms:
    """What batches of a job are judged by."""
    settings = job.settings
    return Terms(
        event_schema=job.event_schema,
        engine=settings.engine,
        evaluations=settings.output.evaluations,
        output=settings.output.kind,
        arrival=settings.source.arrival,
    )


def _arrival_order(job: Job, say: Callable[[str], None]) -> ArrivalOrder | None:
    """What sees that batches arrive one behind the other; a topic's partitions have no order among them."""
    source = job.settings.source
    if source.kind == "kafka":
        return None
    ordering = Ordering(source.arrival, refuse=source.out_of_order == "refuse")
    return ArrivalOrder(job.checkpoint / "buckets" / "arrival_order.json", ordering, say)


def watch_files(job: Job, say: Callable[[str], None]) -> FileWatch | None:
    """What names the files of a job's source that are not read; None where the source is no folder of files.

    Args:
        job: the job.
        say: told a line for each such file.
    """
    source = job.settings.source
    if source.kind in ("kafka", "delta"):
        return None
    return FileWatch(Path(source.path), source.subfolders, job.checkpoint / "spark", say)


def _patience(kafka: KafkaSettings | None, on_outage: Callable[[Outage], None]) -> Patience:
    """What is done about faults of Kafka, where it is used."""
    if kafka is None:
        return Patience()
    return Patience(kafka.outage_patience / 1000, partial(explain_spark, kafka), on_outage)


def _sink(job: Job, identity: str) -> Sink:
    """Where the job's results go."""
    settings = job.settings
    if settings.output.kind == "kafka":
        assert settings.kafka is not None
        kafka_sink = KafkaSink(settings.kafka, settings.output)
        kafka_sink.prepare()
        return kafka_sink
    sink = DeltaSink(Path(settings.output.path), identity)
    sink.prepare(terms_of(job))
    return sink
