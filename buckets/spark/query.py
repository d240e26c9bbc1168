"""The scoring query: source, fan-out, windows, and one `foreachBatch` that hands results to a sink.

For each micro-batch the driver pins the rules, sends them along as a local property, and runs the batch once: its
results are kept until the sink has written them, because running it again would mean scoring again. The accounts of the
batch are checked before anything is written.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from buckets.accounting import BatchAccount, account_batch
from buckets.engine_settings import EngineSettings
from buckets.errors import BucketsError
from buckets.event_schema import EventSchema
from buckets.ledger import RuleBook
from buckets.rule_set import RuleSet
from buckets.shard import COUNTS, Scorer
from buckets.spark.fan_out import fan_out_stage
from buckets.spark.rule_route import encode_rule_set, set_rule_set
from buckets.spark.session import log_path
from buckets.spark.source import Arrivals
from buckets.spark.windows import windows_stage

POLL_S = 0.2


class Sink(Protocol):
    """Where the outputs of a batch go."""

    def write(self, produced: DataFrame, rows: dict[str, int], account: BatchAccount, rule_set: RuleSet) -> None:
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


class Stopped(Exception):  # noqa: N818 - no error: a batch that does not begin because the job is stopping
    """Raised in a batch that must not begin, so that it is not committed and runs at the next start."""


class ScoringQuery:
    """A running query."""

    def __init__(self, scoring: Scoring, on_batch: Callable[[BatchAccount], None]) -> None:
        """Keep what is needed to start.

        Args:
            scoring: what is scored.
            on_batch: called after each batch with its accounts.
        """
        self._scoring = scoring
        self._on_batch = on_batch
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
        scoring = self._scoring
        rule_set = scoring.book.for_batch(batch_id)
        set_rule_set(produced.sparkSession.sparkContext, encode_rule_set(rule_set))
        produced = produced.persist()
        try:
            is_count = F.col("output") == COUNTS
            heads = produced.select("output", "rows", F.when(is_count, F.col("payload")).alias("counts")).collect()
            counts = [bytes(head.counts) for head in heads if head.output == COUNTS]
            account = account_batch(batch_id, rule_set, counts)
            account.check()
            rows: dict[str, int] = {}
            for head in heads:
                rows[head.output] = rows.get(head.output, 0) + head.rows
            scoring.sink.write(produced, rows, account, rule_set)
            scoring.book.done(batch_id, rule_set, account.latest_ms)
        finally:
            produced.unpersist()
        self._on_batch(account)

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
        marker = "buckets.errors.BucketsError: "
        if marker in text:
            return BucketsError(text.split(marker, 1)[1].splitlines()[0].strip())
        cause = str(self._error or error).strip().splitlines()
        detail = next((line.strip() for line in reversed(cause) if "Error" in line or "Exception" in line), cause[0])
        message = f"the query failed: {detail[:300]}; nothing of the failed batch is committed, details are in {log_path()}"
        return BucketsError(message)
