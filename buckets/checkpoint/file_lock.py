"""Takes a checkpoint in a file system for one process.

The file `CHECKPOINT/buckets/in_use` is locked from before anything is written until the query on the checkpoint has
ended, and names the process. The system releases the lock however the process ends, so a crash leaves nothing to clean
up. A start that is refused leaves nothing at all.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO

from buckets.checkpoint.folders import lock_file
from buckets.errors import BucketsError


class FileLock:
    """The lock of a checkpoint, taken and released any number of times."""

    def __init__(self, checkpoint: Path) -> None:
        """Take nothing yet."""
        self._checkpoint = checkpoint
        self._file: IO[str] | None = None
        self._made: list[Path] = []

    def take(self) -> None:
        """Lock the checkpoint, so that no other query runs on it; nothing is done where this lock holds it already.

        Raises:
            BucketsError: a query runs on it, or begins to, in another process or in this one.
        """
        path = lock_file(self._checkpoint)
        while self._file is None:
            self._made += [folder for folder in (path.parent, self._checkpoint) if not folder.exists()]
            with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
                path.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(path.open("a+", encoding="utf-8"))
                _lock(file, self._checkpoint)
                # Another start may have been refused in between, and have removed what it had made.
                if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                    stack.pop_all()
                    self._file = file
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let go, and remove what `take` has made where nothing has come beside it."""
        if self._file is None:
            return
        path = lock_file(self._checkpoint)
        with contextlib.suppress(OSError):
            if [*path.parent.iterdir()] == [path]:
                path.unlink()
                for folder in self._made:
                    folder.rmdir()
        self._file.close()
        self._file, self._made = None, []

    def check(self) -> None:
        """Do nothing: the system takes it from nobody who lives."""


def check_file_free(checkpoint: Path) -> None:
    """Check that no query runs on a checkpoint; nothing is written.

    Raises:
        BucketsError: one does.
    """
    with contextlib.suppress(FileNotFoundError), lock_file(checkpoint).open("r+", encoding="utf-8") as file:
        _lock(file, checkpoint)


def _lock(file: IO[str], checkpoint: Path) -> None:
    """Lock a file until it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process = file.read() or "unknown"
        message = (
            f"checkpoint {checkpoint} is in use by process {process} of this machine, and two would write over each "
            "other; stop that one first, or name another checkpoint"
        )
        raise BucketsError(message) from None
