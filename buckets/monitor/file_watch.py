"""Names the files of a source that are not read while a job runs, each once, so that none is lost unseen.

Spark takes each file once, by its path, and writes down which it has taken. What is compared here is its list with what
is there.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from buckets.checkpoint.folders import spark_folder
from buckets.checkpoint.unread_files import UnreadFiles
from buckets.clock import epoch_ms
from buckets.events.source_files import modified_files, modified_ms, passed_over, plain_path, readable_files
from buckets.stores.location import found_location
from buckets.stores.store_path import StorePath

LOOK_EVERY_S, LOOK_INTO_STORE_EVERY_S = 10.0, 60.0
_LOOK_SHARE = 20
"""Looking takes at most one part in so many of the time, however many files there are."""
_SETTLED_MS = 60_000
"""A hidden file that has not changed for so long is no longer being written."""


class Taken(NamedTuple):
    """A file that Spark has taken: when it had been modified then, as `modified_ms` says it, and in which batch."""

    modified_ms: int
    batch: int


class TakenFiles:
    """Spark's list of the files that a query has taken, read on as it grows."""

    def __init__(self, checkpoint: Path) -> None:
        """Look at the checkpoint of a query with one source of files."""
        self._folder = checkpoint / "sources" / "0"
        self._commits = checkpoint / "commits"
        self._last = -1
        self.files: dict[str, Taken] = {}

    def read(self) -> None:
        """Read what has been written since."""
        written = sorted(self._written(), key=lambda entry: entry[0])
        newer = [entry for entry in written if entry[0] > self._last]
        # A list that holds all earlier ones stands for them, and they may be gone.
        whole = [number for number, file in newer if file.suffix == ".compact"]
        for number, file in newer:
            if number >= max(whole, default=-1):
                for line in file.read_text(encoding="utf-8").splitlines()[1:]:
                    entry = json.loads(line)
                    path, known_ms = plain_path(entry["path"]), entry["timestamp"]
                    is_exact = path.startswith("/")
                    self.files[path] = Taken(known_ms if is_exact else known_ms // 1000 * 1000, entry["batchId"])
                self._last = number

    def _written(self) -> Iterator[tuple[int, Path]]:
        for file in self._folder.glob("[0-9]*"):
            if file.suffix in ("", ".compact") and file.stem.isdecimal():
                yield int(file.stem), file

    def ended(self) -> int:
        """Return the number of the last batch that has ended, -1 for none; right as long as nothing runs."""
        commits = [int(file.name) for file in self._commits.glob("[0-9]*") if file.name.isdecimal()]
        if not commits:
            return -1
        last = self._commits.parent / "offsets" / str(max(commits))
        return int(json.loads(last.read_text(encoding="utf-8").splitlines()[-1])["logOffset"])


class FileWatch:
    """Names the files of a source that are not read, while a job runs; a context manager."""

    def __init__(self, folder: Path, subfolders: bool, checkpoint: Path, say: Callable[[str], None]) -> None:
        """Begin with nothing said; a line is said for each file that is not read."""
        in_store = isinstance(folder, StorePath)
        self._folder = folder if in_store else Path(os.path.normpath(folder))  # as Spark writes it
        self._look_every_s = LOOK_INTO_STORE_EVERY_S if in_store else LOOK_EVERY_S
        self._subfolders = subfolders
        self._taken, self._unread = TakenFiles(spark_folder(checkpoint)), UnreadFiles(checkpoint)
        self._say = say
        self._named: set[tuple[Path, str]] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="files that are not read", daemon=True)

    @property
    def not_read(self) -> int:
        """How many files have been named."""
        return len({path for path, _ in self._named})

    def __enter__(self) -> Self:
        """Name what is not read from the start, and go on to look; before the query starts."""
        self._taken.read()
        ended = self._taken.ended()
        unfinished = {path: taken.batch for path, taken in self._taken.files.items() if taken.batch > ended}
        gone = {path: batch for path, batch in unfinished.items() if not found_location(path).exists()}
        for path in gone:
            self._name(found_location(path), "it was listed for a batch that has not ended, and is gone")
        self._unread.note(gone, ended)
        self._look(settled_ms=0)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Look a last time; what a query that has done all there was has left, is named too."""
        self._closing.set()
        self._thread.join()
        self._look(settled_ms=0)
        if error is None:
            with contextlib.suppress(OSError):
                for path in readable_files(self._folder, self._subfolders):
                    if str(path) not in self._taken.files:
                        self._name(path, "it came while the job was ending; the next start takes it")

    def _run(self) -> None:
        pause_s = self._look_every_s
        while not self._closing.wait(pause_s):
            began_s = time.monotonic()
            self._look(_SETTLED_MS)
            pause_s = max(self._look_every_s, _LOOK_SHARE * (time.monotonic() - began_s))

    def _look(self, settled_ms: int) -> None:
        """Name what is passed over and has not changed for so long, and what has changed since it was taken.

        What is renamed or removed while one looks is seen the next time, and so is all that a store does not tell.
        """
        now_ms = epoch_ms()
        with contextlib.suppress(OSError, ValueError):
            self._taken.read()
        with contextlib.suppress(OSError):
            for path, reason in passed_over(self._folder, self._subfolders):
                # An object of a store is not there before it is whole.
                changed_ms = 0 if isinstance(path, StorePath) else modified_ms(path)
                if changed_ms is not None and now_ms - changed_ms >= settled_ms:
                    self._name(path, reason)
            for path, changed_ms in modified_files(self._folder, self._subfolders):
                taken = self._taken.files.get(str(path))
                if taken is not None and changed_ms not in (None, taken.modified_ms):
                    self._name(path, "it has changed since it was taken, and a file is read once; use a new file")

    def _name(self, path: Path, reason: str) -> None:
        if (path, reason) not in self._named:
            self._named.add((path, reason))
            self._say(f"events {path}: is not read: {reason}")
