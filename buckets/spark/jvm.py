"""The JVM of this process: which one it is, whether it lives, and its end."""

import contextlib
import os
import signal
from collections.abc import Iterable

from pyspark import SparkContext

from buckets.monitor.processes import process_tree


def jvm_pid() -> int | None:
    """Return the process of this session's JVM; None where there is none."""
    if under_spark_submit():
        return os.getppid()
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def jvm_has_ended() -> bool:
    """Return whether the JVM of this process has been there and is gone."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def kill_jvm() -> None:
    """Kill the JVM and everything that it has started."""
    pid = jvm_pid()
    kill(process for process in (process_tree(pid) if pid is not None else ()) if process != os.getpid())


def kill(processes: Iterable[int]) -> None:
    """Kill processes, as far as they are there."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def under_spark_submit() -> bool:
    """Return whether spark-submit started this process, and with it the JVM, its master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
