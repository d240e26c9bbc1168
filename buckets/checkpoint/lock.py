"""A checkpoint belongs to one process at a time, however many start on it at the same moment."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from buckets.checkpoint.file_lock import FileLock, check_file_free
from buckets.checkpoint.lease import Lease, LostLease, check_not_leased
from buckets.stores.store_path import StorePath


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
