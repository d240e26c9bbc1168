"""The Spark session of this process, and every setting of it that is not Spark's default, each with its reason."""

import atexit
import contextlib
import logging
import os
import re
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from buckets.config.settings import START_PATIENCE_MS, Profile
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.java.jars import jar_paths, s3_jar_paths
from buckets.java.java import find_java
from buckets.spark.session_folder import (
    S3A,
    SHARDS,
    STORE_FILE_MANAGER,
    SessionFolder,
    SessionPlaces,
    has_places,
    jvm_has_ended,
    kill_jvm,
    last_error,
    log_path,
    missing_python,
    open_places,
    schemes_of,
    shards_of,
    store_settings,
    take_signals,
    under_spark_submit,
)
from buckets.spark.stall import watched_start
from buckets.spark.worker import start_workers
from buckets.stores.store_path import StorePath

PARTITIONS = "spark.sql.shuffle.partitions"
_POLL_S = 0.2
_SETTLED_S = 2.0  # If so long no executor has come, those that are there are all
_HELD_S = 1.0  # For how long a task of the warm-up holds its slot, so that the others go to other executors
EXECUTOR_SETTINGS = {
    # What an executor says to its standard error is kept in five files of ten megabytes and no more.
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(10 << 20),
    "spark.executor.logs.rolling.maxRetainedFiles": "5",
}
_MASTER = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")
"""Spark's JVM ends at a master of another form, and only its log says why."""


def is_local(master: str) -> bool:
    """Return whether the tasks of a master run in the JVM of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def make_ready(session: SparkSession, shards: int | None, patience_ms: int, tell: Callable[[str], None]) -> None:
    """Wait for the executors of a session, and have each load the engine; nothing is done where there are none.

    Shards are spread over as many partitions as the executors have cores; None: over what the user has set.
    """
    context = session.sparkContext
    if is_local(context.master or ""):
        return
    tell(f"waiting for executors of {context.master}")
    _await_executors(context, patience_ms)
    conf = context.getConf()
    if conf.get("spark.log.level") is None and "log4j" not in (conf.get("spark.executor.extraJavaOptions") or ""):
        # Spark warns of every key that is new. The driver's log has a file of settings that says so of one logger; a
        # file that is sent along is there only after an executor has begun to log.
        context._jsc.sc().schedulerBackend().updateExecutorsLogLevel("ERROR")
    slots = context.defaultParallelism
    if shards is not None:
        session.conf.set(PARTITIONS, str(min(shards, slots)))
    tell(f"loading the engine on {_executors(context)} executors, {slots} cores")
    try:
        with watched_start(patience_ms):
            context.parallelize(range(slots), slots).mapPartitions(_hold).count()
    except Py4JJavaError as error:
        message = missing_python(str(error)) or f"executors cannot load the engine: {last_error(error)}"
        raise BucketsError(message) from error


def _hold(numbers: Iterable[int]) -> Iterator[int]:
    time.sleep(_HELD_S)
    yield from numbers


def _executors(context: SparkContext) -> int:
    """Return how many executors have come; the driver is one of those that Spark counts."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _await_executors(context: SparkContext, patience_ms: int) -> None:
    begun_s = changed_s = time.monotonic()
    known, wanted = 0, int(context.getConf().get("spark.executor.instances") or -1)
    while not known or (known != wanted and time.monotonic() - changed_s < _SETTLED_S):
        time.sleep(_POLL_S)
        count = _executors(context)
        if count != known:
            known, changed_s = count, time.monotonic()
        if not known and time.monotonic() - begun_s > patience_ms / 1000:
            message = (
                f"no executor of {context.master} has come within {format_duration(patience_ms)}, the limit of "
                "start_patience; see that the cluster has cores and memory left for one (spark.executor.cores, "
                "spark.executor.memory) and that executors can reach the driver (spark.driver.host)"
            )
            raise BucketsError(message)


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
_OPTIMISED_LATER = (
    "-XX:Tier4InvocationThreshold=15000",
    "-XX:Tier4MinInvocationThreshold=1800",
    "-XX:Tier4CompileThreshold=45000",
    "-XX:Tier4BackEdgeThreshold=120000",
)
"""Java's second compiler waits for three times its usual counts: it would take a third of Java's CPU in a job's first
minutes, mostly for code with which Spark plans a batch. With ten times its counts small batches take longer."""
_SMALLER_HEAP = ("-XX:GCTimeRatio=4", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30")
"""Java collects garbage before it takes more of the system's memory, and gives back what it does not need: after a
million payments over 13 groupings a JVM has 1.1 to 1.5 GB and not 2.3, for 10 s of collecting and not 2."""
_JAVA: Mapping[Profile, Sequence[str]] = {"throughput": (*_OPTIMISED_LATER, *_SMALLER_HEAP), "latency": ()}
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""What says how the files of a checkpoint are written, here where they lie on a disk."""
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
    # Spark sees itself whether all tasks of an operator with state have committed; ours are seen by their rows.
    "spark.sql.streaming.stateStore.commitValidation.enabled": "false",
    # Checksum files double the small files of a checkpoint; RocksDB and Parquet keep checksums of their own. Time of
    # a small batch: no difference beyond noise.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Local files without a process forked for each (`chmod`, `readlink`), which Hadoop does where it has no native
    # library: a batch writes about ten small files. Both logs of a batch together: 120 ms before, 6 ms so.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    FILE_MANAGER: ("org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"),
    # Between the JVM and Python workers go Unix sockets. Over TCP a small batch waits 40 ms for a delayed
    # acknowledgement, more than once: 260 ms a batch before, 203 ms so.
    "spark.python.unix.domain.socket.enabled": "true",
    # Both stages of a batch are done by the same Python processes. With Spark's default each would have processes of
    # its own, which load the engine and remember shards for themselves.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # A batch reaches Python in few large pieces.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # A batch that is abandoned gets so long to end; what has not is ended with the process.
    "spark.sql.streaming.stopTimeout": "3s",
    # What a batch brings to the driver is bounded by the driver's memory and by nothing else: a batch that passed
    # Spark's limit of 1 GB would pass it again at every start.
    "spark.driver.maxResultSize": "0",
    # Streams are not re-planned while they run: Spark would run their first stage before it calls us, and so before
    # the rules of the batch are sent along.
    "spark.sql.adaptive.enabled": "false",
    # Field names are case-sensitive, as in JSON.
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


QUERY_SETTINGS = {
    name: SETTINGS[name]
    for name in (
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows",
        "spark.sql.streaming.stateStore.commitValidation.enabled",
        "spark.sql.adaptive.enabled",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled",
        "spark.databricks.delta.snapshotPartitions",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled",
    )
}
"""Those that a query needs in a session of a user's, which can be set while it runs."""


def settings_of_user(extra: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return the settings of the user: those of spark-submit, and over them those of a configuration."""
    submitted = dict(SparkConf().getAll()) if under_spark_submit() else {}
    own = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in extra.items()}
    return {**submitted, **own}


def _settings_of_job(
    session_places: SessionPlaces,
    shards: int,
    extra: Mapping[str, str | int | bool],
    checkpoint: Path | None,
    places: Iterable[Path],
    profile: Profile,
) -> dict[str, str]:
    """Return all settings of a session; those of the user win."""
    stores = schemes_of([checkpoint, *places])
    cores, own = os.cpu_count() or 2, settings_of_user(extra)
    jars = [*jar_paths(), *(s3_jar_paths() if S3A in stores else [])]
    has_executors = not is_local(own.get("spark.master", "local"))
    options = " ".join((*_JAVA[profile], own.get(_JAVA_OPTIONS, "")))
    named_places = session_places.settings(options, has_executors)
    settings = {
        **SETTINGS,
        **store_settings(stores),
        **({FILE_MANAGER: STORE_FILE_MANAGER} if isinstance(checkpoint, StorePath) else {}),
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "4g",
        PARTITIONS: str(min(shards, cores)),
        **_with_jars(jars),
        **(EXECUTOR_SETTINGS if has_executors else {}),
        **own,
        **{key: value for key, value in named_places.items() if key not in own or key == _JAVA_OPTIONS},
    }
    return {key: value for key, value in settings.items() if not (under_spark_submit() and key in _OF_SPARK_SUBMIT)}


def _with_jars(jars: Sequence[Path]) -> dict[str, str]:
    return {
        "spark.jars": ",".join(str(path) for path in jars),
        # Spark looks for its own jars with the file system of `fs.file.impl`, so that must be there from the start.
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in jars),
        # Workers are forked from a process in which the engine is loaded.
        "spark.python.daemon.module": "buckets.spark.worker_daemon",
    }


def session_settings() -> dict[str, str]:
    """Return settings with which a session of yours scores streams, and reads and writes Delta.

    `SparkSession.builder.config(map=buckets.spark.session_settings())` takes them; a session that is there already
    cannot. What is needed of them is our jar (`spark.jars`); with the others a stream is as fast as a job.
    """
    catalog, sockets = "spark.sql.catalog.spark_catalog", "spark.python.unix.domain.socket.enabled"
    of_files = ("spark.hadoop.fs.file.impl", FILE_MANAGER, "spark.databricks.delta.snapshotPartitions")
    names = ("spark.sql.extensions", catalog, sockets, *of_files)
    return {**{name: SETTINGS[name] for name in names}, **_with_jars(jar_paths())}


STOP_WITHIN_S = 30.0
NEEDED_DESCRIPTORS = 1024  # Open files with which a JVM starts, and a job of some shards runs


def start_session(
    name: str,
    shards: int,
    extra: Mapping[str, str | int | bool] | None = None,
    logs: Path | None = None,
    patience_ms: int = START_PATIENCE_MS,
    checkpoint: Path | None = None,
    places: Iterable[Path] = (),
    scores: bool = False,
    profile: Profile = "throughput",
) -> SparkSession:
    """Start the session of a job.

    Args:
        name: shown by Spark's tools.
        shards: of the engine; there are no more shuffle partitions than that.
        extra: Spark settings of the user, which win.
        logs: a folder for what Spark says; None: in the temporary folder, where the latest few are kept.
        patience_ms: how long the start may take.
        checkpoint: of its query; like `places`, where else it reads or writes, it decides on settings of stores.
        places: others than the checkpoint.
        scores: whether workers load the engine and its kernels while the session starts.
        profile: for what Java is set up.
    """
    # What py4j reports of a JVM that has ended is told in one line. It logs in the name of the root logger too.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    logging.getLogger("py4j").propagate = False
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    if not under_spark_submit():
        find_java()
    else:
        SparkContext._ensure_initialized()
        take_signals()
    own = settings_of_user(extra or {})
    master = own.get("spark.master", "local")
    if not _MASTER.fullmatch(master):
        forms = "local[4] or local[*] for cores of this machine, spark://HOST:7077, k8s://https://HOST:443 or yarn"
        message = f"Spark's master {master!r} is of no form that Spark knows; name {forms}"
        raise BucketsError(message)
    named = own.get("spark.pyspark.python")  # which spark-submit alone would put there
    os.environ["PYSPARK_PYTHON"] = named or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session_places = open_places(logs)
    conf = SparkConf().setAppName(name)
    conf.setAll(list(_settings_of_job(session_places, shards, extra or {}, checkpoint, places, profile).items()))
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with watched_start(patience_ms), session_places.inherited():
            context = SparkContext.getOrCreate(conf)
            if scores and is_local(context.master or ""):
                start_workers(context)
            session = SparkSession.builder.config(conf=conf).getOrCreate()
            if not under_spark_submit():
                take_signals()
            if threading.current_thread() is threading.main_thread():
                # A session would have an interrupt ask the JVM first, which may not answer.
                signal.signal(signal.SIGINT, on_interrupt)
    except PySparkRuntimeError as error:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        cause = "is there an option of Java under `spark`?"
        if 0 <= descriptors < NEEDED_DESCRIPTORS:
            cause = f"a process may have {descriptors} files open, and it needs {NEEDED_DESCRIPTORS}: raise `ulimit -n`"
        message = f"Spark's JVM does not start; {cause}; details: {log_path()}"
        raise BucketsError(message) from error
    except Py4JJavaError as error:
        message = f"Spark does not start: {why_not_started(error, master)}; details: {log_path()}"
        raise BucketsError(message) from error
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:  # it too would report a JVM that has ended
        server.handle_error = lambda request, address: None
    _stop_at_exit(session)
    return session


def why_not_started(error: Exception, master: str) -> str:
    """Return why a session has not started: where no master answers, Spark says only that it has stopped."""
    if "stopped SparkContext" in str(error) and master.startswith("spark://"):
        return f"no master answers at {master}; see that one runs there, and that this machine reaches it"
    return last_error(error)


def shuffle_partitions(session: SparkSession) -> int:
    """Return over how many partitions a session spreads the state of a new checkpoint."""
    return int(session.conf.get("spark.sql.shuffle.partitions") or 1)


@contextlib.contextmanager
def settings_while(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have a session start something with these settings, of which a query gets a copy; then it has its own again."""
    before = dict(session.conf.getAll) if settings else {}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            if name in before:
                session.conf.set(name, before[name])
            else:
                session.conf.unset(name)


def remember_shards(session: SparkSession) -> None:
    """Tell the workers of a session of a user's where they share what they remember of shards, if all are here."""
    context = session.sparkContext
    if is_local(context.master or "") and SHARDS not in {*os.environ, *context.environment} and not has_places():
        folder = SessionFolder()
        atexit.register(folder.remove)
        context.environment[SHARDS] = str(shards_of(folder))


def _stop_at_exit(session: SparkSession) -> None:
    """Stop a session when the process ends, which removes its socket; a JVM that does not stop is killed.

    Where the JVM has died, there is nothing left to stop.
    """
    began, done = threading.Event(), threading.Event()

    def stop() -> None:
        if jvm_has_ended():
            return
        began.set()
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            session.sparkContext._jvm.buckets.StateTasks.stop()  # type: ignore[union-attr]
            session.stop()
        if not under_spark_submit():
            kill_jvm()  # it has nothing left to do, and would outlive this process by seconds
        done.set()

    def watch() -> None:
        began.wait()
        if not done.wait(STOP_WITHIN_S):
            kill_jvm()

    # A thread cannot be started any more when the interpreter ends.
    threading.Thread(target=watch, name="end of the session", daemon=True).start()
    atexit.register(stop)
