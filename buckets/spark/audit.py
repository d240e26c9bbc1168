"""The audit: a second query that keeps the topics, and the transactions themselves, as Delta tables.

All topics are read by one Kafka source. Tasks read the messages of a batch into rows, in one job; the driver writes
them (`buckets.audit.writer`).
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.streaming.query import StreamingQuery

from buckets.audit.folder import AuditFolder, audit_settings, check_isolation, topics_of
from buckets.audit.tables import (
    DAY,
    MESSAGE_COLUMNS,
    PUBLISHED_AT,
    TIMESTAMP_TYPE,
    TRANSACTIONS,
    BinaryValues,
    Column,
    MessageReader,
    Table,
    tables_of,
)
from buckets.audit.writer import AT_ONCE, AuditWriter, WrittenMessages
from buckets.checkpoint.lock import Lock, LostLease
from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.config.job import Job
from buckets.config.kafka import KafkaSettings
from buckets.config.settings import AuditSettings, JobSettings
from buckets.config.source import TopicSelection
from buckets.delta.upkeep import Upkeep, retention
from buckets.errors import Outage
from buckets.kafka.faults import Broker
from buckets.kafka.registry import Registry
from buckets.kafka.topic_guard import TopicGuard
from buckets.monitor.query_news import QueryNews
from buckets.preflight.output_check import check_digits
from buckets.spark.faults import java_in_one_line, patience_of
from buckets.spark.new_topic import go_on_in_new_topics
from buckets.spark.running import Batch, Running, begin_query, news_of
from buckets.spark.sources import kafka_options, subscription
from buckets.spark.stall import give_up


def make_tables(spark: SparkSession, folder: AuditFolder, settings: AuditSettings, tables: Iterable[Table]) -> None:
    """Make tables that are not there yet, constraints in the same commit.

    Args:
        spark: the session.
        folder: where they are.
        settings: of the audit; they say for how long old versions are kept.
        tables: the tables.
    """
    missing = [table for table in tables if not folder.has_table(table.name)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda table: _make_table(spark, table, _location(folder, table), settings), missing))


def _location(folder: AuditFolder, table: Table) -> Path:
    """Return where a table is; Delta compares the location with its own form of it, which has no `..` in it."""
    return (folder.tables / table.name).resolve()


def _make_table(spark: SparkSession, table: Table, location: Path, settings: AuditSettings) -> None:
    properties = {f"delta.constraints.{check.name}": check.sql for check in table.checks}
    properties |= retention(settings.keep_versions)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {_quoted(location)} ({', '.join(map(_column_sql, table.columns))}) USING delta "
        f"PARTITIONED BY ({DAY}) COMMENT {_literal(table.comment)} "
        f"TBLPROPERTIES ({', '.join(f'{_literal(key)} = {_literal(value)}' for key, value in properties.items())})"
    )


def _column_sql(column: Column) -> str:
    strictness = "" if column.nullable else " NOT NULL"
    kind = from_arrow_type(column.type).simpleString()
    return f"`{column.name}` {kind}{strictness} COMMENT {_literal(column.comment)}"


def _quoted(location: Path) -> str:
    escaped = str(location).replace("`", "``")
    return f"delta.`{escaped}`"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


MESSAGES_A_BATCH = 100_000  # The most that one batch takes: all of it passes through the driver


@dataclass(frozen=True)
class Audit:
    """What is kept, where, and how often."""

    kafka: KafkaSettings  # how Kafka is reached
    topics: Mapping[str, str]  # by topic, the name of its table
    selection: TopicSelection  # which topics are read
    folder: AuditFolder  # checkpoint and tables
    settings: AuditSettings  # how often tables are written, and how they are kept short
    identity: str  # of the checkpoint; with a batch's number it makes a write happen once
    guard: TopicGuard  # sees that the topics are still the same
    job: JobSettings  # whose topics they are
    largest_scale: int  # that of its event schema

    @property
    def tables(self) -> list[Table]:
        """The tables."""
        return list(tables_of(self.topics, self.largest_scale).values())


@dataclass(frozen=True)
class AuditReport:
    """A batch that is done."""

    batch_id: int  # its number
    written: WrittenMessages  # what became of its messages
    duration_s: float  # how long it took


@dataclass(frozen=True)
class AuditListener:
    """What is told of an audit while it runs."""

    on_batch: Callable[[AuditReport], None] = lambda report: None  # called after each batch
    # called when Kafka or a store does not answer and is waited for
    on_outage: Callable[[Outage], None] = lambda outage: None
    say: Callable[[str], None] = lambda line: None  # told a line when a start is tried again
    # called when the query fails in the background; `AuditQuery.wait` raises the same
    on_failure: Callable[[Exception], None] = lambda error: None
    # told if the lease of a checkpoint in a store is lost; must see that nothing more is written
    on_lost: Callable[[LostLease], None] = give_up


def prepare_audit(
    job: Job, new_topic: Callable[[str], None] | None = None, say: Callable[[str], None] = lambda line: None
) -> Audit:
    """Check checkpoint, folder and topics of an audit, and take checkpoint and folder for it.

    Args:
        job: the job.
        new_topic: told what is done about topics that were created again; None where these are refused.
        say: told a line when a topic has appeared that the source's pattern matches.
    """
    settings, kafka = audit_settings(job), job.settings.kafka
    assert kafka is not None
    check_isolation(job)
    folder = AuditFolder(settings)
    folder.check()
    check_digits(folder.tables, job.event_schema, "audit.path")
    source, named = job.settings.source.selection, topics_of(job)
    topics = folder.topics(named)
    found = [topic for topic in topics if topic not in named and source.matches(topic)]
    selection = TopicSelection(tuple(topic for topic in topics if topic not in found), source.pattern)
    Broker(kafka).check_topics(selection.names)
    guard = TopicGuard(kafka, folder.checkpoint, selection, say)
    topics |= dict.fromkeys(guard.find(), TRANSACTIONS)
    if new_topic is None:
        guard.check()
    identity = folder.open()
    if new_topic is not None:
        go_on_in_new_topics(topics, folder, identity, guard, new_topic)
    guard.start(SourceOffsets(folder.checkpoint).ended is not None)
    largest_scale = job.event_schema.largest_scale
    return Audit(kafka, topics, selection, folder, settings, identity, guard, job.settings, largest_scale)


class AuditQuery:
    """A query that keeps topics as tables; run to its end, or started in the background."""

    def __init__(self, spark: SparkSession, audit: Audit, listener: AuditListener) -> None:
        """Make the tables that are not there yet."""
        self._spark = spark
        self._audit = audit
        tables = {table.name: table for table in audit.tables}
        self._tables, self._topics = tables, dict.fromkeys(audit.guard.topics, TRANSACTIONS) | dict(audit.topics)
        self._reader = self._new_reader()
        self._read_columns = from_arrow_schema(self._reader.schema)
        self._listener = listener
        self._patience = patience_of(audit.job, listener.on_outage, listener.say, audit.guard)
        self._running = Running(self._begin, self._run_batch, self._patience)
        self._query: StreamingQuery | None = None
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        with java_in_one_line():
            make_tables(spark, audit.folder, audit.settings, audit.tables)
        audit.folder.keep_topics(self._topics)
        paths = [audit.folder.tables / name for name in tables]
        self._upkeep = Upkeep(paths, audit.settings.keep_versions, audit.settings.compact, listener.say)
        for path in paths:
            self._upkeep.prepare(path)
        self._writer = AuditWriter(audit.folder.tables, audit.identity, tables.values(), self._upkeep)

    def _new_reader(self) -> MessageReader:
        """Return what reads the messages of the topics that are known now."""
        by_topic = {topic: self._tables[name] for topic, name in self._topics.items()}
        return MessageReader(by_topic, self._audit.guard.ids(), _binary_values(self._audit))

    def _take_new_topics(self, batch_id: int) -> None:
        """Take over topics of a batch that the pattern has found since the last one."""
        new = self._audit.guard.begin_batch(batch_id)
        if new:
            self._topics |= dict.fromkeys(new, TRANSACTIONS)
            self._audit.folder.keep_topics(self._topics)
            self._reader = self._new_reader()

    def _begin(self, interval_ms: int | None, run_batch: Batch) -> StreamingQuery:
        reader = self._spark.readStream.format("kafka").options(**kafka_options(self._audit.kafka))
        reader = reader.options(**subscription(self._audit.selection)).option("includeHeaders", True)
        reader = reader.option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", MESSAGES_A_BATCH)
        writer = reader.load().writeStream.foreachBatch(run_batch)
        self._query = begin_query(writer, self._audit.folder.spark_checkpoint, interval_ms)
        return self._query

    def _run_batch(self, messages: DataFrame, batch_id: int) -> None:
        started_s = time.perf_counter()
        self._take_new_topics(batch_id)
        named = {"timestamp": PUBLISHED_AT, "timestampType": TIMESTAMP_TYPE}
        messages = messages.withColumnsRenamed(named).select(MESSAGE_COLUMNS.names)
        # One task a core, not one a partition of each topic.
        messages = messages.coalesce(self._spark.sparkContext.defaultParallelism)
        read = messages.mapInArrow(self._reader, self._read_columns).toArrow()
        self._audit.guard.check()
        written = self._writer.write(read, batch_id)
        self._listener.on_batch(AuditReport(batch_id, written, time.perf_counter() - started_s))

    def run(self, once: bool, on_interrupt: Callable[[], None] = lambda: None) -> None:
        """Run to the end; an interrupt ends it after the batch that is running.

        Args:
            once: whether to do what is there, and end.
            on_interrupt: called when an interrupt has come, before the query has ended.

        Raises:
            BucketsError: it failed, or another query runs on its checkpoint.
            KeyboardInterrupt: it was interrupted, and has ended.
        """
        with Lock(self._audit.folder.checkpoint, self._listener.on_lost), self._upkeep.running():
            self._running.run_until_interrupt(None if once else self._audit.settings.interval, on_interrupt)

    def start(self) -> None:
        """Start it in the background; `stop` and `wait` end it."""

        def work() -> None:
            try:
                with Lock(self._audit.folder.checkpoint, self._listener.on_lost), self._upkeep.running():
                    self._running.run(self._audit.settings.interval)
            except Exception as error:
                self._failure = error
                self._listener.on_failure(error)

        self._thread = threading.Thread(target=work, name="audit", daemon=True)
        self._thread.start()

    def news(self) -> QueryNews:
        """Return what Spark says of the query, as of its latest batch."""
        return QueryNews() if self._query is None else news_of(self._query)

    def stop(self) -> None:
        """Ask it to end after the batch that is running."""
        self._running.stop()

    def wait(self) -> None:
        """Wait until what `start` has started has ended."""
        assert self._thread is not None
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def catch_up(self) -> None:
        """Once it has been stopped, take what has come to the topics since."""
        with Lock(self._audit.folder.checkpoint, self._listener.on_lost):
            Running(self._begin, self._run_batch, self._patience).run(None)


def _binary_values(audit: Audit) -> BinaryValues | None:
    """Return what reads results that are no JSON; None where they are."""
    written_in, registry = audit.job.output.format, audit.kafka.registry
    if written_in == "json":
        return None
    assert registry is not None
    return BinaryValues(written_in, audit.folder.checkpoint, Registry(registry).schema)


@contextlib.contextmanager
def audit_beside(
    spark: SparkSession, job: Job, listener: AuditListener, new_topic: Callable[[str], None] | None = None
) -> Iterator[AuditQuery]:
    """Run the audit of a job beside something else; after the `with` the tables hold all that the topics held.

    Where the `with` ends with an exception, such as an interrupt, the audit ends after the batch that is running; its
    next start goes on from there.

    Args:
        spark: the session.
        job: the job.
        listener: what is told of it; a failure of the audit is also raised at the end of the `with`.
        new_topic: as for `prepare_audit`.
    """
    query = AuditQuery(spark, prepare_audit(job, new_topic, listener.say), listener)
    query.start()
    try:
        yield query
    finally:
        query.stop()
        query.wait()
    query.catch_up()
