"""Where Spark writes what it has to say: two files in a folder, private, rotated, never through a link.

`spark.log` is log4j's, which begins a new one at each start and when one is full. `stderr.log` takes what the JVM and
its Python workers write to their standard error before and beside that.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

PRIVATE = 0o700
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
