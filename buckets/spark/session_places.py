"""Where the session of this process has its files: what it needs while it runs, and what Spark says."""

import atexit
import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from buckets.errors import BucketsError
from buckets.spark.jvm import under_spark_submit
from buckets.spark.session_folder import SessionFolder
from buckets.spark.session_logs import SessionLogs

LONGEST_SOCKET_PATH = 103
"""Of macOS; Linux has four more."""
LONGEST_SOCKET_NAME = len("/s/.00000000-0000-0000-0000-000000000000.sock")
SHARDS = "BUCKETS_SHARDS"
"""The environment variable that tells workers where they remember shards."""
ALLOCATORS = "MALLOC_ARENA_MAX"
"""How many heaps of their own glibc has for the threads of a process: by default eight for each core, and none of them
is given back. Of a JVM's 2.3 GB after a million payments over 13 groupings, 2.0 are left with two."""
SHARED_MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 << 30
"""A file system in memory, and how much room it must have: that of containers often has 64 MB."""
_LOG4J = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class SessionPlaces:
    """Where the session of this process has its files.

    Attributes:
        folder: what it needs only while it runs.
        shards: what its workers remember of shards.
        logs: what Spark says; None where spark-submit has decided where that goes.
    """

    folder: SessionFolder
    shards: Path
    logs: SessionLogs | None

    def environment(self) -> dict[str, str]:
        """Return what the JVM and its workers find in their environment."""
        own = {"TMPDIR": str(self.folder.part("tmp")), SHARDS: str(self.shards)}
        own[ALLOCATORS] = os.environ.get(ALLOCATORS, "2")
        return own if self.logs is None else own | {"BUCKETS_LOGS": str(self.logs.path)}

    def settings(self, java_options: str, has_executors: bool) -> dict[str, str]:
        """Return Spark's settings that name them.

        Args:
            java_options: of the user.
            has_executors: whether tasks run on machines that do not have these folders.
        """
        temporary = self.folder.part("tmp")
        options = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", f'-Djava.io.tmpdir="{temporary}"']
        if self.logs is not None:
            options.append(f'-XX:ErrorFile="{self.logs.path / "jvm-crash.log"}"')
        of_driver = {"spark.driver.extraJavaOptions": " ".join((*options, java_options)).strip()}
        if has_executors:
            return of_driver
        return of_driver | {
            "spark.local.dir": str(self.folder.part("spark")),
            "spark.python.unix.domain.socket.dir": str(_sockets(self.folder)),
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
    """Return the places of this process; the first session makes them.

    Args:
        logs: a folder for what Spark says; None: in the temporary folder, where the latest few are kept.
    """
    global _places
    if _places is None:
        folder = SessionFolder()
        atexit.register(folder.remove)
        own = None if under_spark_submit() else SessionLogs(logs or folder.new_logs())
        _places = SessionPlaces(folder, shards_of(folder), own)
    return _places


def shards_of(folder: SessionFolder) -> Path:
    """Return a folder for what workers remember, in memory where that has room."""
    if _has_room(SHARED_MEMORY):
        with contextlib.suppress(BucketsError, OSError):
            in_memory = SessionFolder(SHARED_MEMORY / f"buckets-{os.getuid()}")
            atexit.register(in_memory.remove)
            return in_memory.part("shards")
    return folder.part("shards")


def _has_room(file_system: Path) -> bool:
    """Return whether there is a file system with so much room that a job's log and cache fit into it."""
    return file_system.is_mount() and shutil.disk_usage(file_system).free >= ROOM_BYTES


def _sockets(folder: SessionFolder) -> Path:
    """Return a folder for sockets, whose paths have to be short."""
    if len(str(folder.path)) + LONGEST_SOCKET_NAME > LONGEST_SOCKET_PATH:
        folder = SessionFolder(Path("/tmp") / f"buckets-{os.getuid()}")
        atexit.register(folder.remove)
    return folder.part("s")
