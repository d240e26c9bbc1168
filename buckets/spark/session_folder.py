"""Where a session has what it needs only while it runs: scratch space, sockets, libraries that Spark unpacks.

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
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from buckets.errors import BucketsError

PRIVATE = 0o700
KEPT_LOGS = 10
_LOCK, _IN_USE, _LOGS = ".lock", "in_use", "logs"


class SessionFolder:
    """A folder of this process alone, until it is removed or the process ends."""

    def __init__(self, root: Path | None = None) -> None:
        """Make it, and remove those of processes that are gone.

        Args:
            root: where folders of this user's sessions are; None: in the temporary folder.

        Raises:
            BucketsError: that belongs to somebody else.
        """
        self._root = root or Path(tempfile.gettempdir()) / f"buckets-{os.getuid()}"
        _make_private(self._root)
        with self._only_one():
            _remove_left(self._root)
            self.path = self._root / secrets.token_hex(4)
            self.path.mkdir(PRIVATE)
            self._held = (self.path / _IN_USE).open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX)

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        """Be the only one that makes or removes folders."""
        with (self._root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

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
