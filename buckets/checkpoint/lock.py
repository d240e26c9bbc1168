"""A checkpoint belongs to one process at a time.

The file `CHECKPOINT/buckets/in_use` is locked while a query runs on the checkpoint, and names the process. The system
releases the lock however the process ends, so a crash leaves nothing to clean up.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from buckets.checkpoint.folders import records_folder
from buckets.errors import BucketsError


@contextlib.contextmanager
def locked(checkpoint: Path) -> Iterator[None]:
    """Lock a checkpoint, so that no other query runs on it.

    Raises:
        BucketsError: a query runs on it, in another process or in this one.
    """
    path = _path(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        _lock(file, checkpoint)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def check_free(checkpoint: Path) -> None:
    """Check that no query runs on a checkpoint; nothing is written.

    Raises:
        BucketsError: one does.
    """
    with contextlib.suppress(FileNotFoundError), _path(checkpoint).open("r+", encoding="utf-8") as file:
        _lock(file, checkpoint)


def _path(checkpoint: Path) -> Path:
    return records_folder(checkpoint) / "in_use"


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
