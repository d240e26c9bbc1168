"""The JVM of this process, and where its session has its files."""

import atexit
import contextlib
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from buckets.errors import BucketsError
from buckets.monitor.processes import process_tree
from buckets.spark.session_folder import SessionFolder, SessionLogs

_SUBMITTER = os.getppid()
"""The JVM of spark-submit, where that has started this process; when it has ended, something else is the parent."""
_SIGNALS = ("TERM", "INT")
_ended_because: BucketsError | None = None


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
    process = getattr(SparkContext._gateway, "proc", None)
    pid = None if process is None else int(process.pid)
    if under_spark_submit():
        pid = None if jvm_has_ended() else _SUBMITTER
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
    """Tell why the JVM is gone, where this process has ended it."""
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


LONGEST_SOCKET_PATH = 103  # Of macOS; Linux has four more
LONGEST_SOCKET_NAME = len("/s/.00000000-0000-0000-0000-000000000000.sock")
SHARDS = "BUCKETS_SHARDS"  # The environment variable that tells workers where they remember shards
ALLOCATORS = "MALLOC_ARENA_MAX"
"""How many heaps of their own glibc has for the threads of a process: by default eight for each core, and none of them
is given back. Of a JVM's 2.3 GB after a million payments over 13 groupings, 2.0 are left with two."""
SHARED_MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 << 30
"""A file system in memory, and how much room it must have: that of containers often has 64 MB."""
_LOG4J = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class SessionPlaces:
    """Where the session of this process has its files."""

    folder: SessionFolder  # what it needs only while it runs
    shards: Path  # what its workers remember of shards
    logs: SessionLogs | None  # what Spark says; None where spark-submit has decided where that goes

    def environment(self) -> dict[str, str]:
        """Return what the JVM and its workers find in their environment."""
        own = {"TMPDIR": str(self.folder.part("tmp")), SHARDS: str(self.shards)}
        own[ALLOCATORS] = os.environ.get(ALLOCATORS, "2")
        return own if self.logs is None else own | {"BUCKETS_LOGS": str(self.logs.path)}

    def settings(self, java_options: str, has_executors: bool) -> dict[str, str]:
        """Return Spark's settings that name them; machines of executors do not have these folders."""
        temporary = self.folder.part("tmp")
        options = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", f'-Djava.io.tmpdir="{temporary}"']
        if self.logs is not None:
            options.append(f'-XX:ErrorFile="{self.logs.path / "jvm-crash.log"}"')
        of_driver = {"spark.driver.extraJavaOptions": " ".join((*options, java_options)).strip()}
        if has_executors:
            return of_driver
        folder = self.folder
        if len(str(folder.path)) + LONGEST_SOCKET_NAME > LONGEST_SOCKET_PATH:
            folder = SessionFolder(Path("/tmp") / f"buckets-{os.getuid()}")
            atexit.register(folder.remove)
        return of_driver | {
            "spark.local.dir": str(self.folder.part("spark")),
            "spark.python.unix.domain.socket.dir": str(folder.part("s")),
        }

    @contextlib.contextmanager
    def inherited(self) -> Iterator[None]:
        """While the JVM starts, have its environment and its standard error as it shall inherit them."""
        before = {name: os.environ.get(name) for name in self.environment()}
        os.environ.update(self.environment())
        try:
            with contextlib.nullcontext() if self.logs is None else self.logs.take_stderr():
                yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


_places: SessionPlaces | None = None


def log_path() -> str:
    """Return where Spark's own log of this process is, in words."""
    return str(_places.logs.path) if _places is not None and _places.logs is not None else "the log of spark-submit"


def open_places(logs: Path | None) -> SessionPlaces:
    """Return the places of this process, made by the first session; without a folder, logs are in the temporary one."""
    global _places
    if _places is None:
        folder = SessionFolder()
        atexit.register(folder.remove)
        own = None if under_spark_submit() else SessionLogs(logs or folder.new_logs())
        _places = SessionPlaces(folder, shards_of(folder), own)
    return _places


def shards_of(folder: SessionFolder) -> Path:
    """Return a folder for what workers remember, in memory where that has room."""
    if SHARED_MEMORY.is_mount() and shutil.disk_usage(SHARED_MEMORY).free >= ROOM_BYTES:
        with contextlib.suppress(BucketsError, OSError):
            in_memory = SessionFolder(SHARED_MEMORY / f"buckets-{os.getuid()}")
            atexit.register(in_memory.remove)
            return in_memory.part("shards")
    return folder.part("shards")
