"""Starts a job anew in its own process once the object store answers again that has cost it its lease.

A job that cannot renew its lease must write nothing more, in any thread of this process or of Spark. So the JVM is
killed, and the same command takes the place of this process. It waits for the store, takes the lease if nobody has,
and goes on with the batch that was not done.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from buckets.checkpoint.lock import LostLease
from buckets.cli.console import Terminal
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.exit_codes import DONE
from buckets.monitor.processes import process_tree
from buckets.stores.store_path import away_behind

T = TypeVar("T")
WAITS = "BUCKETS_WAITS_FOR_STORE"
"""In the environment of a job that has begun anew: since when and until when it waits, in s of the steady clock."""
_AGAIN_AFTER_S = 1.0
_GONE_WITHIN_S = 1.0  # How long killed processes are waited for
_POLL_S = 0.01


class StartOver:
    """The outage of a store that one start of a job waits for, after the one before has ended by it."""

    def __init__(self, log: Terminal) -> None:
        """Look whether the job has begun anew; `log` is told what is waited for, and that it is over."""
        self._log = log
        waits = os.environ.pop(WAITS, None)
        self._since_s, self._until_s = (0.0, 0.0) if waits is None else map(float, waits.split())
        self._is_stopping = False
        self._ending = threading.Lock()

    @property
    def _is_waiting(self) -> bool:
        return time.monotonic() < self._until_s

    def through(self, step: Callable[[], T]) -> T:
        """Do a step of the start; where an outage is waited for, until the store answers."""
        while True:
            try:
                return step()
            except BucketsError as error:
                if not self._is_waiting or away_behind(error) is None:
                    raise
            time.sleep(_AGAIN_AFTER_S)

    def answers(self) -> None:
        """Take in that the store answers, and say so."""
        if self._until_s:
            away = format_duration(round(time.monotonic() - self._since_s) * 1000)
            self._log.tell(f"the store answers again after {away}; the job begins anew")

    def is_over(self) -> None:
        """Take in that a batch is done: what comes now is another outage."""
        self._since_s = self._until_s = 0.0

    def is_stopping(self) -> None:
        """Take in that somebody has asked the job to end."""
        self._is_stopping = True

    @contextlib.contextmanager
    def after_faults(self, patience_ms: int) -> Iterator[None]:
        """Begin anew after a fault of the `with`, as `after`."""
        try:
            yield
        except BaseException as fault:
            self.after(fault, patience_ms)
            raise

    def after(self, fault: BaseException, patience_ms: int) -> None:
        """Begin anew after a fault; return where that does not help, or the store has been away for too long.

        Where the lease is lost, its thread comes here, and all that fails because of it.

        Args:
            fault: a lease that nobody has taken, or a store that is away while the job begins anew.
            patience_ms: how long a store is waited for.
        """
        with self._ending:
            self._after(fault, patience_ms)

    def _after(self, fault: BaseException, patience_ms: int) -> None:
        from buckets.spark.session_folder import under_spark_submit

        may_pass = not fault.is_taken if isinstance(fault, LostLease) else away_behind(fault) is not None
        if under_spark_submit() or not may_pass:
            return
        now_s = time.monotonic()
        if isinstance(fault, LostLease) and not self._until_s:
            self._since_s, self._until_s = now_s, now_s + patience_ms / 1000
            if self._is_waiting and not self._is_stopping:
                waited = f"waiting for up to {format_duration(patience_ms)} (store_patience)"
                self._log.tell(f"{fault.reason}; nothing more is written, {waited} until the store answers", "warning")
        if not self._is_waiting:
            return
        _end_children()
        if self._is_stopping:
            self._log.tell("stopped while the store did not answer; start it again to go on")
            os._exit(DONE)
        self._begin_anew()

    def _begin_anew(self) -> NoReturn:
        for name in os.listdir("/proc/self/fd"):
            if int(name) > sys.stderr.fileno():
                with contextlib.suppress(OSError):
                    os.set_inheritable(int(name), False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        os.environ[WAITS] = f"{self._since_s} {self._until_s}"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _end_children() -> None:
    """Kill all that this process has started, the JVM with its workers, and wait for their end."""
    from buckets.spark.session_folder import kill

    kill(process for process in process_tree(os.getpid()) if process != os.getpid())
    until_s = time.monotonic() + _GONE_WITHIN_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until_s:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(_POLL_S)
