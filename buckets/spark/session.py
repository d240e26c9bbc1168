"""The Spark session of this process, from its start to its end."""

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
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from buckets.config.settings import START_PATIENCE_MS
from buckets.errors import BucketsError
from buckets.java.java import find_java
from buckets.spark.session_folder import last_error
from buckets.spark.session_places import (
    jvm_has_ended,
    kill_jvm,
    log_path,
    open_places,
    take_signals,
    under_spark_submit,
)
from buckets.spark.session_settings import is_local, session_settings, settings_of_user
from buckets.spark.stall import watched_start
from buckets.spark.worker import start_workers

STOP_WITHIN_S = 30.0
NEEDED_DESCRIPTORS = 1024  # Open files with which a JVM starts, and a job of some shards runs


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep what an interrupt does: a session would have it ask the JVM first, which may not answer."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def start_session(
    name: str,
    shards: int,
    extra: Mapping[str, str | int | bool] | None = None,
    logs: Path | None = None,
    patience_ms: int = START_PATIENCE_MS,
    checkpoint: Path | None = None,
    places: Iterable[Path] = (),
    scores: bool = False,
) -> SparkSession:
    """Start the session of a job.

    Args:
        name: shown by Spark's tools.
        shards: of the engine; there are no more shuffle partitions than that.
        extra: Spark settings of the user, which win.
        logs: a folder for what Spark says; None: in the temporary folder, where the latest few are kept.
        patience_ms: how long the start may take.
        checkpoint: of its query, if there is one.
        places: where else it reads or writes; what lies in object stores decides on settings, see `store_settings`.
        scores: whether workers load the engine and its kernels while the session starts.

    Raises:
        BucketsError: no suitable Java, it does not start or takes too long, or the jars cannot be fetched.
    """
    _quiet_py4j()
    if not under_spark_submit():
        find_java()
    else:
        SparkContext._ensure_initialized()
        take_signals()
    own = settings_of_user(extra or {})
    named = own.get("spark.pyspark.python")  # which spark-submit alone would put there
    os.environ["PYSPARK_PYTHON"] = named or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if is_local(own.get("spark.master", "local")):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session_places = open_places(logs)
    conf = SparkConf().setAppName(name)
    conf.setAll(list(session_settings(session_places, shards, extra or {}, checkpoint, places).items()))
    try:
        with watched_start(patience_ms), session_places.inherited(), _own_interrupts():
            context = SparkContext.getOrCreate(conf)
            if scores and is_local(context.master or ""):
                start_workers(context)
            session = SparkSession.builder.config(conf=conf).getOrCreate()
            if not under_spark_submit():
                take_signals()
    except PySparkRuntimeError as error:
        message = f"Spark's JVM does not start; {_probable_cause()}; details: {log_path()}"
        raise BucketsError(message) from error
    except Py4JJavaError as error:
        message = f"Spark does not start: {last_error(error)}; details: {log_path()}"
        raise BucketsError(message) from error
    _quiet_accumulators(session.sparkContext)
    atexit.register(_AtExit(session))
    return session


def shuffle_partitions(session: SparkSession) -> int:
    """Return over how many partitions a session spreads the state of a new checkpoint."""
    return int(session.conf.get("spark.sql.shuffle.partitions") or 1)


def _probable_cause() -> str:
    """Return what keeps a JVM from starting, most likely, and what to do about it."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= descriptors < NEEDED_DESCRIPTORS:
        return f"a process may have {descriptors} files open, and it needs {NEEDED_DESCRIPTORS}: raise `ulimit -n`"
    return "is there an option of Java under `spark`?"


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
        if jvm_has_ended():
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
