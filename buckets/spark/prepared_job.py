"""The start of a job, the same wherever it is started: `prepare(job).query(spark, listener)`.

`prepare` needs no Spark, so that what is wrong with a job is said before a JVM has started.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from buckets.checkpoint.arrival_order import ArrivalOrder, Ordering
from buckets.checkpoint.basis import Basis
from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.folders import records_folder, spark_folder
from buckets.checkpoint.lock import check_free
from buckets.checkpoint.owned_folder import OwnedFolder
from buckets.checkpoint.terms import Terms
from buckets.config.job import Job
from buckets.history.backfills import Backfills
from buckets.kafka.faults import Broker, Outage
from buckets.monitor.file_watch import FileWatch
from buckets.rule_feeds.history import open_history
from buckets.rule_feeds.rule_book import RuleBook
from buckets.rules.revision import Refusal
from buckets.spark.delta_sink import DeltaSink
from buckets.spark.kafka_faults import patience_with
from buckets.spark.kafka_sink import KafkaSink
from buckets.spark.list_feeds import open_lists
from buckets.spark.output_check import check_digits, check_output
from buckets.spark.query import BatchReport, Scoring, ScoringQuery
from buckets.spark.rule_feed import open_feed
from buckets.spark.running import Patience
from buckets.spark.scored_batch import Sink
from buckets.spark.session import start_session
from buckets.spark.source import open_source
from buckets.state.bounds import Bounds


@dataclass(frozen=True)
class Listener:
    """What is told of a job while it runs.

    Attributes:
        on_batch: called after each batch.
        on_refused: called with changes of rules that are not made.
        on_outage: called when Kafka does not answer and is waited for.
        say: told a line when files or rows arrive out of order, and when something besides the query goes wrong, or is
            well again: following the rules, keeping their history.
    """

    on_batch: Callable[[BatchReport], None] = lambda report: None
    on_refused: Callable[[Sequence[Refusal]], None] = lambda refusals: None
    on_outage: Callable[[Outage], None] = lambda outage: None
    say: Callable[[str], None] = lambda line: None


@dataclass(frozen=True)
class PreparedJob:
    """A job whose checkpoint and output belong to it, and whose query can start.

    Attributes:
        job: its configuration.
        identity: of its checkpoint.
        carried_over: settings that have changed since the last start, in words.
    """

    job: Job
    identity: str
    carried_over: str | None

    def query(self, spark: SparkSession, listener: Listener, sink: Sink | None = None) -> ScoringQuery:
        """The job's query, not yet started.

        Args:
            spark: the session.
            listener: what is told of it.
            sink: where results go instead of the job's output.

        Raises:
            BucketsError: source or output do not fit the job.
        """
        job, settings = self.job, self.job.settings
        checkpoint, feed = Checkpoint(job.checkpoint), open_feed(job, listener.say)
        lists = open_lists(job, checkpoint, listener.say)
        backfills = None if settings.archive is None else Backfills(job, listener.say)
        history = open_history(job, self.identity, lambda fault: listener.say(fault.message))
        scoring = Scoring(
            arrivals=open_source(spark, job),
            terms=self.terms,
            checkpoint=checkpoint,
            book=RuleBook(
                checkpoint, feed, job.event_schema, settings.engine, listener.on_refused, history, lists, backfills
            ),
            sink=sink or self._open_sink(),
            bounds=Bounds.of_each(settings.state.log, settings.state.cache, settings.engine.shards),
            single_stage=settings.partitions == 1,
            patience=patience_with(settings.kafka, listener.on_outage) if settings.kafka is not None else Patience(),
            order=self._arrival_order(listener.say),
            backfills=backfills,
        )
        return ScoringQuery(scoring, listener.on_batch)

    def file_watch(self, say: Callable[[str], None]) -> FileWatch | None:
        """What names the files of the job's source that are not read; None where the source is no folder of files.

        Args:
            say: told a line for each such file.
        """
        source = self.job.settings.source
        if source.kind in ("kafka", "delta"):
            return None
        return FileWatch(Path(source.path), source.subfolders, spark_folder(self.job.checkpoint), say)

    @property
    def terms(self) -> Terms:
        """What decides the results of batches that begin now, besides their rules."""
        settings = self.job.settings
        return Terms(
            event_schema=self.job.event_schema,
            engine=settings.engine,
            evaluations=settings.output.evaluations,
            output=settings.output.kind,
            arrival=settings.source.arrival,
        )

    def _open_sink(self) -> Sink:
        """Where the job's results go, with all tables or topics there."""
        settings = self.job.settings
        if settings.output.kind == "kafka":
            assert settings.kafka is not None
            kafka_sink = KafkaSink(settings.kafka, settings.output)
            kafka_sink.prepare()
            return kafka_sink
        sink = DeltaSink(Path(settings.output.path), self.identity)
        sink.prepare(self.terms)
        return sink

    def _arrival_order(self, say: Callable[[str], None]) -> ArrivalOrder | None:
        """What checks that batches arrive in order; a topic's partitions have no order among them."""
        source = self.job.settings.source
        if source.kind == "kafka":
            return None
        ordering = Ordering(source.arrival, refuse=source.out_of_order == "refuse")
        return ArrivalOrder(records_folder(self.job.checkpoint) / "arrival_order.json", ordering, say)


def prepare(job: Job) -> PreparedJob:
    """Check checkpoint, output and topics of a job, and take checkpoint and output for it.

    Raises:
        BucketsError: one of them belongs to something else or is in use, or a topic is missing.
        Outage: Kafka does not answer.
    """
    settings = job.settings
    check_free(job.checkpoint)
    source, checkpoint = settings.source, Checkpoint(job.checkpoint)
    basis = Basis(source.name, job.event_schema, settings.engine, source.subfolders)
    known, output = checkpoint.job.identity(basis), None
    if settings.output.kind == "delta":
        output = OwnedFolder(Path(settings.output.path), "output.path", checkpoint.job.life)
    if output is not None:
        check_output(output, checkpoint, known)
        check_digits(output.path, job.event_schema)
    if source.topic is not None and settings.kafka is not None:
        Broker(settings.kafka).check_topics([source.topic])
    carried_over = checkpoint.job.carried_over(basis)
    identity = checkpoint.job.open(basis)
    if output is not None:
        output.take(identity)
    return PreparedJob(job, identity, carried_over)


def job_session(job: Job) -> SparkSession:
    """The Spark session of a job."""
    return start_session("buckets", job.settings.partitions or job.settings.engine.shards, job.settings.spark)
