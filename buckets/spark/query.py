"""The scoring query: source, fan-out, windows, and one `foreachBatch` that hands results to a sink.

For each micro-batch the driver pins terms and rules, sends them along as local properties, and runs the batch once:
its results are kept until the sink has written them, because running it again would mean scoring again. The accounts of
the batch are checked before anything is written.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from buckets import payload
from buckets.accounting import BatchAccount, account_batch
from buckets.arrival_order import ArrivalOrder
from buckets.hold import held
from buckets.ledger import Ledger, epoch_ms
from buckets.live import messages_behind
from buckets.outputs import ALERTS
from buckets.rule_book import RuleBook
from buckets.rule_route import encode_rule_set
from buckets.rule_set import RuleSet
from buckets.shard import COUNTS
from buckets.spark.fan_out import fan_out_stage
from buckets.spark.rule_route import set_rule_set, set_terms
from buckets.spark.running import Batch, Patience, Running
from buckets.spark.source import Arrivals
from buckets.spark.windows import windows_stage
from buckets.terms import Terms

SHOWN_ALERTS = 1000
"""Alerts of one shard and group that a batch's report carries at the most."""


@dataclass(frozen=True)
class ScoredBatch:
    """A batch that has been scored, and not yet written.

    Attributes:
        account: its accounts, which balance.
        rule_set: its rules.
        terms: what it was judged by beside them.
        rows: how many rows each output has.
        payloads: what is on the driver of each output: all for a sink that asks for it, else what is small of alerts.
        produced: rows of `windows.PRODUCED`, already computed; to be used only by a sink that takes nothing on the
            driver, for anybody else they would be computed again.
    """

    account: BatchAccount
    rule_set: RuleSet
    terms: Terms
    rows: dict[str, int]
    payloads: dict[str, list[bytes]]
    produced: DataFrame


class Sink(Protocol):
    """Where the outputs of a batch go."""

    @property
    def on_driver(self) -> bool:
        """Whether it takes all that was produced on the driver; then nothing is kept in the executors for it."""

    def write(self, batch: ScoredBatch) -> None:
        """Write what a batch produced, once, however often the batch is run."""


@dataclass(frozen=True)
class Scoring:
    """What is scored, how, and where results go."""

    arrivals: Arrivals
    terms: Terms
    """What batches are judged by that begin now."""
    ledger: Ledger
    book: RuleBook
    sink: Sink
    checkpoint: Path
    single_stage: bool = False
    """Whether one task does a whole batch, without a shuffle: least delay, one core."""
    patience: Patience = field(default_factory=Patience)
    """What is done about faults of Kafka."""
    order: ArrivalOrder | None = None
    """What sees that batches arrive one behind the other; None where the source has no order across them."""


@dataclass(frozen=True)
class BatchReport:
    """A batch that is done.

    Attributes:
        account: its accounts.
        scored_s: how long it took from its rules to its results.
        written_s: how long the sink took.
        alerts: its alerts, without those of a shard and group that has more than `SHOWN_ALERTS`.
        written_ms: when its results had been written, in ms since the epoch.
    """

    account: BatchAccount
    scored_s: float
    written_s: float
    alerts: tuple[pa.Table, ...]
    written_ms: int

    @property
    def duration_s(self) -> float:
        """How long the batch took."""
        return self.scored_s + self.written_s


class ScoringQuery:
    """A query from its start to its end."""

    def __init__(self, scoring: Scoring, on_batch: Callable[[BatchReport], None]) -> None:
        """Keep what is needed to start.

        Args:
            scoring: what is scored.
            on_batch: called after each batch.
        """
        self._scoring = scoring
        self._on_batch = on_batch
        self._running = Running(self._begin, self._score_batch, scoring.patience)
        self._query: StreamingQuery | None = None

    def _begin(self, interval_ms: int | None, run_batch: Batch) -> StreamingQuery:
        scoring = self._scoring
        parcels = fan_out_stage(scoring.arrivals.frame, scoring.arrivals.normalise, scoring.terms.event_schema)
        if scoring.single_stage:
            parcels = parcels.coalesce(1)
        produced = windows_stage(parcels)
        writer = produced.writeStream.outputMode("update").foreachBatch(run_batch)
        writer = writer.option("checkpointLocation", str(scoring.checkpoint))
        if interval_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        self._query = writer.start()
        return self._query

    def _score_batch(self, produced: DataFrame, batch_id: int) -> None:
        scoring, started_s = self._scoring, time.perf_counter()
        terms = scoring.ledger.terms_for(batch_id, scoring.terms)
        rule_set = scoring.book.for_batch(batch_id)
        set_rule_set(produced.sparkSession.sparkContext, encode_rule_set(rule_set))
        set_terms(produced.sparkSession.sparkContext, terms)
        kept = not scoring.sink.on_driver
        if kept:
            produced = produced.persist()
        try:
            heads = self._run(produced)
            counts = [bytes(head.payload) for head in heads if head.output == COUNTS]
            account = account_batch(batch_id, rule_set, counts)
            account.check()
            if scoring.order is not None:
                scoring.order.check(batch_id, account.span)
            rows: dict[str, int] = {}
            payloads: dict[str, list[bytes]] = {}
            for head in heads:
                rows[head.output] = rows.get(head.output, 0) + head.rows
                if head.payload is not None:
                    payloads.setdefault(head.output, []).append(bytes(head.payload))
            scored_s = time.perf_counter()
            scoring.sink.write(ScoredBatch(account, rule_set, terms, rows, payloads, produced))
            scoring.book.done(batch_id, rule_set, account.arrived)
            if scoring.order is not None:
                scoring.order.done(batch_id, account.span)
        finally:
            if kept:
                produced.unpersist()
        written_s = time.perf_counter() - scored_s
        small = [head for head in heads if head.output == ALERTS and head.payload and head.rows <= SHOWN_ALERTS]
        alerts = tuple(payload.unpack(bytes(head.payload)) for head in small)
        self._on_batch(BatchReport(account, scored_s - started_s, written_s, alerts, epoch_ms()))

    def _run(self, produced: DataFrame) -> list[Row]:
        """Run the batch: names and sizes of what came out, with what is wanted on the driver."""
        if self._scoring.sink.on_driver:
            return produced.collect()
        small = (F.col("output") == COUNTS) | ((F.col("output") == ALERTS) & (F.col("rows") <= SHOWN_ALERTS))
        return produced.select("output", "rows", F.when(small, F.col("payload")).alias("payload")).collect()

    def run(self, interval_ms: int | None, on_interrupt: Callable[[], None] = lambda: None) -> None:
        """Follow the rules, and run the query until it has ended; an interrupt ends it after the batch that is running.

        Args:
            interval_ms: how often a batch begins; None to do what is there, and end.
            on_interrupt: called when an interrupt has come, before the query has ended.

        Raises:
            BucketsError: it failed, or another query runs on its checkpoint.
            KeyboardInterrupt: it was interrupted, and has ended.
        """
        with self._following():
            self._running.run_until_interrupt(interval_ms, on_interrupt)

    def serve(self, interval_ms: int | None) -> None:
        """As `run`, in any thread and without interrupts; `stop` ends it."""
        with self._following():
            self._running.run(interval_ms)

    @contextlib.contextmanager
    def _following(self) -> Iterator[None]:
        with held(self._scoring.checkpoint.parent):
            try:
                self._scoring.book.start()
                yield
            finally:
                self._scoring.book.stop()

    def progress(self) -> list[dict[str, Any]]:
        """What Spark reports of the latest batches, as plain data."""
        assert self._query is not None
        return [json.loads(progress.json) for progress in self._query.recentProgress]

    def lag(self) -> int | None:
        """How many messages of topics wait to be scored, as of the latest batch; None where that is not known."""
        latest = self._query.lastProgress if self._query is not None else None
        return None if latest is None else messages_behind(json.loads(latest.json))

    def rules_in_force(self) -> RuleSet:
        """The newest version of the rules."""
        return self._scoring.book.in_force

    def rules_fault(self) -> str | None:
        """Why rules are not followed at the moment, in one line; None where they are."""
        return self._scoring.book.fault

    def stop(self) -> None:
        """Ask the query to end after the batch that is running."""
        self._running.stop()
