"""Where a session has what it needs only while it runs: scratch space, sockets, unpacked libraries; and its logs.

    TMP/buckets-UID/            of this user alone, mode 0700
        .lock                   held while folders are made and removed
        ab12cd34/in_use         locked for as long as the session's process lives, however it ends
        ab12cd34/...
        logs/12345/...          of sessions without a checkpoint of their own

A process that is killed removes nothing. The next start does: a folder whose lock nobody holds has no owner any more.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from buckets.errors import BucketsError, first_line
from buckets.stores.store_path import StorePath

PRIVATE = 0o700
KEPT_LOGS = 10
_LOCK, _IN_USE, _LOGS = ".lock", "in_use", "logs"


class SessionFolder:
    """A folder of this process alone, until it is removed or the process ends."""

    def __init__(self, root: Path | None = None) -> None:
        """Make it below `root` or the temporary folder, and remove those of processes that are gone."""
        self._root = root or Path(tempfile.gettempdir()) / f"buckets-{os.getuid()}"
        _make_private(self._root)
        with (self._root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _remove_left(self._root)
            self.path = self._root / secrets.token_hex(4)
            self.path.mkdir(PRIVATE)
            self._held = (self.path / _IN_USE).open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def part(self, name: str) -> Path:
        """Return a folder in it, there from now on."""
        path = self.path / name
        path.mkdir(PRIVATE, exist_ok=True)
        return path

    def new_logs(self) -> Path:
        """Return a folder for logs that outlives this one; the oldest ones of sessions that have ended are removed."""
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
    """Make the folder of a user's sessions, or see that the one that is there is his and nobody else's."""
    with contextlib.suppress(FileExistsError):
        root.mkdir(PRIVATE)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        message = (
            f"temporary folder {root}: is no folder of this user, and what Spark leaves there has to be private; "
            "remove it, or set TMPDIR to another folder"
        )
        raise BucketsError(message)
    root.chmod(PRIVATE)


def _remove_left(root: Path) -> None:
    """Remove the folders whose processes are gone, and what a JVM wrote into one after that."""
    for path in root.iterdir():
        if path.is_dir() and path.name != _LOGS and not (path / _IN_USE).exists():
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError), (path / _IN_USE).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)


OWN_FILE = 0o600
FULL_BYTES = 1 << 20


class SessionLogs:
    """The folder of a session's logs."""

    def __init__(self, path: Path) -> None:
        """Make the folder."""
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
        self.path = path
        self._stderr = path / "stderr.log"

    @contextlib.contextmanager
    def take_stderr(self) -> Iterator[None]:
        """While the JVM starts, let it inherit the log for its standard error, so that people see only what we say."""
        with contextlib.suppress(FileNotFoundError):
            if self._stderr.lstat().st_size > FULL_BYTES:
                self._stderr.replace(self._stderr.with_suffix(".1.log"))
        log = os.open(self._stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, OWN_FILE)
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(log, 2)
        os.close(log)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


_FRAME = "at "  # How a line begins that names a place in a program
_LONGEST = 300
_NO_ENGINE = "No module named 'buckets'"
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*)"')


def last_error(cause: BaseException) -> str:
    """Return the line of a failure's text that names the error at its root, cut to what fits a message."""
    lines = [line.strip() for line in str(cause).splitlines() if "Error" in line or "Exception" in line]
    errors = [line for line in lines if not line.startswith(_FRAME)]
    return (errors[-1].removeprefix("Caused by: ") if errors else first_line(cause))[:_LONGEST]


def missing_python(text: str) -> str | None:
    """Return what to do where a machine has no Python with the engine for its tasks; None where it has."""
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
"""Where keys come from, the first that has some: settings, the environment, a pod's service account, the machine."""
STORE_FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""What writes the files of a checkpoint in a store: one is there when its upload is complete, so none is written
elsewhere and renamed, which in a store means copied: half the requests of a batch. On a disk it cannot write any."""
_S3A: Mapping[str, str] = {
    "spark.hadoop.fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS),
    # Nobody else writes into these folders, so nothing is looked for before a file is made, and folders that get empty
    # need no object in their place.
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    # A small file is sent at once; asking first whether it may be is a round trip more, and not all servers answer.
    "spark.hadoop.fs.s3a.connection.expect.continue": "false",
    # Files of a batch are small; they need not go over this machine's disk.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
    # A request that is not answered fails after a minute and a half, and not after eight: we wait for the store.
    "spark.hadoop.fs.s3a.connection.request.timeout": "30s",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    # Without this a jar is wanted that only its own, other stream needs.
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
    "spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
}


def schemes_of(paths: Iterable[Path | None]) -> frozenset[str]:
    """Return the schemes of the object stores in which some paths lie."""
    return frozenset(path.parts[0].rstrip(":") for path in paths if isinstance(path, StorePath))


def store_settings(schemes: frozenset[str]) -> dict[str, str]:
    """Return the settings of a session that uses stores of these schemes; endpoint and region as the environment says.

    Of others than S3 Spark needs jars that are not fetched here, and settings of its own under `spark`.
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
