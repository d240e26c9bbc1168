"""Whether a Delta table has a new commit, asked as often as one likes and looked at now and then."""

import time
from pathlib import Path

LOOK_EVERY_S = 1.0
_Commit = tuple[str, int]


class CommitWatch:
    """The newest commit of a table that has been taken."""

    def __init__(self, table: Path) -> None:
        """Watch a table, of which nothing has been taken."""
        self._log = table / "_delta_log"
        self._taken: _Commit | None = None
        self._looked_s = 0.0

    def take(self) -> None:
        """Take the newest commit there is."""
        self._taken = self._latest()

    def has_new(self) -> bool:
        """Whether there is a commit that has not been taken, which then is; looks every second."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        before, self._taken = self._taken, self._latest()
        return self._taken != before

    def _latest(self) -> _Commit | None:
        """The newest commit; a table that was recreated has another one, whatever its number."""
        try:
            commits = sorted(self._log.glob("*.json"))
            return (commits[-1].name, commits[-1].stat().st_mtime_ns) if commits else None
        except OSError:
            return None
