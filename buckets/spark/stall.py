"""Ends a start or a query that hangs for any reason: if nothing progresses for too long, the JVM is killed.

A call that waits for the JVM then fails with its connection and reports why. If even that does not help, the process
itself is ended. Nothing is lost: the batch is not committed, and runs again at the next start.
"""

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, Self

from pyspark import SparkContext

from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.exit_codes import DONE, FAILED, INTERRUPTED
from buckets.monitor.processes import process_tree
from buckets.spark.session_folder import end_jvm, kill, kill_jvm, log_path, under_spark_submit

CUT_WITHIN_S = 5.0  # How long an abandoned batch may take to end before the process is ended
LEAVE_WITHIN_S = 10.0  # The longest time for this process to end once its JVM is dead
ONE_SIGNAL_S = 0.5
"""Signals this soon after the first count as the same one: `timeout` sends it to a process and to its group."""


class EndedAtOnce(BucketsError):
    """A second signal has ended the process in the middle of a batch."""

    exit_code = INTERRUPTED


class Shutdown:
    """The end of one query, from the first signal that requests it."""

    def __init__(self, within_s: float, doing: Callable[[], str], say: Callable[[str], None]) -> None:
        """Wait for the first signal."""
        self._within_s = within_s
        self._doing = doing
        self._say = say
        self._asked_s: float | None = None
        self._is_abandoned = False

    @property
    def is_asked(self) -> bool:
        """Return whether a signal has arrived."""
        return self._asked_s is not None

    @property
    def is_overdue(self) -> bool:
        """Return whether the running batch has exceeded its time to end."""
        return self._asked_s is not None and time.monotonic() - self._asked_s >= self._within_s

    def ask(self) -> bool:
        """Take a signal; returns whether it is the first one. A second one ends the process at once."""
        now_s = time.monotonic()
        if self._asked_s is None:
            self._asked_s = now_s
            _later(self._within_s + CUT_WITHIN_S, self.leave)
            return True
        if now_s - self._asked_s > ONE_SIGNAL_S:
            _later(0.0, self._end_at_once)
        return False

    def abandon(self) -> None:
        """Report once that the running batch is abandoned."""
        if not self._is_abandoned:
            self._is_abandoned = True
            self._say(
                f"{self._doing()} did not end within {_duration(self._within_s)}, the limit of "
                "shutdown_within, and is abandoned; nothing of it is committed, and the next start does it again"
            )

    def leave(self) -> None:
        """End the process, whatever it is doing, with the exit code of a stopped job."""
        self.abandon()
        _exit(DONE)

    def _end_at_once(self) -> None:
        message = (
            f"ended at once, in {self._doing()}, by the second signal to stop; nothing of the batch is committed, "
            "start the job again and it goes on"
        )
        if not under_spark_submit():
            end_jvm(EndedAtOnce(message))
            time.sleep(LEAVE_WITHIN_S)
        self._say(message)
        _exit(INTERRUPTED)


def _duration(seconds: float) -> str:
    return format_duration(round(seconds * 1000))


def _exit(code: int) -> None:
    """End this process and its JVM; under spark-submit only the process, since the JVM waits for its exit code."""
    if not under_spark_submit():
        kill_jvm()
    os._exit(code)


def _later(seconds: float, work: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
    return timer


LOOKS = 20  # How often progress is checked within the patience
_TOLD_AFTER, _LEAST_TOLD_S = 0.1, 60.0  # The share of the patience after which a stall is reported, and the least time


class StallWatch:
    """Watches a query while it runs; a context manager."""

    def __init__(self, patience_s: float, say: Callable[[str], None] = lambda line: None) -> None:
        """Start from no stall; `say` receives a line when there has been no progress for some time."""
        self._patience_s = patience_s
        self._told_after_s = max(_TOLD_AFTER * patience_s, _LEAST_TOLD_S)
        self._say = say
        self.may_exit = False  # Whether this process is the query's own, and may be ended with it
        self._marked_s = time.monotonic()
        self.doing = "the start of the query"  # The current activity, in words
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        """Start watching."""
        self.mark("the start of the query")
        watching = (("stall watch", self._watch), ("finished tasks", self._follow_tasks))
        for name, work in watching if math.isfinite(self._patience_s) else ():
            threading.Thread(target=work, name=name, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._closing.set()

    @property
    def wants_news(self) -> bool:
        """Return whether to check now if there is any work at all."""
        return time.monotonic() - self._marked_s > self._patience_s / LOOKS

    def mark(self, doing: str | None = None, ahead_s: float = 0.0) -> None:
        """Record progress, the activity that starts now, and how long it will show no progress."""
        self._marked_s = time.monotonic() + ahead_s
        if doing is not None:
            self.doing = doing

    def _left_s(self) -> float:
        return self._marked_s + self._patience_s - time.monotonic()

    def _watch(self) -> None:
        told_s = 0.0
        while (left_s := self._left_s()) > 0:
            marked_s = self._marked_s
            if marked_s != told_s and time.monotonic() - marked_s >= self._told_after_s:
                told_s, so_far = marked_s, _duration(self._told_after_s)
                self._say(
                    f"{self.doing} has made no progress for {so_far}: no task has ended; Kafka or an object store may "
                    "not answer Spark, or the machine is too slow; it is ended after "
                    f"{_duration(self._patience_s)} (stall_patience)"
                )
            if self._closing.wait(min(left_s, self._told_after_s / LOOKS)):
                return
        stalled = BucketsError(
            f"{self.doing} has made no progress for {_duration(self._patience_s)}, the limit of stall_patience: no "
            "task has ended; nothing of the batch is committed, start the job again and it goes on; where one task may "
            f"well take so long, set stall_patience to more; details are in {log_path()}"
        )
        end_jvm(stalled)
        if self.may_exit and not self._closing.wait(LEAVE_WITHIN_S):
            _leave(stalled)

    def _follow_tasks(self) -> None:
        """Count each finished task as progress; if the JVM does not answer, only this thread hangs."""
        before: set[tuple[int, int]] = set()
        while not self._closing.wait(self._patience_s / LOOKS):
            with contextlib.suppress(Exception):
                done = _finished_tasks()
                if done != before:
                    self.mark()
                before = done


def _finished_tasks() -> set[tuple[int, int]]:
    """Return the number of finished tasks for each running stage."""
    context = SparkContext._active_spark_context
    if context is None:
        return set()
    tracker = context.statusTracker()
    stages = ((stage, tracker.getStageInfo(stage)) for stage in tracker.getActiveStageIds())
    return {(stage, info.numCompletedTasks) for stage, info in stages if info is not None}


def give_up(lost: BucketsError) -> None:
    """End, from any thread, a query that must write nothing more: kill its JVM, and soon afterwards this process."""
    end_jvm(lost)
    time.sleep(LEAVE_WITHIN_S)
    _leave(lost)


def _leave(because: BucketsError) -> NoReturn:
    """End this process, which has not reported the reason itself."""
    print(f"error: {because.message}", file=sys.stderr, flush=True)  # noqa: T201 - nobody else can
    os._exit(FAILED)


@contextlib.contextmanager
def watched_start(patience_ms: int) -> Iterator[None]:
    """Watch the start of a session, or of work that needs one: if it hangs, kill its JVM, which ends the start."""
    before, is_late = set(process_tree(os.getpid())), threading.Event()

    def end() -> None:
        is_late.set()
        kill_jvm()
        # A started JVM that does not answer yet: nobody else knows of it.
        kill(process for process in process_tree(os.getpid()) if process not in before)

    timer = _later(patience_ms / 1000, end)
    try:
        yield
    except KeyboardInterrupt:
        end()
        raise
    except Exception as error:
        if not is_late.is_set():
            raise
        message = (
            f"Spark has not started within {format_duration(patience_ms)}, the limit of start_patience, and was ended; "
            f"nothing is lost, start again; details are in {log_path()}"
        )
        raise BucketsError(message) from error
    finally:
        timer.cancel()
