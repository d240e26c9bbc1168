"""The audit: a second query that keeps the topics, and the transactions themselves, as Delta tables.

One Kafka source reads all topics. Tasks convert a batch's messages to rows, in one Spark job; the driver writes the
rows (`buckets.audit.writer`).
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from buckets.audit.folder import AuditFolder, audit_settings, topics_of
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
    audit_tables,
)
from buckets.audit.writer import AT_ONCE, AuditWriter, WrittenMessages
from buckets.checkpoint.lock import Lock, LostLease
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
from buckets.spark.arrow_types import from_arrow_schema, from_arrow_type
from buckets.spark.faults import java_in_one_line, patience_of
from buckets.spark.new_topic import go_on_in_new_topics
from buckets.spark.running import Batch, Running, begin_query, news_of
from buckets.spark.sources import topic_reader
from buckets.spark.stall import give_up


def make_tables(spark: SparkSession, folder: AuditFolder, settings: AuditSettings, tables: Iterable[Table]) -> None:
    """Create the tables that do not exist yet, with their constraints in the same commit."""

    def make(table: Table) -> None:
        properties = {f"delta.constraints.{check.name}": check.sql for check in table.checks}
        properties |= retention(settings.keep_versions)
        # Delta compares the location with its normalised form, which contains no `..`.
        escaped = str((folder.tables / table.name).resolve()).replace("`", "``")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{escaped}` ({', '.join(map(_column_sql, table.columns))}) USING delta "
            f"PARTITIONED BY ({DAY}) COMMENT {_literal(table.comment)} "
            f"TBLPROPERTIES ({', '.join(f'{_literal(key)} = {_literal(value)}' for key, value in properties.items())})"
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(make, [table for table in tables if not folder.has_table(table.name)]))


def _column_sql(column: Column) -> str:
    strictness = "" if column.nullable else " NOT NULL"
    kind = from_arrow_type(column.type).simpleString()
    return f"`{column.name}` {kind}{strictness} COMMENT {_literal(column.comment)}"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


MESSAGES_A_BATCH = 100_000  # The most messages in a batch: all of them pass through the driver


@dataclass(frozen=True)
class Audit:
    """What an audit keeps, where, and how often it runs."""

    kafka: KafkaSettings  # how to reach Kafka
    topics: Mapping[str, str]  # by topic, the name of its table
    selection: TopicSelection  # which topics are read
    folder: AuditFolder  # checkpoint and tables
    settings: AuditSettings  # how often tables are written, and how they are kept short
    identity: str  # of the checkpoint; with a batch's number it makes each write happen once
    guard: TopicGuard  # checks that the topics are still the same
    job: JobSettings  # the settings of the topics' job
    tables: Mapping[str, Table]  # the tables to keep, by name


@dataclass(frozen=True)
class AuditListener:
    """Callbacks of a running audit."""

    # called after each batch with its number, what happened to its messages, and its duration in s
    on_batch: Callable[[int, WrittenMessages, float], None] = lambda batch_id, written, duration_s: None
    # called during an outage of Kafka or a store
    on_outage: Callable[[Outage], None] = lambda outage: None
    say: Callable[[str], None] = lambda line: None  # receives a line when a start is retried
    # called when the query fails in the background; the end of `audit_beside` raises the same error
    on_failure: Callable[[Exception], None] = lambda error: None
    # called if the lease of a checkpoint in a store is lost; must ensure that nothing more is written
    on_lost: Callable[[LostLease], None] = give_up


def prepare_audit(
    job: Job, new_topic: Callable[[str], None] | None = None, say: Callable[[str], None] = lambda line: None
) -> Audit:
    """Check an audit's checkpoint, folder and topics, and claim the checkpoint and the folder for it.

    `new_topic` receives a line about each topic that was created again; without it such topics are refused. `say`
    receives a line when a new topic matches the source's pattern.
    """
    settings, kafka = audit_settings(job), job.settings.kafka
    assert kafka is not None
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
    guard.start()
    tables = audit_tables(topics.values(), job.event_schema.largest_scale)
    return Audit(kafka, topics, selection, folder, settings, identity, guard, job.settings, tables)


class AuditQuery:
    """A query that keeps topics as tables, run to its end or in the background."""

    def __init__(self, spark: SparkSession, audit: Audit, listener: AuditListener) -> None:
        """Create the tables that do not exist yet."""
        self._spark, self._audit, self._listener = spark, audit, listener
        self._topics = dict.fromkeys(audit.guard.topics, TRANSACTIONS) | dict(audit.topics)
        self._reader = self._new_reader()
        self._read_columns = from_arrow_schema(self._reader.schema)
        self._patience = patience_of(audit.job, listener.on_outage, listener.say, audit.guard)
        self._running = Running(self._begin, self._run_batch, self._patience)
        self._query: StreamingQuery | None = None
        with java_in_one_line():
            make_tables(spark, audit.folder, audit.settings, audit.tables.values())
        audit.folder.keep_topics(self._topics)
        paths = [audit.folder.tables / name for name in audit.tables]
        self._upkeep = Upkeep(paths, audit.settings.keep_versions, audit.settings.compact, listener.say)
        for path in paths:
            self._upkeep.prepare(path)
        self._writer = AuditWriter(audit.folder.tables, audit.identity, audit.tables.values(), self._upkeep)

    def _new_reader(self) -> MessageReader:
        """Return a reader for messages of the topics known now."""
        by_topic = {topic: self._audit.tables[name] for topic, name in self._topics.items()}
        binary, written_in, registry = None, self._audit.job.output.format, self._audit.kafka.registry
        if written_in != "json":
            assert registry is not None
            binary = BinaryValues(written_in, self._audit.folder.checkpoint, Registry(registry).schema)
        return MessageReader(by_topic, self._audit.guard.ids(), binary)

    def _begin(self, interval_ms: int | None, run_batch: Batch) -> StreamingQuery:
        reader = topic_reader(self._spark, self._audit.selection, self._audit.kafka)
        reader = reader.option("includeHeaders", True).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", MESSAGES_A_BATCH)
        self._query = begin_query(reader.load(), run_batch, self._audit.folder.spark_checkpoint, interval_ms)
        return self._query

    def _run_batch(self, messages: DataFrame, batch_id: int) -> None:
        started_s = time.perf_counter()
        new = self._audit.guard.begin_batch(batch_id)  # Topics found by the pattern since the last batch
        if new:
            self._topics |= dict.fromkeys(new, TRANSACTIONS)
            self._audit.folder.keep_topics(self._topics)
            self._reader = self._new_reader()
        named = {"timestamp": PUBLISHED_AT, "timestampType": TIMESTAMP_TYPE}
        messages = messages.withColumnsRenamed(named).select(MESSAGE_COLUMNS.names)
        # One task per core, not one per partition of each topic.
        messages = messages.coalesce(self._spark.sparkContext.defaultParallelism)
        read = messages.mapInArrow(self._reader, self._read_columns).toArrow()
        self._audit.guard.check()
        written = self._writer.write(read, batch_id)
        self._listener.on_batch(batch_id, written, time.perf_counter() - started_s)

    def run(self, once: bool, on_interrupt: Callable[[], None] = lambda: None) -> None:
        """Run as `Running.run_until_interrupt` does; with `once`, process what is available and end."""
        with self._locked(), self._upkeep.running():
            self._running.run_until_interrupt(None if once else self._audit.settings.interval, on_interrupt)

    def _locked(self) -> Lock:
        return Lock(self._audit.folder.checkpoint, self._listener.on_lost)

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Run in the background until the `with` ends, then process what has reached the topics meanwhile."""
        failures: list[Exception] = []

        def work() -> None:
            try:
                with self._locked(), self._upkeep.running():
                    self._running.run(self._audit.settings.interval)
            except Exception as error:
                failures.append(error)
                self._listener.on_failure(error)

        thread = threading.Thread(target=work, name="audit", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._running.stop()
            thread.join()
            if failures:
                raise failures[0]
        with self._locked():
            Running(self._begin, self._run_batch, self._patience).run(None)

    def news(self) -> QueryNews:
        """Return Spark's report on the query's latest batch."""
        return QueryNews() if self._query is None else news_of(self._query)


@contextlib.contextmanager
def audit_beside(
    spark: SparkSession, job: Job, listener: AuditListener, new_topic: Callable[[str], None] | None = None
) -> Iterator[AuditQuery]:
    """Run a job's audit in the background; after the `with` the tables hold everything that the topics held.

    If the `with` ends with an exception, such as an interrupt, the audit ends after its current batch, and its next
    start continues from there.
    """
    query = AuditQuery(spark, prepare_audit(job, new_topic, listener.say), listener)
    with query.beside():
        yield query
