"""This process's JVM, checks of what it lacks, and folders for its session: scratch space, sockets, libraries, logs.

    TMP/buckets-UID/            of this user alone, mode 0700
        .lock                   held while folders are made and removed
        ab12cd34/in_use         locked for as long as the session's process lives, however it ends
        ab12cd34/...
        logs/12345/...          of sessions without a checkpoint of their own

A process that is killed leaves its folder behind. The next start removes every folder whose lock nobody holds.
"""

import atexit
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from buckets.errors import BucketsError, first_line
from buckets.java.java import LOCKED_SPARK, spark_line
from buckets.monitor.processes import process_tree
from buckets.stores.store_path import StorePath

spark_line(pyspark.__version__)  # before anything is done with it
PRIVATE = 0o700
KEPT_LOGS = 10
_LOCK, _IN_USE, _LOGS = ".lock", "in_use", "logs"


class SessionFolder:
    """A folder of this process alone, until it is removed or the process ends."""

    def __init__(self, root: Path | None = None) -> None:
        """Create it below `root` or the temporary folder, and remove the folders of processes that have ended."""
        self._root = root or Path(tempfile.gettempdir()) / f"buckets-{os.getuid()}"
        _make_private(self._root)
        with (self._root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Folders of ended processes, and what a JVM wrote into one afterwards.
            for path in self._root.iterdir():
                if path.is_dir() and path.name != _LOGS and not (path / _IN_USE).exists():
                    shutil.rmtree(path, ignore_errors=True)
                with contextlib.suppress(OSError), (path / _IN_USE).open("r+") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            self.path = self._root / secrets.token_hex(4)
            self.path.mkdir(PRIVATE)
            self._held = (self.path / _IN_USE).open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def part(self, name: str) -> Path:
        """Return a subfolder, creating it if necessary."""
        path = self.path / name
        path.mkdir(PRIVATE, exist_ok=True)
        return path

    def new_logs(self) -> Path:
        """Return a log folder that outlives this one, and remove the oldest log folders of ended sessions."""
        logs = self._root / _LOGS
        logs.mkdir(PRIVATE, exist_ok=True)
        ended = [path for path in logs.iterdir() if not (self._root / path.name).exists()]
        for path in sorted(ended, key=lambda path: path.lstat().st_mtime)[: 1 - KEPT_LOGS]:
            shutil.rmtree(path, ignore_errors=True)
        return logs / self.path.name

    def remove(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def _make_private(root: Path) -> None:
    """Create the folder for a user's sessions, or check that the existing one belongs to this user alone."""
    with contextlib.suppress(FileExistsError):
        root.mkdir(PRIVATE)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        message = (
            f"temporary folder {root}: is not a folder of this user, and what Spark leaves there has to be private; "
            "remove it, or set TMPDIR to another folder"
        )
        raise BucketsError(message)
    root.chmod(PRIVATE)


OWN_FILE = 0o600
FULL_BYTES = 1 << 20


@contextlib.contextmanager
def stderr_into(logs: Path) -> Iterator[None]:
    """Redirect the standard error of the JVM to a log while it starts, so that users see only our messages.

    Creates the log folder if necessary.
    """
    logs.mkdir(PRIVATE, parents=True, exist_ok=True)
    path = logs / "stderr.log"
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_size > FULL_BYTES:
            path.replace(path.with_suffix(".1.log"))
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, OWN_FILE)
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_BESIDE = ("at ", "Suppressed: ")  # How lines begin that name a place in a program, or an error beside the root
_LONGEST = 300
_BEFORE_REASON = re.compile(r"^(Caused by: |: )?([a-z.]+\.(Spark|IllegalArgument|IllegalState)Exception: )?")
"""What an error begins with that says nothing."""
_NO_ENGINE = "No module named 'buckets'"
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*)"')


def last_error(cause: BaseException) -> str:
    """Return the line of a failure's text that names the error at its root, cut to what fits a message."""
    lines = [line.strip() for line in str(cause).splitlines() if "Error" in line or "Exception" in line]
    errors = [line for line in lines if not line.startswith(_BESIDE)]
    return (_BEFORE_REASON.sub("", errors[-1]) if errors else first_line(cause))[:_LONGEST]


def missing_python(text: str) -> str | None:
    """Return what to do if a machine lacks a Python with the engine for its tasks; None if that is not the fault."""
    program = _NO_PYTHON.search(text)
    if program is not None:
        return (
            f"a machine has no {program[1]}, the Python for its tasks: see that spark.pyspark.python names one on each "
            "executor, and that the job is started where the same name leads to one too; see the guide on clusters"
        )
    if _NO_ENGINE in text:
        return (
            "the Python of an executor has no buckets: send an environment that has it along with --archives, or "
            "install it on each machine, and name its Python as spark.pyspark.python; see the guide on clusters"
        )
    return None


S3A = "s3a"
_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""Sources of S3 keys, tried in turn: settings, the environment, a pod's service account, the machine."""
STORE_FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""Writes the files of a checkpoint in a store. An upload appears when it is complete, so no file is written elsewhere
and renamed, which in a store is a copy: half the requests of a batch. It cannot write to a disk."""
_S3A: Mapping[str, str] = {
    "spark.hadoop.fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS),
    # Nobody else writes into these folders, so creating a file needs no look first, and an emptied folder needs no
    # placeholder object.
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    # Send a small file at once; asking first whether to send costs a round trip, and not all servers answer.
    "spark.hadoop.fs.s3a.connection.expect.continue": "false",
    # A batch's files are small and need not go through the local disk.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
    # An unanswered request fails after a minute and a half instead of eight: we wait for the store ourselves.
    "spark.hadoop.fs.s3a.connection.request.timeout": "30s",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    # Otherwise a jar is required that only its other stream needs.
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
    "spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
}


def schemes_of(paths: Iterable[Path | None]) -> frozenset[str]:
    """Return the object-store schemes of some paths."""
    return frozenset(path.parts[0].rstrip(":") for path in paths if isinstance(path, StorePath))


def store_settings(schemes: frozenset[str]) -> dict[str, str]:
    """Return a session's settings for stores of these schemes, with endpoint and region from the environment.

    Stores other than S3 need jars that are not fetched here, and their own settings under `spark`.
    """
    if S3A not in schemes:
        return {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    settings = dict(_S3A)
    if endpoint:
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
    if region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings


_SUBMITTER = os.getppid()
"""The JVM of spark-submit, if it started this process; once it has ended, the parent is another process."""
_ended_because: BucketsError | None = None


def jvm_has_ended() -> bool:
    """Return whether the JVM of this process was running and has ended."""
    if under_spark_submit():
        return os.getppid() != _SUBMITTER
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def has_class(name: str) -> bool:
    """Return whether the running JVM finds a class among its jars."""
    assert SparkContext._jvm is not None
    try:
        SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def check_own_jar() -> None:
    """Check that the session can keep state, which needs our own classes."""
    if not has_class("buckets.StateTasks"):
        message = (
            "the session finds no jar of buckets, without which no state is kept: make it with "
            "`SparkSession.builder.config(map=buckets.spark.session_settings())`, or give spark-submit as --jars what "
            "`python -m buckets.java.jars` prints"
        )
        raise BucketsError(message)


def check_kafka(place: str) -> None:
    """Check that the session can read topics; `place` names what reads them."""
    if not has_class("org.apache.spark.sql.kafka010.KafkaSourceProvider"):
        message = (
            f"{place}: Spark {pyspark.__version__} finds no Kafka connector among its jars, and none is published for "
            f"4.3: install pyspark=={LOCKED_SPARK}, or add a connector's jars to spark.jars"
        )
        raise BucketsError(message)


def check_delta(place: str) -> None:
    """Check that Spark can read a Delta table, or add to one."""
    if spark_line(pyspark.__version__) == "4.3":
        message = (
            f"{place}: Spark {pyspark.__version__} cannot read Delta tables or append to them, as Delta is published "
            f"for Spark 4.2 and earlier: install pyspark=={LOCKED_SPARK}, or use files"
        )
        raise BucketsError(message)


def kill_jvm() -> None:
    """Kill the JVM and all processes that it has started."""
    process = getattr(SparkContext._gateway, "proc", None)
    pid = None if process is None else int(process.pid)
    if under_spark_submit():
        pid = None if jvm_has_ended() else _SUBMITTER
    kill(process for process in (process_tree(pid) if pid is not None else ()) if process != os.getpid())


def kill(processes: Iterable[int]) -> None:
    """Kill processes, ignoring those that have ended."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def end_jvm(because: BucketsError) -> None:
    """Kill the JVM; callers waiting for it see their connection end, and report the reason."""
    global _ended_because
    _ended_because = because
    kill_jvm()


def check_not_ended() -> None:
    """Raise the reason if this process has ended the JVM."""
    if _ended_because is not None:
        raise _ended_because


def under_spark_submit() -> bool:
    """Return whether spark-submit started this process, and with it the JVM, its master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _ToPython:
    """Java's view of the handler that passes the JVM's signals on to this process."""

    class Java:
        """The Java interface of the handler."""

        implements = ("sun.misc.SignalHandler",)

    def handle(self, taken: Any) -> None:
        """Handle a signal, called by Java."""
        os.kill(os.getpid(), taken.getNumber())


def take_signals() -> None:
    """Make this process decide how to handle a termination signal: Java would end the session in the middle of a batch.

    Under spark-submit other programs know and signal the JVM, so it forwards signals. Elsewhere it ignores signals that
    are sent to all processes of a group.
    """
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = gateway.jvm
    if under_spark_submit():
        ensure_callback_server_started(gateway)
        handler: Any = _ToPython()
    else:
        handler = jvm.sun.misc.SignalHandler.SIG_IGN
    for name in ("TERM", "INT"):
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), handler)


LONGEST_SOCKET_PATH = 103  # The limit of macOS; Linux allows four more
LONGEST_SOCKET_NAME = len("/s/.00000000-0000-0000-0000-000000000000.sock")
SHARDS = "BUCKETS_SHARDS"  # The environment variable that gives workers the folder of shard caches
ALLOCATORS = "MALLOC_ARENA_MAX"
"""How many heaps glibc keeps for a process's threads: by default eight per core, and none is given back. After a
million payments over 13 groupings, a JVM of 2.3 GB takes 2.0 GB with two heaps."""
SHARED_MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 << 30
"""A file system in memory, and the free space that it must have: containers often give it 64 MB."""
_LOG4J = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class SessionPlaces:
    """Where this process's session keeps its files."""

    folder: SessionFolder  # needed only while it runs
    shards: Path  # the workers' shard caches
    logs: Path | None  # Spark's logs; None if spark-submit has configured them

    def environment(self) -> dict[str, str]:
        """Return environment variables for the JVM and its workers."""
        own = {"TMPDIR": str(self.folder.part("tmp")), SHARDS: str(self.shards)}
        own[ALLOCATORS] = os.environ.get(ALLOCATORS, "2")
        return own if self.logs is None else own | {"BUCKETS_LOGS": str(self.logs)}

    def settings(self, java_options: str, has_executors: bool) -> dict[str, str]:
        """Return Spark's settings for these places; the machines of executors do not have these folders."""
        temporary = self.folder.part("tmp")
        options = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", f'-Djava.io.tmpdir="{temporary}"']
        if self.logs is not None:
            options.append(f'-XX:ErrorFile="{self.logs / "jvm-crash.log"}"')
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
        """Set environment and standard error for the JVM to inherit while it starts."""
        before = {name: os.environ.get(name) for name in self.environment()}
        os.environ.update(self.environment())
        try:
            with contextlib.nullcontext() if self.logs is None else stderr_into(self.logs):
                yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


_places: SessionPlaces | None = None


def log_path() -> str:
    """Return where Spark's log of this process is, in words."""
    if _places is not None and _places.logs is not None:
        return str(_places.logs)
    return f"the log of {'spark-submit' if under_spark_submit() else 'Spark'}"


def has_places() -> bool:
    """Return whether this project started this process's session."""
    return _places is not None


def open_places(logs: Path | None) -> SessionPlaces:
    """Return this process's places, created by the first session; without `logs`, logs go to the temporary folder."""
    global _places
    if _places is None:
        folder = SessionFolder()
        atexit.register(folder.remove)
        own = None if under_spark_submit() else logs or folder.new_logs()
        _places = SessionPlaces(folder, shards_of(folder), own)
    return _places


def shards_of(folder: SessionFolder) -> Path:
    """Return a folder for the workers' caches, in memory if it has enough room."""
    if SHARED_MEMORY.is_mount() and shutil.disk_usage(SHARED_MEMORY).free >= ROOM_BYTES:
        with contextlib.suppress(BucketsError, OSError):
            in_memory = SessionFolder(SHARED_MEMORY / f"buckets-{os.getuid()}")
            atexit.register(in_memory.remove)
            return in_memory.part("shards")
    return folder.part("shards")
