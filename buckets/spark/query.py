"""The scoring query: source, fan-out, windows, and one `foreachBatch` that hands the results to a sink.

For each micro-batch the driver fixes terms and rules, sends them along as local properties, and runs one Spark action,
which brings the results, or the paths of large ones, to the driver. The batch's accounts are checked before anything is
written.
"""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from buckets.archive.archive_writer import ArchiveWriter
from buckets.backfill.fill_chunks import read_fills
from buckets.checkpoint.batch_ends import ArrivalOrder
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.list_versions import lists_in
from buckets.checkpoint.lock import Lock
from buckets.checkpoint.source_offsets import spark_folder, state_folder
from buckets.clock import epoch_ms
from buckets.config.settings import StateSettings
from buckets.delta.upkeep import Upkeep
from buckets.engine.stages.cross_group import FILLS, how_far
from buckets.engine.stages.in_memory import DriverStore
from buckets.feeds.rules.rule_book import RuleBook
from buckets.feeds.schema_book import SchemaBook
from buckets.files import remove_tree
from buckets.monitor.pace import BatchReport
from buckets.monitor.query_news import QueryNews
from buckets.monitor.words import TimeNotes
from buckets.outputs.columns import ALERTS
from buckets.outputs.messages import Messages
from buckets.rules.completeness import Filled
from buckets.rules.rule_set import RuleSet, encode_rule_set
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.batch_properties import set_batch
from buckets.spark.running import Batch, OtherColumns, Patience, Running, begin_query, news_of
from buckets.spark.scored_batch import ScoredBatch, Sink, score_batch
from buckets.spark.session import PARTITIONS, settings_while, shuffle_partitions
from buckets.spark.sources import ArrivalStream
from buckets.spark.spilled import spill_folder
from buckets.spark.windows import COLUMNS, PRODUCED, FanOut, Score, both_stages
from buckets.spark.worker import freeze_loaded, settled
from buckets.state.layer import Bounds

if TYPE_CHECKING:  # Modules for optional features.
    from buckets.backfill.backfills import Backfills
    from buckets.kafka.topic_guard import TopicGuard
    from buckets.webhook.delivery import Delivery

DRIVER_BYTES = 1 << 26  # Payloads of a batch up to this total size come to the driver, about 80,000 alerts
_SIZES = {"memory_bytes": "memoryUsedBytes", "disk_bytes": "rocksdbSstFileSize"}


@dataclass(frozen=True)
class Scoring:
    """What to score, with what, and where the results go."""

    arrivals: ArrivalStream  # the source
    terms: Terms  # what determines the results of batches besides the rules, as of the start
    checkpoint: Checkpoint  # records of batches
    lock: Lock  # of the checkpoint, held until the query has ended
    book: RuleBook  # the rules of each batch
    sink: Sink  # where results go
    state: StateSettings = field(default_factory=StateSettings)  # how much memory the state's log and caches take
    partitions: int | None = None  # over how many a new checkpoint spreads its shards; None: as in the session
    session: Mapping[str, str] = field(default_factory=dict)  # what the session needs while the query starts
    patience: Patience = field(default_factory=Patience)  # how long to wait in outages
    # checks that batches arrive in order; None where the source has no order across them
    order: ArrivalOrder | None = None
    backfills: "Backfills | None" = None  # fills the history of rules; None without an archive
    guard: "TopicGuard | None" = None  # checks that the source topics are still the same; None for other sources
    archive: ArchiveWriter | None = None  # archives arrivals; None without an archive
    upkeep: Sequence[Upkeep] = ()  # maintain tables while batches run
    delivery: "Delivery | None" = None  # delivers alerts to a webhook; None without one
    schemas: SchemaBook | None = None  # follows the event schema; None if it is fixed
    times: TimeNotes | None = None  # reports remarks about event times; None if nobody listens
    # reopens the job's source, whose columns may have changed; None if they are fixed
    reopen: Callable[[], ArrivalStream] | None = None


class ScoringQuery:
    """A scoring query, from start to end."""

    def __init__(
        self,
        scoring: Scoring,
        on_batch: Callable[[BatchReport], None],
        on_phase: Callable[[str], None] = lambda line: None,
        reading: str = "",
    ) -> None:
        """Prepare a start; `on_phase` receives a line about what is followed, and `reading` once the source is open."""
        self._scoring, self._on_batch, self._on_phase, self._reading = scoring, on_batch, on_phase, reading
        self._arrivals, engine = scoring.arrivals, scoring.terms.engine
        self._bounds = Bounds.of_each(scoring.state.log, scoring.state.cache, engine.shards)
        partitions = scoring.partitions or shuffle_partitions(scoring.arrivals.frame.sparkSession)
        self._partitions = scoring.checkpoint.job.spread(partitions)
        self._driver = DriverStore(scoring.checkpoint.driver)
        self._spilled = spill_folder(scoring.checkpoint.path)
        self._state_folder = str(state_folder(scoring.checkpoint.path))
        self.state_sizes = Counter[str]()  # sizes of the state stores after the latest batch, under Spark's names
        self._running = Running(self._begin, self._score_batch, scoring.patience)
        self._query: StreamingQuery | None = None
        self._beside = ThreadPoolExecutor(1, "topics of a batch")  # For work that a batch does not wait for at once
        self._has_process = False  # Whether the process is the query's own: no other code's garbage is frozen

    def _begin(self, interval_ms: int | None, run_batch: Batch) -> StreamingQuery:
        scoring, is_first = self._scoring, self._query is None
        if not is_first and scoring.reopen is not None:
            self._arrivals = scoring.reopen()
        fan_out, arrived = FanOut(self._arrivals.normalise, scoring.archive is not None), self._arrivals.frame
        score, produced = Score(self._bounds), from_arrow_schema(PRODUCED)
        if self._partitions == 1:  # One task runs the whole batch without a shuffle: least delay, one core.
            both = partial(both_stages, fan_out, score)
            frame = arrived.coalesce(1).mapInArrow(partial(settled, both), produced)
        else:
            messages = arrived.mapInArrow(partial(settled, fan_out), COLUMNS).repartitionById(self._partitions, "shard")
            frame = messages.mapInArrow(partial(settled, score), produced)
        partitions = {PARTITIONS: str(self._partitions)} if scoring.session else {}
        with settings_while(self._arrivals.frame.sparkSession, {**scoring.session, **partitions}):
            self._query = begin_query(frame, run_batch, spark_folder(scoring.checkpoint.path), interval_ms)
        if is_first:
            self._on_phase(self._reading)
        return self._query

    def _score_batch(self, produced: DataFrame, batch_id: int) -> None:
        scoring, started_s = self._scoring, time.perf_counter()
        if scoring.guard is not None:
            scoring.guard.begin_batch(batch_id)
        terms = scoring.checkpoint.batches.terms_for(batch_id, self._terms_now(batch_id))
        rule_set = scoring.book.for_batch(batch_id)
        record = scoring.checkpoint.batches.record(batch_id)
        assert record is not None
        lists, spilled = (scoring.checkpoint.path, record.lists), self._spilled / f"{batch_id:09d}"
        stores, backfills = self._driver.of_batch(batch_id), scoring.backfills
        fills = {} if backfills is None else backfills.begin_batch(rule_set)
        context, encoded = produced.sparkSession.sparkContext, encode_rule_set(rule_set)
        set_batch(context, encoded, terms, lists, fills, (spilled, DRIVER_BYTES))
        scoring.lock.check()
        asked: list[Future[None]] = []

        def ask() -> None:
            if scoring.guard is not None:
                asked.append(self._beside.submit(scoring.guard.check))

        batch = score_batch(produced, batch_id, rule_set, terms, stores, self._state_folder, lists_in(*lists), ask)
        self._check(batch, asked)
        self.state_sizes, scored_s = batch.state, time.perf_counter()
        self._running.progress()
        scoring.lock.check()
        scoring.sink.write(batch)
        self._hand_over(batch)
        if scoring.archive is not None:
            scoring.lock.check()
            scoring.archive.write(batch_id, terms.event_schema, rule_set, batch.arrived)
        filled = how_far(batch.payloads(FILLS), terms.engine.shards)
        scoring.lock.check()
        self._record(batch, filled)
        if batch.has_files:
            remove_tree(spilled)
        written_s = time.perf_counter() - scored_s
        if backfills is not None:
            backfills.end_batch(filled, written_s + scored_s - started_s)
        report = BatchReport(batch.account, scored_s - started_s, written_s, batch.small_alerts(), epoch_ms())
        self._on_batch(report)
        if self._has_process:
            freeze_loaded()

    def _terms_now(self, batch_id: int) -> Terms:
        """Return the terms of a batch that begins now, under the event schema as it is now."""
        scoring, schemas = self._scoring, self._scoring.schemas
        if schemas is None:
            return scoring.terms
        scoring.lock.check()
        terms = schemas.take(batch_id)
        if not self._arrivals.has_all_of(terms.event_schema):
            message = "the source lacks columns that the event schema needs from now on; start the job again"
            raise OtherColumns(message)
        return terms

    def _check(self, batch: ScoredBatch, asked: Sequence[Future[None]]) -> None:
        """Check that a batch may be written: its accounts balance, its topics are the same, and it arrives in order.

        `asked` are checks of the topics that are already running.
        """
        batch.account.check()
        if self._scoring.times is not None:
            self._scoring.times.take(batch.account)
        for answer in asked:
            answer.result()
        if self._scoring.order is not None:
            self._scoring.order.check(batch.account.batch_id, batch.account.span)

    def _hand_over(self, batch: ScoredBatch) -> None:
        """Store the batch's alerts in the checkpoint for delivery to the webhook, if there is one."""
        if self._scoring.delivery is not None and batch.has(ALERTS):
            decided_ms = epoch_ms()
            alerts = Messages(batch.rule_set, batch.terms.event_schema).of(ALERTS, batch.table(ALERTS), decided_ms)
            self._scoring.delivery.put(batch.account.batch_id, decided_ms, alerts)

    def _record(self, batch: ScoredBatch, filled: Mapping[int, Filled]) -> None:
        """Record that a batch is written, and the progress of fills in it."""
        account = batch.account
        if batch.rule_set.needs_driver_state:
            self._driver.keep(account.batch_id)
        checkpoint, order = self._scoring.checkpoint, self._scoring.order
        greatest = None if order is None else order.done(account.batch_id, account.span)
        newest = checkpoint.driver.newest(account.batch_id)
        self._scoring.book.done(account.batch_id, batch.rule_set, account.arrived, filled, newest, greatest)
        checkpoint.cuts.keep(account.batch_id)

    def run(self, interval_ms: int | None, on_interrupt: Callable[[], None] = lambda: None) -> None:
        """Follow the rules, and run the query as `Running.run_until_interrupt` does, in a dedicated process."""
        self._has_process = True
        with self._following():
            self._running.run_until_interrupt(interval_ms, on_interrupt)

    def serve(self, interval_ms: int | None) -> None:
        """Run as `run` does, in any thread and without interrupts; `stop` ends it."""
        with self._following():
            self._running.run(interval_ms)

    @contextlib.contextmanager
    def _following(self) -> Iterator[None]:
        with self._scoring.lock:
            self._on_phase(f"following the rules of {self._scoring.book.origin}")
            remove_tree(self._spilled)
            try:
                if self._scoring.schemas is not None:
                    self._scoring.schemas.start()
                self._scoring.book.start()
                with contextlib.ExitStack() as beside:
                    for helper in (*self._scoring.upkeep, self._scoring.delivery):
                        if helper is not None:
                            beside.enter_context(helper.running())
                    yield
            finally:
                self._scoring.book.stop()

    def progress(self) -> list[dict[str, Any]]:
        """Return Spark's reports on the latest batches as plain data."""
        assert self._query is not None
        return [json.loads(progress.json) for progress in self._query.recentProgress]

    def news(self) -> QueryNews:
        """Return Spark's report on the latest batch, and the progress of backfills."""
        if self._query is None:
            return QueryNews()
        scoring = self._scoring
        fills = [] if scoring.backfills is None else read_fills(scoring.checkpoint.path)
        guard = scoring.guard
        return replace(
            news_of(self._query),
            state={
                name: self.state_sizes[of_spark] for name, of_spark in _SIZES.items() if of_spark in self.state_sizes
            },
            fills=[fill.to_json() for fill in fills],
            webhook={} if scoring.delivery is None else scoring.delivery.counts(),
            schema={} if scoring.schemas is None else scoring.schemas.to_json(),
            topics_appeared=guard.appeared if guard is not None and guard.follows_pattern else None,
        )

    def rules_in_force(self) -> RuleSet:
        """Return the newest version of the rules."""
        return self._scoring.book.in_force

    def rules_fault(self) -> str | None:
        """Return in one line why the rules cannot be followed at the moment; None if they are followed."""
        return self._scoring.book.fault

    def stop(self) -> None:
        """Ask the query to end after its current batch."""
        self._running.stop()
