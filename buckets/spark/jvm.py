"""The JVM of this process: which one it is, whether it lives, its signals, and its end."""

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from buckets.errors import BucketsError
from buckets.monitor.processes import process_tree

_SUBMITTER = os.getppid()
"""The JVM of spark-submit, where that has started this process; when it has ended, something else is the parent."""
_SIGNALS = ("TERM", "INT")
_ended_because: BucketsError | None = None


def jvm_pid() -> int | None:
    """Return the process of this session's JVM; None where there is none."""
    if under_spark_submit():
        return None if jvm_has_ended() else _SUBMITTER
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def jvm_has_ended() -> bool:
    """Return whether the JVM of this process has been there and is gone."""
    if under_spark_submit():
        return os.getppid() != _SUBMITTER
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def has_class(name: str) -> bool:
    """Return whether the JVM, which has been started, finds a class among its jars."""
    assert SparkContext._jvm is not None
    try:
        SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def kill_jvm() -> None:
    """Kill the JVM and everything that it has started."""
    pid = jvm_pid()
    kill(process for process in (process_tree(pid) if pid is not None else ()) if process != os.getpid())


def kill(processes: Iterable[int]) -> None:
    """Kill processes, as far as they are there."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def end_jvm(because: BucketsError) -> None:
    """Kill the JVM. Whoever waits for it is told by the end of its connection, and reports why."""
    global _ended_because
    _ended_because = because
    kill_jvm()


def check_not_ended() -> None:
    """Tell why the JVM is gone, where this process has ended it.

    Raises:
        BucketsError: it has.
    """
    if _ended_because is not None:
        raise _ended_because


def under_spark_submit() -> bool:
    """Return whether spark-submit started this process, and with it the JVM, its master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _ToPython:
    """Java's view of what takes a signal to the JVM: this process gets it in its place."""

    class Java:
        """What the class is to Java."""

        implements = ("sun.misc.SignalHandler",)

    def handle(self, taken: Any) -> None:
        """Take a signal, as Java calls it."""
        os.kill(os.getpid(), taken.getNumber())


def take_signals() -> None:
    """Leave it to this process what a signal to end means: Java would end Spark's session in the middle of a batch.

    Under spark-submit the JVM is the process that others know and send signals to, so it hands them over. Elsewhere
    it ignores those that come to all processes of a group.
    """
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = gateway.jvm
    if under_spark_submit():
        ensure_callback_server_started(gateway)
        handler: Any = _ToPython()
    else:
        handler = jvm.sun.misc.SignalHandler.SIG_IGN
    for name in _SIGNALS:
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), handler)
