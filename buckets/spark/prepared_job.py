"""The start of a job, identical for every way to start it: `prepare(job).query(spark, listener)`.

`prepare` needs no Spark, so errors in a job are reported before a JVM starts.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from buckets.archive.archive import join_some_files, table_of
from buckets.archive.archive_writer import ArchiveWriter, check_archive
from buckets.checkpoint.batch_ends import ArrivalOrder
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity, Terms
from buckets.checkpoint.job_record import lock_for
from buckets.checkpoint.lock import Lock, LostLease
from buckets.checkpoint.record_files import OwnedFolder
from buckets.checkpoint.source_offsets import records_folder
from buckets.config.job import Job, places_of
from buckets.delta.upkeep import Upkeep
from buckets.errors import Outage
from buckets.events.decoded import PinnedProtobuf
from buckets.feeds.rules.history import TABLE as RULE_CHANGES
from buckets.feeds.rules.history import open_history
from buckets.feeds.rules.rule_book import RuleBook
from buckets.feeds.schema_book import SchemaBook, open_lists, open_rules
from buckets.kafka.faults import Broker
from buckets.kafka.topics import pinned_fields
from buckets.monitor.pace import BatchReport
from buckets.monitor.words import FileWatch, TimeNotes
from buckets.outputs.columns import TABLES
from buckets.preflight.output_check import check_digits, check_output
from buckets.printable import counted
from buckets.rules.revision import Refusal
from buckets.spark.faults import java_in_one_line, patience_of
from buckets.spark.new_topic import go_on_in_new_topic
from buckets.spark.query import Scoring, ScoringQuery
from buckets.spark.scored_batch import Sink
from buckets.spark.session import PARTITIONS, is_local, make_ready, settings_of_user, start_session
from buckets.spark.session_folder import check_own_jar
from buckets.spark.sinks import DeltaSink, KafkaSink
from buckets.spark.sources import open_source
from buckets.spark.stall import give_up, watched_start
from buckets.spark.worker import take_steps
from buckets.stores.location import location
from buckets.stores.store_path import StorePath
from buckets.webhook.spool import Spool

if TYPE_CHECKING:  # Modules for optional features are imported where they are used.
    from buckets.kafka.topic_guard import TopicGuard
    from buckets.webhook.delivery import Delivery


@dataclass(frozen=True)
class Listener:
    """Callbacks of a running job."""

    on_batch: Callable[[BatchReport], None] = lambda report: None  # called after each batch
    # called with refused changes of rules
    on_refused: Callable[[Sequence[Refusal]], None] = lambda refusals: None
    # called during an outage of Kafka or a store
    on_outage: Callable[[Outage], None] = lambda outage: None
    # receives a line when files or rows arrive out of order, and when something besides the query fails or recovers:
    # following the rules, keeping their history
    say: Callable[[str], None] = lambda line: None
    on_phase: Callable[[str], None] = lambda line: None  # receives a few words about each step while the query starts


@dataclass(frozen=True)
class PreparedJob:
    """A job that owns its checkpoint and output, and whose query can start."""

    job: Job  # its configuration
    identity: str  # of its checkpoint
    carried_over: str | None  # settings that have changed since the last start, in words
    lock: Lock  # of the checkpoint; the query releases it at its end
    protobuf: PinnedProtobuf | None = None  # the schemas that decode Protobuf values; None for other formats

    def query(self, spark: SparkSession, listener: Listener, sink: Sink | None = None) -> ScoringQuery:
        """Return the job's query, not yet started."""
        try:
            with watched_start(self.job.settings.start_patience), java_in_one_line():
                return self._query(spark, listener, sink)
        except BaseException:
            self.lock.release()
            raise

    def _query(self, spark: SparkSession, listener: Listener, sink: Sink | None) -> ScoringQuery:
        check_own_jar()
        job, settings, source = self.job, self.job.settings, self.job.settings.source
        checkpoint, feed = Checkpoint(job.checkpoint), open_rules(job, listener.say)
        checkpoint.check()
        lists = open_lists(job, checkpoint, listener.say)
        backfills, archive, upkeeps = None, None, list[Upkeep]()
        if settings.archive is not None:
            from buckets.backfill.backfills import Backfills

            backfills = Backfills(job, listener.say)
            folder = location(settings.archive.path)
            upkeeps.append(Upkeep([table_of(folder)], say=listener.say, join=join_some_files))
            archive = ArchiveWriter(folder, settings.archive, self.identity, upkeeps[0])
        history = open_history(job, self.identity, lambda fault: listener.say(fault.message))
        guard = _guard(job, listener.say)
        output, upkeep = settings.output, None
        if sink is None and output.folder is not None:
            tables = [output.folder / name for name in (*TABLES, RULE_CHANGES)]
            upkeep = Upkeep(tables, output.keep_versions, output.compact, listener.say)
            upkeeps.append(upkeep)
        delivery = self._delivery(listener.say) if sink is None else None
        results = sink or self._open_sink(upkeep)
        book = RuleBook(
            checkpoint, feed, job.event_schema, settings.engine, listener.on_refused, history, lists, backfills
        )
        schemas = SchemaBook(job, self.terms, book, listener.say, _check_digits)
        scoring = Scoring(
            arrivals=open_source(spark, job),
            terms=self.terms,
            checkpoint=checkpoint,
            lock=self.lock,
            book=book,
            sink=results,
            state=settings.state,
            partitions=settings.partitions and min(settings.partitions, settings.engine.shards),
            patience=patience_of(settings, listener.on_outage, listener.say, guard),
            order=ArrivalOrder(job.checkpoint, source.arrival, source.out_of_order == "refuse", listener.say)
            if source.is_ordered
            else None,
            backfills=backfills,
            guard=guard,
            archive=archive,
            upkeep=upkeeps,
            delivery=delivery,
            schemas=schemas,
            times=TimeNotes(job.event_schema.event_time, listener.say),
            reopen=lambda: open_source(spark, schemas.job),
        )
        return ScoringQuery(scoring, listener.on_batch, listener.on_phase, self._reading(spark))

    def _delivery(self, say: Callable[[str], None]) -> "Delivery | None":
        """Return the delivery of alerts to the webhook; without a webhook None, with a notice if alerts are waiting."""
        webhook = self.job.settings.output.webhook
        if webhook is not None:
            from buckets.webhook.delivery import Delivery

            return Delivery(self.job.checkpoint, webhook, say)
        waiting = Spool(self.job.checkpoint).count()
        if waiting:
            alerts = counted(waiting, "alert")
            say(f"{alerts} still to be sent wait in the checkpoint; set `output.webhook` to send them")
        return None

    def _reading(self, spark: SparkSession) -> str:
        """Describe what the query does once it has started."""
        place = self.job.settings.source.place
        if (
            is_local(spark.sparkContext.master or "")
            and not importlib.import_module("buckets.compiled").all_are_compiled()
        ):
            return f"compiling kernels, once for this version: up to a minute, then payments from {place} are scored"
        if self.job.settings.trigger.interval is None:
            return f"scoring what is in {place}"
        return f"waiting for payments from {place}; Ctrl-C stops"

    def file_watch(self, say: Callable[[str], None]) -> FileWatch | None:
        """Return the watch that reports unread files of the job's source; None unless the source is a folder."""
        source = self.job.settings.source
        if source.folder is None:
            return None
        return FileWatch(source.folder, source.subfolders, self.job.checkpoint, say)

    @property
    def terms(self) -> Terms:
        """What determines the results of batches that begin now, besides the rules."""
        return Terms.of(self.job, self.protobuf)

    def _open_sink(self, upkeep: Upkeep | None) -> Sink:
        settings = self.job.settings
        if settings.output.folder is None:
            assert settings.kafka is not None
            kafka_sink = KafkaSink(settings.kafka, settings.output)
            kafka_sink.prepare()
            return kafka_sink
        sink = DeltaSink(settings.output.folder, self.identity, upkeep)
        sink.prepare(self.terms)
        return sink


def prepare(
    job: Job,
    new_topic: Callable[[str], None] | None = None,
    on_lost: Callable[[LostLease], None] = give_up,
) -> PreparedJob:
    """Check a job's checkpoint, output and topics, and claim the checkpoint and the output for it.

    The checkpoint is locked before anything is written, so only one of two simultaneous starts continues. `new_topic`
    receives lines about a recreated source topic; without it the job is refused. `on_lost` is as for `Lock`.
    """
    lock = lock_for(job.checkpoint, CheckpointIdentity.of(job), on_lost)
    try:
        return _prepare_locked(job, lock, new_topic)
    except BaseException:
        lock.release()
        raise


def _prepare_locked(job: Job, lock: Lock, new_topic: Callable[[str], None] | None) -> PreparedJob:
    settings, source = job.settings, job.settings.source
    checkpoint, basis = Checkpoint(job.checkpoint), CheckpointIdentity.of(job)
    known, output, archive = checkpoint.job.identity(basis), None, None
    if settings.output.folder is not None:
        output = OwnedFolder(settings.output.folder, "output.path", checkpoint.job.life)
        check_output(output, checkpoint, known)
    if settings.archive is not None:
        archive = OwnedFolder(location(settings.archive.path), "archive.path", checkpoint.job.life)
        check_archive(archive, checkpoint, known)
    _check_digits(job)
    if source.all_topics and settings.kafka is not None:
        Broker(settings.kafka).check_topics(source.all_topics)
    guard = _guard(job)
    if guard is not None:
        guard.find()
        if new_topic is None:
            guard.check()
    carried_over = checkpoint.job.carried_over(basis)
    identity = checkpoint.job.open(basis)
    for folder in (output, archive):
        if folder is not None:
            folder.take(identity)
    if guard is not None:
        if new_topic is not None:
            go_on_in_new_topic(job, identity, guard, new_topic)
        guard.start()
    return PreparedJob(job, identity, carried_over, lock, pinned_fields(job))


def _check_digits(job: Job) -> None:
    """Check that the job's output tables, if any, can hold its values."""
    if job.settings.output.folder is not None:
        check_digits(job.settings.output.folder, job.event_schema)


def _guard(job: Job, say: Callable[[str], None] = lambda line: None) -> "TopicGuard | None":
    """Return the guard that checks that a job's source topics are still the same; None for other sources."""
    kafka, source = job.settings.kafka, job.settings.source
    if kafka is None or not source.has_topics:
        return None
    from buckets.kafka.topic_guard import TopicGuard

    return TopicGuard(kafka, job.checkpoint, source.selection, say)


def job_session(
    job: Job, checkpoint: Path | None = None, tell: Callable[[str], None] = lambda line: None
) -> SparkSession:
    """Start a job's Spark session and prepare its executors; `tell` receives a line about each step.

    Spark's log goes into `checkpoint`, which only this process may write to; without one, or in an object store, into
    the temporary folder.
    """
    logs = None if checkpoint is None or isinstance(checkpoint, StorePath) else records_folder(checkpoint) / "logs"
    settings = job.settings
    shards, places = settings.partitions or settings.engine.shards, places_of(settings)
    session = start_session(
        "buckets",
        shards,
        settings.spark,
        logs,
        settings.start_patience,
        job.checkpoint,
        places,
        scores=True,
        profile=settings.profile,
    )
    is_fixed = PARTITIONS in settings_of_user(settings.spark)
    if is_local(session.sparkContext.master or ""):
        take_steps(session)
    make_ready(session, None if is_fixed else shards, settings.start_patience, tell)
    return session
