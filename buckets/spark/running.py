"""A streaming query from its start to its end: interrupts, outages that are waited for, and failures in one line."""

import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from buckets.errors import BucketsError, first_line
from buckets.kafka.faults import Outage
from buckets.spark.session import log_path

POLL_S = 0.2
RETRY_S = 1.0
_OURS = re.compile(r"buckets\.errors\.BucketsError: *(\S.*)")
_SLOW_START = "Python worker failed to connect back"
"""What Spark says of a Python that it has started and that does not answer within ten seconds: the machine is busy."""
STARTS = 5
"""How often a query is started before its Python is given up; counted again after each batch."""
WAITING = "Waiting for "
"""How the status of a query begins whose trigger is done: its sources have answered."""
Batch = Callable[[DataFrame, int], None]


class Stopped(Exception):
    """Raised in a batch that must not begin, so that it is not committed and runs at the next start."""


class SlowStart(BucketsError):
    """A Python that Spark has started did not answer in time; the query may be started again."""


@dataclass(frozen=True)
class Patience:
    """What is done about faults of Kafka.

    Attributes:
        outage_s: for how long a broker that does not answer is waited for.
        explain: what says a fault in one line, given Spark's text of it; None where Kafka has no part in it.
        on_outage: called when Kafka does not answer and is waited for.
    """

    outage_s: float = 0.0
    explain: Callable[[str], BucketsError | None] = lambda text: None
    on_outage: Callable[[Outage], None] = lambda outage: None


class Running:
    """Starts a query, waits for it, and starts it again after an outage, or where a busy machine was too slow."""

    def __init__(self, begin: Callable[[int | None, Batch], StreamingQuery], batch: Batch, patience: Patience) -> None:
        """Keep what is needed to start.

        Args:
            begin: starts the query, given the interval of its batches in ms (None: do what is there, and end) and what
                its `foreachBatch` calls.
            batch: what is done with a batch.
            patience: what is done about faults of Kafka.
        """
        self._begin = begin
        self._batch = batch
        self._patience = patience
        self._out_since_s: float | None = None
        self._slow_starts = 0
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None

    def run(self, interval_ms: int | None) -> None:
        """Run to the end; after an outage start again, until it has lasted too long.

        An outage lasts until a batch is done, or until Kafka has said that there is nothing new.

        Args:
            interval_ms: how often a batch begins; None to do what is there, and end.

        Raises:
            BucketsError: it failed.
        """
        while not self._stopping.is_set():
            self._error = None
            try:
                self._query = self._begin(interval_ms, self._guarded)
                self._wait(self._query)
            except Outage as error:
                now_s = time.monotonic()
                self._out_since_s = now_s if self._out_since_s is None else self._out_since_s
                if now_s - self._out_since_s > self._patience.outage_s:
                    raise
                self._patience.on_outage(error)
                self._stopping.wait(RETRY_S)
            except SlowStart:
                self._slow_starts += 1
                if self._slow_starts == STARTS:
                    raise
                self._stopping.wait(RETRY_S)
            else:
                return

    def run_until_interrupt(self, interval_ms: int | None, on_interrupt: Callable[[], None]) -> None:
        """Run to the end; an interrupt ends it after the batch that is running.

        Args:
            interval_ms: as for `run`.
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
            self.run(interval_ms)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if interrupted.is_set():
            raise KeyboardInterrupt

    def stop(self) -> None:
        """Ask the query to end after the batch that is running."""
        self._stopping.set()

    def _guarded(self, frame: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set():
            raise Stopped
        try:
            self._batch(frame, batch_id)
        except BaseException as error:
            self._error = error
            raise
        self._out_since_s = None
        self._slow_starts = 0

    def _wait(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                if self._stopping.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
                elif self._out_since_s is not None and query.status["message"].startswith(WAITING):
                    self._out_since_s = None
        except StreamingQueryException as error:
            if self._stopping.is_set() and self._error is None:
                return
            raise self._plain(error) from error
        except (Py4JNetworkError, ConnectionError) as error:
            message = (
                "Spark's JVM has ended in the middle of the run; nothing of the running batch is committed: start the "
                f"job again, and it goes on; details are in {log_path()}"
            )
            raise BucketsError(message) from error

    def _plain(self, error: StreamingQueryException) -> BucketsError:
        """The failure as one line."""
        if isinstance(self._error, BucketsError):
            return self._error
        text = str(error)
        explained = self._patience.explain(text)
        if explained is not None:
            return explained
        ours = _OURS.search(text)
        if ours is not None:
            return BucketsError(ours[1].strip())
        cause = self._error or error
        said = [line.strip() for line in str(cause).splitlines() if "Error" in line or "Exception" in line]
        detail = said[-1] if said else first_line(cause)
        message = (
            f"the query failed: {detail[:300]}; nothing of the failed batch is committed, details are in {log_path()}"
        )
        return SlowStart(message) if _SLOW_START in f"{text} {cause}" else BucketsError(message)
