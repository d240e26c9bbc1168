"""The end of a query that a signal asks for: after the batch that is running, within a time; at once by a second one.

A batch that does not end within that time is abandoned: nothing of it is committed, and the next start does it again.
What does not even let go of it, a JVM that hangs or a write that waits for a disk, goes with the process.
"""

import os
import threading
import time
from collections.abc import Callable

from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.exit_codes import DONE, INTERRUPTED
from buckets.spark.jvm import end_jvm, kill_jvm, under_spark_submit

CUT_WITHIN_S = 5.0
"""For how long a batch that is abandoned may take to end, before the process is ended with it."""
LEAVE_WITHIN_S = 10.0
"""How long this process takes at most to end, once its JVM is dead."""
ONE_SIGNAL_S = 0.5
"""Signals that come so soon after the first one are that one: `timeout` sends it to a process, and to its group."""


class EndedAtOnce(BucketsError):
    """A second signal ended the process in the middle of a batch."""

    exit_code = INTERRUPTED


class Shutdown:
    """The end of one query, from the first signal that asks for it."""

    def __init__(self, within_s: float, doing: Callable[[], str], say: Callable[[str], None]) -> None:
        """Wait for the first signal.

        Args:
            within_s: how long the running batch may take to end.
            doing: says what the query does, in words.
            say: told a line when a batch is abandoned.
        """
        self._within_s = within_s
        self._doing = doing
        self._say = say
        self._asked_s: float | None = None
        self._is_abandoned = False

    @property
    def is_asked(self) -> bool:
        """Return whether a signal has come."""
        return self._asked_s is not None

    @property
    def is_overdue(self) -> bool:
        """Return whether the time is over in which the running batch was to end."""
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
        """Say, once, that the running batch is abandoned."""
        if not self._is_abandoned:
            self._is_abandoned = True
            self._say(
                f"{self._doing()} did not end within {format_duration(round(self._within_s * 1000))}, the limit of "
                "shutdown_within, and is abandoned; nothing of it is committed, and the next start does it again"
            )

    def leave(self) -> None:
        """End the process, with whatever it does, as a job ends that was stopped."""
        self.abandon()
        _exit(DONE)

    def _end_at_once(self) -> None:
        message = (
            f"ended at once, in {self._doing()}, by the second signal to stop; nothing of the batch is committed, "
            "start the job again and it goes on"
        )
        if under_spark_submit():
            self._say(message)
            _exit(INTERRUPTED)
        end_jvm(EndedAtOnce(message))
        time.sleep(LEAVE_WITHIN_S)
        self._say(message)
        _exit(INTERRUPTED)


def _exit(code: int) -> None:
    """End this process and its JVM, where spark-submit does not wait for the code of this one in it."""
    if not under_spark_submit():
        kill_jvm()
    os._exit(code)


def _later(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
