"""The Spark session: versions and every setting that is not Spark's default, each with its reason."""

import atexit
import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from buckets.errors import BucketsError
from buckets.java.jars import jar_paths
from buckets.java.java import find_java

_LOG4J = Path(__file__).with_name("log4j2.properties")
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
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def log_path() -> Path:
    """Where Spark's own log of this process goes."""
    return Path(tempfile.gettempdir()) / f"buckets-spark-{os.getpid()}.log"


@contextlib.contextmanager
def _java_stderr_to_log() -> Iterator[None]:
    """While the JVM starts, let it inherit the log for its standard error, so that people see only what we say."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log_path().open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def start_session(name: str, shards: int, extra: Mapping[str, str | int | bool] | None = None) -> SparkSession:
    """A session for one job.

    Args:
        name: shown by Spark's tools.
        shards: of the engine; there are no more shuffle partitions than that.
        extra: Spark settings of the user, which win.

    Raises:
        BucketsError: no suitable Java, it does not start, or the jars cannot be fetched.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores, jars = os.cpu_count() or 2, jar_paths()
    settings = {
        **SETTINGS,
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(min(shards, cores)),
        "spark.jars": ",".join(str(path) for path in jars),
        # Spark looks for its own jars with the file system of `fs.file.impl`, so that must be there from the start.
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in jars),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        **{key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (extra or {}).items()},
    }
    if under_spark_submit():
        chosen = {
            "spark.master",
            "spark.driver.memory",
            "spark.driver.extraJavaOptions",
            "spark.driver.extraClassPath",
            "spark.jars",
        }
        settings = {key: value for key, value in settings.items() if key not in chosen}
    else:
        find_java()
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _java_stderr_to_log():
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        message = f"Spark's JVM does not start; is there an option of Java under `spark`? details: {log_path()}"
        raise BucketsError(message) from error
    atexit.register(_stop, session)
    return session


def _stop(session: SparkSession) -> None:
    """Stop a session, which removes its socket; where its JVM has died, there is nothing left to stop."""
    with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
        session.stop()


def under_spark_submit() -> bool:
    """Whether spark-submit started this process, and with it the JVM, its master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
