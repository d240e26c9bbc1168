"""A streaming query from start to end: interrupts, retries after outages, and failures explained in one line."""

import json
import re
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import ForeachBatchFunction

from buckets.config.settings import SHUTDOWN_WITHIN_MS, STALL_PATIENCE_MS, START_PATIENCE_MS, STORE_PATIENCE_MS
from buckets.duration import format_duration
from buckets.errors import BucketsError, Outage
from buckets.events.source_files import plain_path
from buckets.monitor.query_news import QueryNews
from buckets.spark.session_folder import check_not_ended, last_error, log_path, missing_python
from buckets.spark.stall import Shutdown, StallWatch
from buckets.stores.store_path import StoreAway, away_behind

POLL_S = 0.2
RETRY_S = 1.0
_OURS = re.compile(r"buckets\.errors\.BucketsError: *(\S.*)")
_SLOW_START = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker",
    "Executor heartbeat timed out",
    "SocketTimeoutException: Accept timed out",
)
"""What Spark reports when a process is late, ten seconds for a new Python: the machine is busy."""
_DAMAGED_STATE = (
    "CANNOT_LOAD_STATE_STORE",
    "CANNOT_READ_STREAMING_STATE_FILE",
    "StateStoreChangelogReader",
    "RocksDBException: Corruption",
)
"""What Spark reports when a state file is damaged."""
_UNREADABLE = re.compile(r"Encountered error while reading file (.+?)\.\s+SQLSTATE")
_NO_DESCRIPTORS = "Too many open files"
LONGEST_RETRY_S = 60.0  # The longest pause between two starts of a query; each pause is twice the previous one
MOST_REOPENED = 3  # How often a source is reopened for changed columns before a batch must succeed
_TABLE_CHANGED = "[DELTA_SCHEMA_CHANGED"
"""What Spark reports when a Delta table's columns have changed: the query must be restarted to read them."""
WAITING = "Waiting for "  # The start of an idle query's status: its sources have answered
Batch = Callable[[DataFrame, int], None]


class Stopped(Exception):
    """Raised in a batch that must not begin, so that it stays uncommitted and runs at the next start."""


class OtherColumns(BucketsError):
    """The source must be reopened because its columns have changed; nothing of the batch has begun."""


class SlowStart(BucketsError):
    """A process that Spark started did not answer in time; the query may be restarted."""


@dataclass(frozen=True)
class Patience:
    """What a query waits for, and for how long."""

    outage_s: float = 0.0  # how long to wait for a broker that does not answer
    # explains a fault in one line, given Spark's text; None if neither Kafka nor a store is involved
    explain: Callable[[str], BucketsError | None] = lambda text: None
    # called during an outage of either
    on_outage: Callable[[Outage], None] = lambda outage: None
    # how long to restart Python workers that do not answer; counted anew after each batch
    start_s: float = START_PATIENCE_MS / 1000
    stall_s: float = STALL_PATIENCE_MS / 1000  # how long a batch may show no progress
    # how long the running batch may take to end after a signal
    shutdown_s: float = SHUTDOWN_WITHIN_MS / 1000
    store_s: float = STORE_PATIENCE_MS / 1000  # how long to wait for an object store that does not answer
    # receives a line when a start is retried, when nothing progresses, and when a batch is abandoned
    say: Callable[[str], None] = lambda line: None


class Running:
    """Starts a query, waits for it, and restarts it after an outage or when the machine was too slow."""

    def __init__(self, begin: Callable[[int | None, Batch], StreamingQuery], batch: Batch, patience: Patience) -> None:
        """Prepare a start.

        `begin` starts the query, given the batch interval in ms (None: process what is available and end) and the
        function for `foreachBatch`.
        """
        self._begin, self._batch, self._patience = begin, batch, patience
        self._out_since_s: float | None = None
        self._slow_since_s: float | None = None
        self._retry_s = RETRY_S
        self._reopened = 0
        self._watch = StallWatch(patience.stall_s, patience.say)
        self._shutdown = Shutdown(patience.shutdown_s, lambda: self._watch.doing, patience.say)
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None

    def run(self, interval_ms: int | None) -> None:
        """Run to the end; restart when the source's columns change, and in an outage until it has lasted too long.

        A batch begins every `interval_ms`; None: process what is available and end. An outage ends when a batch is
        done, or when Kafka answers that nothing is new.
        """
        with self._watch:
            while not self._stopping.is_set():
                self._error = None
                self._watch.mark("the start of the query")
                try:
                    self._run_once(interval_ms)
                except OtherColumns as error:
                    self._reopened += 1
                    if self._reopened > MOST_REOPENED:
                        raise BucketsError(error.message) from error
                except (Outage, SlowStart) as error:
                    self._wait_out(error)
                except (Py4JError, ConnectionError) as error:
                    if self._shutdown.is_overdue:
                        self._shutdown.leave()
                    check_not_ended()
                    message = (
                        "Spark's JVM has ended in the middle of the run; nothing of the running batch is committed: "
                        f"start the job again, and it goes on; details are in {log_path()}"
                    )
                    raise BucketsError(message) from error
                else:
                    return

    def _run_once(self, interval_ms: int | None) -> None:
        """Start the query and wait for its end; explain Java's errors at a failed start in one line."""
        try:
            self._query = self._begin(interval_ms, self._guarded)
            self._wait(self._query)
        except Py4JJavaError as error:
            if self._shutdown.is_overdue:
                self._shutdown.leave()
            check_not_ended()
            raise self._plain(error) from error

    def _wait_out(self, error: Outage | SlowStart) -> None:
        """Wait during an outage or on a slow machine, longer each time; raise the error if it lasts too long."""
        now_s, patience = time.monotonic(), self._patience
        if isinstance(error, SlowStart):
            self._slow_since_s = now_s if self._slow_since_s is None else self._slow_since_s
            if now_s - self._slow_since_s >= patience.start_s:
                raise error
            patience.say(f"{error.message}; trying again in {self._retry_s:g} s")
            pause_s, self._retry_s = self._retry_s, min(self._retry_s * 2, LONGEST_RETRY_S)
        else:
            self._out_since_s = now_s if self._out_since_s is None else self._out_since_s
            if now_s - self._out_since_s > (patience.store_s if isinstance(error, StoreAway) else patience.outage_s):
                raise error
            patience.on_outage(error)
            pause_s = RETRY_S
        self._watch.mark("the start of the query", ahead_s=pause_s)
        self._stopping.wait(pause_s)

    def run_until_interrupt(self, interval_ms: int | None, on_interrupt: Callable[[], None]) -> None:
        """Run as `run` does; an interrupt ends the query after its batch, or without it if late; a second one at once.

        `on_interrupt` is called when an interrupt arrives, before the query ends.

        Raises:
            KeyboardInterrupt: the query was interrupted and has ended.
        """

        def on_signal(*_: object) -> None:
            if self._shutdown.ask():
                self.stop()
                on_interrupt()

        self._watch.may_exit = True
        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.run(interval_ms)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._shutdown.is_asked:
            raise KeyboardInterrupt

    def stop(self) -> None:
        """Ask the query to end after its current batch."""
        self._stopping.set()

    def _guarded(self, frame: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set():
            raise Stopped
        self._watch.mark(f"batch {batch_id}")
        try:
            self._batch(frame, batch_id)
        except BaseException as error:
            self._error = error
            raise
        self._watch.mark(f"the end of batch {batch_id}")
        self._out_since_s = self._slow_since_s = None
        self._retry_s, self._reopened = RETRY_S, 0

    def progress(self) -> None:
        """Note that the current batch has made progress."""
        self._watch.mark()

    def _wait(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                if self._stopping.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
                elif SparkContext._active_spark_context is None:
                    message = (
                        "the session was stopped while the query ran; nothing of a batch that was running is "
                        "committed: start it again in another session, and it goes on"
                    )
                    raise BucketsError(message)
                elif self._shutdown.is_overdue:
                    self._shutdown.abandon()
                    query.stop()
                elif self._out_since_s is not None and has_nothing_new(query):
                    self._out_since_s = None
                elif self._watch.wants_news and (not query.status["isTriggerActive"] or has_nothing_new(query)):
                    self._watch.mark("the start of a batch")
        except StreamingQueryException as error:
            check_not_ended()
            if self._shutdown.is_overdue or (self._stopping.is_set() and self._error is None):
                return
            raise self._plain(error) from error

    def _plain(self, error: StreamingQueryException | Py4JJavaError) -> BucketsError:
        if isinstance(self._error, BucketsError):
            return away_behind(self._error) or self._error
        text, cause = str(error), self._error or error
        both, ours = f"{text} {cause}", _OURS.search(text)
        explained = self._patience.explain(text)
        if explained is not None:
            return explained
        if ours is not None:
            return BucketsError(ours[1].strip())
        if any(sign in both for sign in _SLOW_START):
            patience = format_duration(round(self._patience.start_s * 1000))
            message = (
                "a Python worker of Spark did not answer in time, as happens where the machine is very busy or its "
                f"memory is swapped out; it is started again for {patience} (start_patience), nothing of the batch is "
                "committed"
            )
            return SlowStart(message)
        detail, missing = last_error(cause), missing_python(both)
        unreadable = _UNREADABLE.search(text)
        if _NO_DESCRIPTORS in both:
            descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            message = (
                f"a process has reached the limit of {descriptors:,} open files, and the batch could not go on: "
                "nothing of it is committed, raise `ulimit -n` and start again"
            )
        elif unreadable is not None:
            message = (
                f"events {plain_path(unreadable[1])}: cannot be read ({detail}); replace it by a whole file, or remove "
                "it, and start again"
            )
        elif missing is not None:
            return BucketsError(missing)
        elif any(sign in text for sign in _DAMAGED_STATE):
            message = (
                f"the state in the checkpoint cannot be read: one of its files is damaged or missing ({detail}); "
                "restore the whole checkpoint from a copy, with the output of that time, or name a new checkpoint and "
                "output"
            )
        else:
            message = (
                f"the query failed: {detail}; nothing of the failed batch is committed, details are in {log_path()}"
            )
            return OtherColumns(message) if _TABLE_CHANGED in text else BucketsError(message)
        return BucketsError(f"{message}; details are in {log_path()}")


class _EachBatch(ForeachBatchFunction):
    """Calls a function with each batch of a query, always in one session: Spark's own class makes six calls a batch."""

    _session: SparkSession | None = None

    def call(self, jdf: Any, batch_id: int) -> None:
        if self._session is None:
            self._session = SparkSession(self.session.sparkContext, jdf.sparkSession())
        self.func(DataFrame(jdf, self._session), batch_id)


def begin_query(frame: DataFrame, run_batch: Batch, checkpoint: Path, interval_ms: int | None) -> StreamingQuery:
    """Start a query on a Spark checkpoint, a batch every `interval_ms`; None: process what is available and end."""
    session, writer = frame.sparkSession, frame.writeStream.outputMode("update")
    gateway: Any = session.sparkContext._gateway
    helper = gateway.jvm.org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchHelper
    helper.callForeachBatch(writer._jwrite, _EachBatch(session, run_batch))
    ensure_callback_server_started(gateway)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if interval_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()


def news_of(query: StreamingQuery) -> QueryNews:
    """Return Spark's report on the query's latest batch."""
    latest = query.lastProgress
    return QueryNews.of(None if latest is None else json.loads(latest.json), has_nothing_new(query))


def has_nothing_new(query: StreamingQuery) -> bool:
    """Return whether a query is idle: its sources have answered, and there is nothing to process."""
    return bool(query.status["message"].startswith(WAITING))
