"""The Spark session: versions and every setting that is not Spark's default, each with its reason."""

import atexit
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from buckets.config.settings import START_PATIENCE_MS
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.java.jars import jar_paths
from buckets.java.java import find_java
from buckets.monitor.processes import process_tree
from buckets.spark.session_folder import SessionFolder
from buckets.spark.session_logs import SessionLogs

STOP_WITHIN_S = 30.0
LONGEST_SOCKET_PATH = 103
"""Of macOS; Linux has four more."""
LONGEST_SOCKET_NAME = len("/s/.00000000-0000-0000-0000-000000000000.sock")
NEEDED_DESCRIPTORS = 1024
"""Open files with which a JVM starts, and a job of some shards runs."""
_LOG4J = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_OF_SPARK_SUBMIT = {
    "spark.master",
    "spark.driver.memory",
    "spark.driver.extraClassPath",
    "spark.jars",
    "spark.local.dir",
    "spark.python.unix.domain.socket.dir",
    _JAVA_OPTIONS,
}
"""What spark-submit has decided already."""
SETTINGS: Mapping[str, str] = {
    # Timelines lie in RocksDB, and each batch writes its changes, not the whole store: the state's commit of a small
    # batch, median, takes 23 ms without the second setting, and 1 ms so.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Without a count of all entries, for which each put reads first: RocksDB's own time for 226,000 puts of new keys
    # is 1.4 s with it, and 0.7 s without.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Checksum files double the small files of a checkpoint; RocksDB and Parquet keep checksums of their own. Time of
    # a small batch: no difference beyond noise.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Local files without a process forked for each (`chmod`, `readlink`), which Hadoop does where it has no native
    # library: a batch writes about ten small files. Both logs of a batch together: 120 ms before, 6 ms so.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Between the JVM and Python workers go Unix sockets. Over TCP a small batch waits 40 ms for a delayed
    # acknowledgement, more than once: 260 ms a batch before, 203 ms so.
    "spark.python.unix.domain.socket.enabled": "true",
    # A batch reaches Python in few large pieces.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # Streams are not re-planned while they run.
    "spark.sql.adaptive.enabled": "false",
    # Field names of users are told apart by case, as JSON does.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # One text file is read whole by one task, so that its lines can be numbered.
    "spark.sql.files.maxPartitionBytes": str(2**40),
    "spark.sql.files.openCostInBytes": str(2**40),
    # A Delta snapshot of a small table in two tasks, not fifty.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A machine that is very busy, or was asleep, is no reason to end: Python is waited for two minutes and not 15 s
    # to prove who it is, an executor ten minutes and not two to be heard of.
    "spark.python.authenticate.socketTimeout": "2m",
    "spark.network.timeout": "10m",
    "spark.ui.enabled": "false",
    # What the pages of the user interface would show is kept without it too, a thousand batches of it with their plans.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True)
class _Places:
    """Where the session of this process has its files.

    Attributes:
        folder: what it needs only while it runs.
        logs: what Spark says; None where spark-submit has decided where that goes.
    """

    folder: SessionFolder
    logs: SessionLogs | None

    def environment(self) -> dict[str, str]:
        """What the JVM and its workers find in their environment."""
        found = {"TMPDIR": str(self.folder.part("tmp"))}
        return found if self.logs is None else found | {"BUCKETS_LOGS": str(self.logs.path)}

    def settings(self, java_options: str) -> dict[str, str]:
        """Spark's settings that name them.

        Args:
            java_options: of the user.
        """
        temporary = self.folder.part("tmp")
        options = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", f'-Djava.io.tmpdir="{temporary}"']
        if self.logs is not None:
            options.append(f'-XX:ErrorFile="{self.logs.path / "jvm-crash.log"}"')
        return {
            "spark.local.dir": str(self.folder.part("spark")),
            "spark.python.unix.domain.socket.dir": str(_sockets(self.folder)),
            "spark.driver.extraJavaOptions": " ".join((*options, java_options)).strip(),
        }


_places: _Places | None = None


def log_path() -> str:
    """Where Spark's own log of this process is, in words."""
    return str(_places.logs.path) if _places is not None and _places.logs is not None else "the log of spark-submit"


def jvm_pid() -> int | None:
    """The process of this session's JVM; None where there is none."""
    if under_spark_submit():
        return os.getppid()
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def _jvm_has_ended() -> bool:
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _sockets(folder: SessionFolder) -> Path:
    """A folder for sockets, whose paths have to be short."""
    if len(str(folder.path)) + LONGEST_SOCKET_NAME > LONGEST_SOCKET_PATH:
        folder = SessionFolder(Path("/tmp") / f"buckets-{os.getuid()}")
        atexit.register(folder.remove)
    return folder.part("s")


def _open_places(logs: Path | None) -> _Places:
    global _places
    if _places is None:
        folder = SessionFolder()
        atexit.register(folder.remove)
        own = None if under_spark_submit() else SessionLogs(logs or folder.new_logs())
        _places = _Places(folder, own)
    return _places


@contextlib.contextmanager
def _for_the_jvm(places: _Places) -> Iterator[None]:
    """While the JVM starts, have its environment and its standard error as it shall inherit them."""
    before = {name: os.environ.get(name) for name in places.environment()}
    os.environ.update(places.environment())
    try:
        with contextlib.nullcontext() if places.logs is None else places.logs.take_stderr():
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep what an interrupt does: a session would have it ask the JVM first, which may not answer."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def watched_start(patience_ms: int = START_PATIENCE_MS) -> Iterator[None]:
    """Watch over the start of a session or of what needs one: where it hangs, its JVM is killed, and the start ends.

    Args:
        patience_ms: how long it may take.

    Raises:
        BucketsError: it has taken longer.
    """
    before, is_late = set(process_tree(os.getpid())), threading.Event()

    def end() -> None:
        is_late.set()
        kill_jvm()
        # A JVM that has been started and does not answer yet: nobody else knows of it.
        _kill(each for each in process_tree(os.getpid()) if each not in before)

    timer = threading.Timer(patience_ms / 1000, end)
    timer.daemon = True
    timer.start()
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


def start_session(
    name: str,
    shards: int,
    extra: Mapping[str, str | int | bool] | None = None,
    logs: Path | None = None,
    patience_ms: int = START_PATIENCE_MS,
) -> SparkSession:
    """A session for one job.

    Args:
        name: shown by Spark's tools.
        shards: of the engine; there are no more shuffle partitions than that.
        extra: Spark settings of the user, which win.
        logs: a folder for what Spark says; None: in the temporary folder, where the latest few are kept.
        patience_ms: how long the start may take.

    Raises:
        BucketsError: no suitable Java, it does not start or takes too long, or the jars cannot be fetched.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _quiet_py4j()
    if not under_spark_submit():
        find_java()
    places = _open_places(logs)
    builder = SparkSession.builder.appName(name)
    for key, value in _all_settings(places, shards, extra or {}).items():
        builder = builder.config(key, value)
    try:
        with watched_start(patience_ms), _for_the_jvm(places), _own_interrupts():
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        message = f"Spark's JVM does not start; {_probable_cause()}; details: {log_path()}"
        raise BucketsError(message) from error
    _quiet_accumulators(session.sparkContext)
    atexit.register(_AtExit(session))
    return session


def _probable_cause() -> str:
    """Return what keeps a JVM from starting, most likely, and what to do about it."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= descriptors < NEEDED_DESCRIPTORS:
        return f"a process may have {descriptors} files open, and it needs {NEEDED_DESCRIPTORS}: raise `ulimit -n`"
    return "is there an option of Java under `spark`?"


def _all_settings(places: _Places, shards: int, extra: Mapping[str, str | int | bool]) -> dict[str, str]:
    """All settings of a session; those of the user win."""
    cores, jars = os.cpu_count() or 2, jar_paths()
    own = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in extra.items()}
    settings = {
        **SETTINGS,
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(min(shards, cores)),
        "spark.jars": ",".join(str(path) for path in jars),
        # Spark looks for its own jars with the file system of `fs.file.impl`, so that must be there from the start.
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in jars),
        **own,
        **{
            key: value
            for key, value in places.settings(own.get(_JAVA_OPTIONS, "")).items()
            if key not in own or key == _JAVA_OPTIONS
        },
    }
    return {key: value for key, value in settings.items() if not (under_spark_submit() and key in _OF_SPARK_SUBMIT)}


def _quiet_py4j() -> None:
    """Keep what py4j says of a JVM that has ended from people: they are told in one line."""
    # It says it in the name of the root logger.
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").propagate = False
    logging.getLogger("py4j").addHandler(logging.NullHandler())


def _quiet_accumulators(context: SparkContext) -> None:
    """Keep what the server of accumulators says of a JVM that has ended from people."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


class _AtExit:
    """Stops a session when the process ends, which removes its socket; a JVM that does not stop is killed.

    Where the JVM has died, there is nothing left to stop.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._began = threading.Event()
        self._done = threading.Event()
        # A thread cannot be started any more when the interpreter ends.
        threading.Thread(target=self._watch, name="end of the session", daemon=True).start()

    def __call__(self) -> None:
        if _jvm_has_ended():
            return
        self._began.set()
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            self._session.stop()
        if not under_spark_submit():
            kill_jvm()  # it has nothing left to do, and would outlive this process by seconds
        self._done.set()

    def _watch(self) -> None:
        self._began.wait()
        if not self._done.wait(STOP_WITHIN_S):
            kill_jvm()


def kill_jvm() -> None:
    """Kill the JVM and everything that it has started."""
    pid = jvm_pid()
    _kill(each for each in (process_tree(pid) if pid is not None else ()) if each != os.getpid())


def _kill(processes: Iterable[int]) -> None:
    for each in processes:
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)


def under_spark_submit() -> bool:
    """Whether spark-submit started this process, and with it the JVM, its master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
