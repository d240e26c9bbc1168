"""The scoring query: source, fan-out, windows, and one `foreachBatch` that hands results to a sink.

For each micro-batch the driver pins the rules, sends them along as a local property, and runs the batch once: its
results are kept until the sink has written them, because running it again would mean scoring again. The accounts of the
batch are checked before anything is written.
"""

import json
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from buckets import payload
from buckets.accounting import BatchAccount, account_batch
from buckets.engine_settings import EngineSettings
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.kafka.faults import Outage
from buckets.ledger import epoch_ms
from buckets.live import messages_behind
from buckets.outputs import ALERTS
from buckets.rule_book import RuleBook
from buckets.rule_route import encode_rule_set
from buckets.rule_set import RuleSet
from buckets.shard import COUNTS, Scorer
from buckets.spark.fan_out import fan_out_stage
from buckets.spark.rule_route import set_rule_set
from buckets.spark.session import log_path
from buckets.spark.source import Arrivals
from buckets.spark.windows import windows_stage

POLL_S = 0.2
RETRY_S = 1.0
SHOWN_ALERTS = 1000
"""Alerts of one shard and group that a batch's report carries at the most."""


@dataclass(frozen=True)
class ScoredBatch:
    """A batch that has been scored, and not yet written.

    Attributes:
        account: its accounts, which balance.
        rule_set: its rules.
        rows: how many rows each output has.
        payloads: what is on the driver of each output: all for a sink that asks for it, else what is small of alerts.
        produced: rows of `windows.PRODUCED`, already computed; to be used only by a sink that takes nothing on the
            driver, for anybody else they would be computed again.
    """

    account: BatchAccount
    rule_set: RuleSet
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
    schema: EventSchema
    engine: EngineSettings
    book: RuleBook
    sink: Sink
    evaluations: bool
    checkpoint: Path
    single_stage: bool = False
    """Whether one task does a whole batch, without a shuffle: least delay, one core."""
    outage_patience_s: float = 0.0
    """For how long a broker that does not answer is waited for."""
    explain: Callable[[str], BucketsError | None] | None = None
    """What says a fault of the source in one line, given Spark's text of it."""


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


class Stopped(Exception):
    """Raised in a batch that must not begin, so that it is not committed and runs at the next start."""


class ScoringQuery:
    """A running query."""

    def __init__(
        self,
        scoring: Scoring,
        on_batch: Callable[[BatchReport], None],
        on_outage: Callable[[Outage], None] = lambda outage: None,
    ) -> None:
        """Keep what is needed to start.

        Args:
            scoring: what is scored.
            on_batch: called after each batch.
            on_outage: called when Kafka does not answer and is waited for.
        """
        self._scoring = scoring
        self._on_batch = on_batch
        self._on_outage = on_outage
        self._batches = 0
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None

    def start(self, interval_ms: int | None) -> None:
        """Start the query.

        Args:
            interval_ms: how often a batch begins; None to do what is there, and end.
        """
        scoring = self._scoring
        parcels = fan_out_stage(scoring.arrivals.frame, scoring.arrivals.normalise, scoring.schema, scoring.engine)
        if scoring.single_stage:
            parcels = parcels.coalesce(1)
        produced = windows_stage(parcels, Scorer(scoring.schema, scoring.engine, scoring.evaluations))
        writer = produced.writeStream.outputMode("update").foreachBatch(self._run_batch)
        writer = writer.option("checkpointLocation", str(scoring.checkpoint))
        if interval_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        self._query = writer.start()

    def _run_batch(self, produced: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set():
            raise Stopped
        try:
            self._score_batch(produced, batch_id)
        except BaseException as error:
            self._error = error
            raise

    def _score_batch(self, produced: DataFrame, batch_id: int) -> None:
        scoring, started_s = self._scoring, time.perf_counter()
        rule_set = scoring.book.for_batch(batch_id)
        set_rule_set(produced.sparkSession.sparkContext, encode_rule_set(rule_set))
        kept = not scoring.sink.on_driver
        if kept:
            produced = produced.persist()
        try:
            heads = self._run(produced)
            counts = [bytes(head.payload) for head in heads if head.output == COUNTS]
            account = account_batch(batch_id, rule_set, counts)
            account.check()
            rows: dict[str, int] = {}
            payloads: dict[str, list[bytes]] = {}
            for head in heads:
                rows[head.output] = rows.get(head.output, 0) + head.rows
                if head.payload is not None:
                    payloads.setdefault(head.output, []).append(bytes(head.payload))
            scored_s = time.perf_counter()
            scoring.sink.write(ScoredBatch(account, rule_set, rows, payloads, produced))
            scoring.book.done(batch_id, rule_set, account.latest_ms)
        finally:
            if kept:
                produced.unpersist()
        written_s = time.perf_counter() - scored_s
        self._batches += 1
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
        """Start the query and wait until it has ended; an interrupt ends it after the batch that is running.

        Args:
            interval_ms: as for `start`.
            on_interrupt: called when an interrupt has come, before the query has ended.

        Raises:
            BucketsError: it failed.
            KeyboardInterrupt: it was interrupted, and has ended.
        """
        interrupted = threading.Event()

        def on_signal(*_: object) -> None:
            interrupted.set()
            self.stop()
            on_interrupt()

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.serve(interval_ms)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if interrupted.is_set():
            raise KeyboardInterrupt

    def serve(self, interval_ms: int | None) -> None:
        """Follow the rules and run the query until it has ended, in any thread; `stop` ends it.

        Args:
            interval_ms: as for `start`.

        Raises:
            BucketsError: it failed.
        """
        try:
            self._scoring.book.start()
            self._run_through_outages(interval_ms)
        finally:
            self._scoring.book.stop()

    def _run_through_outages(self, interval_ms: int | None) -> None:
        """Run to the end; after an outage start again, until it has lasted too long."""
        out_since_s: float | None = None
        while not self._stopping.is_set():
            self._error, batches = None, self._batches
            try:
                self.start(interval_ms)
                self.wait()
            except Outage as error:
                now_s = time.monotonic()
                out_since_s = now_s if out_since_s is None or self._batches > batches else out_since_s
                if now_s - out_since_s > self._scoring.outage_patience_s:
                    raise
                self._on_outage(error)
                self._stopping.wait(RETRY_S)
            else:
                return

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

    def stop(self) -> None:
        """Ask the query to end after the batch that is running."""
        self._stopping.set()

    def wait(self) -> None:
        """Wait until the query has ended.

        Raises:
            BucketsError: it failed.
        """
        query = self._query
        assert query is not None
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                if self._stopping.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
        except StreamingQueryException as error:
            if self._stopping.is_set() and self._error is None:
                return
            raise self._plain(error) from error

    def _plain(self, error: StreamingQueryException) -> BucketsError:
        """The failure as one line."""
        if isinstance(self._error, BucketsError):
            return self._error
        text = str(error)
        if self._scoring.explain is not None:
            explained = self._scoring.explain(text)
            if explained is not None:
                return explained
        marker = "buckets.errors.BucketsError: "
        if marker in text:
            return BucketsError(text.split(marker, 1)[1].splitlines()[0].strip())
        cause = str(self._error or error).strip().splitlines()
        detail = next((line.strip() for line in reversed(cause) if "Error" in line or "Exception" in line), cause[0])
        message = (
            f"the query failed: {detail[:300]}; nothing of the failed batch is committed, details are in {log_path()}"
        )
        return BucketsError(message)
