"""The status of a running job, as its file says: read by those who watch it.

    CHECKPOINT/buckets/live.json      written by `live_status`, whole or not at all

The file names the process and says when it was written, so that a reader can tell a job that has died.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from buckets.checkpoint.folders import records_folder
from buckets.checkpoint.seal import unseal_json
from buckets.errors import BucketsError, first_line
from buckets.stores.store_path import StoreError

FORMAT = 2
SILENT_AFTER_MS = 10_000
"""A file that has not been renewed for so long is of a job that does not run any more, or hangs."""
State = Literal["running", "silent", "gone", "stopped"]


def live_path(checkpoint: Path) -> Path:
    """Return where the status of a checkpoint's job is."""
    return records_folder(checkpoint) / "live.json"


@dataclass(frozen=True)
class Live:
    """A status as it was read; `data` is the file."""

    data: dict[str, Any]

    def state(self, now_ms: int) -> State:
        """Say whether the job runs, has been stopped, is gone without a word, or has not been heard of for a while."""
        if self.data["ended_ms"] is not None:
            return "stopped"
        if self.data["host"] == socket.gethostname() and not _is_alive(self.data["pid"]):
            return "gone"
        return "running" if now_ms - self.data["written_ms"] <= SILENT_AFTER_MS else "silent"

    def has_failed(self, now_ms: int) -> bool:
        """Return whether the job has ended by a fault, or says nothing any more; not if it runs or was stopped."""
        state = self.state(now_ms)
        return state in ("gone", "silent") or (state == "stopped" and bool(self.data["failure"]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_live(checkpoint: Path) -> Live | None:
    """Read the status of a checkpoint's job; None where no job has written one.

    Raises:
        BucketsError: there is a file, and it cannot be read.
    """
    path = live_path(checkpoint)
    try:
        data = unseal_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except StoreError:
        raise
    except (OSError, ValueError) as error:
        message = f"status {path}: cannot be read ({first_line(error)}); start the job again, which writes a new one"
        raise BucketsError(message) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        message = f"status {path}: is of another release, and this one reads format {FORMAT}; start the job again"
        raise BucketsError(message)
    return Live(data)
