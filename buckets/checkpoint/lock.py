"""A checkpoint belongs to one process at a time, however many start on it at the same moment.

Takes a checkpoint in a file system for one process.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

from buckets.checkpoint.lease import Lease, LostLease, check_not_leased
from buckets.checkpoint.source_offsets import lock_file
from buckets.errors import BucketsError
from buckets.stores.store_path import StorePath


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


class Lock:
    """The lock of a checkpoint, taken and released any number of times: of a file, or a lease in an object store."""

    def __init__(self, checkpoint: Path, on_lost: Callable[[LostLease], None] | None = None) -> None:
        """Take nothing yet.

        Args:
            checkpoint: the checkpoint.
            on_lost: told, from another thread, if a lease is lost; must see that nothing more is written.
        """
        in_store = isinstance(checkpoint, StorePath)
        self._held: FileLock | Lease = Lease(checkpoint, on_lost) if in_store else FileLock(checkpoint)

    def take(self) -> None:
        """Take the checkpoint, so that no other query runs on it; nothing is done where this lock holds it already.

        Raises:
            BucketsError: a query runs on it, or begins to, in another process or in this one.
        """
        self._held.take()

    def check(self) -> None:
        """See that it is still held, before anything is written.

        Raises:
            BucketsError: another process may have taken it.
        """
        self._held.check()

    def release(self) -> None:
        """Let go, and remove what `take` has made where nothing has come beside it."""
        self._held.release()

    def __enter__(self) -> Self:
        """Take it."""
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()

    def __del__(self) -> None:
        """Release it: whoever took it has forgotten it."""
        self.release()


def check_free(checkpoint: Path) -> None:
    """Check that no query runs on a checkpoint; nothing is written.

    Raises:
        BucketsError: one does.
    """
    if isinstance(checkpoint, StorePath):
        check_not_leased(checkpoint)
    else:
        check_file_free(checkpoint)
