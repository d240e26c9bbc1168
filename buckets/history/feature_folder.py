"""Features as a table by day, month or year of event time, written in rounds, which resumes where it stopped.

    OUT/_delta_log                                a commit for each round, with the number of the next arrival
    OUT/day=2026-01-31/000000500000.parquet       rows of a piece, from this position on
    OUT/_timelines/1000000/3                      the timelines of shard 3 before this arrival

Pieces do not depend on where a run stopped, and they determine the names and contents of files. A round writes its
files and timelines, then its commit; without a commit, it is written again.
"""

import fcntl
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from errno import EACCES, EDQUOT, EEXIST, EFBIG, ENOSPC, ENOTDIR, EPERM, EROFS
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from buckets.delta.commits import LOG, Action, Commits, DataFile, commit_info, write_data_file
from buckets.delta.whole_table import files_in, make_table, open_table
from buckets.errors import BucketsError, first_line

Unit = Literal["day", "month", "year"]
WRITER = "written by buckets features"
"""The description of a table: only tables with this mark are resumed or replaced."""
_APPLICATION, _QUESTION = "buckets-features", "buckets.features"
LOCK, TIMELINES, _NO_TIME = "_lock", "_timelines", "__HIVE_DEFAULT_PARTITION__"
_OWN_FILE = re.compile(r"\d{12,}\.parquet|part-00000-[0-9a-f-]{36}-c000\.snappy\.parquet")
_UNWRITABLE = {None, EACCES, EDQUOT, EEXIST, EFBIG, ENOSPC, ENOTDIR, EPERM, EROFS}  # Libraries give no number


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Turn errors of writing features into a message of one line."""
    try:
        yield
    except (OSError, DeltaError) as error:
        if isinstance(error, BucketsError) or getattr(error, "errno", None) not in _UNWRITABLE:
            raise
        reason = getattr(error, "strerror", None) or first_line(error)
        message = f"--out {path}: cannot be written ({reason}); see to it and start again, or name another place"
        raise BucketsError(message) from error


@dataclass(frozen=True)
class FeatureFolder:
    """The folder of such a table; any process that can access it can write files."""

    path: Path
    by: Unit
    columns: pa.Schema  # of features, as Delta tables have them

    @contextmanager
    def begun(self, question: Mapping[str, Any], overwrite: bool) -> Iterator[int]:
        """Create the table that answers a question, or resume it, and lock it; returns the next arrival number."""
        with written_to(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with (self.path / LOCK).open("a") as file:
                self._lock(file)
                if overwrite:
                    self._clear()
                yield self._next_arrival(question)

    def _lock(self, file: IO[str]) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"--out {self.path}: another process writes to it; wait for it, or name another"
            raise BucketsError(message) from None

    def _clear(self) -> None:
        """Remove the table, but no other files in its folder."""
        self._clean(-1)
        shutil.rmtree(self.path / LOG, ignore_errors=True)
        self._remove(self._own_files())

    def _own_files(self) -> set[Path]:
        return {file for file in self.path.glob(f"{self.by}=*/*.parquet") if _OWN_FILE.fullmatch(file.name)}

    def _remove(self, files: Iterable[Path]) -> None:
        for file in files:
            file.unlink()
            with suppress(OSError):
                file.parent.rmdir()  # removed if it is empty

    def _next_arrival(self, question: Mapping[str, Any]) -> int:
        """Return the number of the next arrival, and remove leftovers of a killed run."""
        columns, asked = self.columns.append(pa.field(self.by, pa.date32())), json.dumps(question)
        make_table(self.path, columns, {_QUESTION: asked}, partition_by=[self.by], description=WRITER)
        table = open_table(self.path)
        known = json.loads(table.metadata().configuration[_QUESTION])
        others = [words for words, wanted in json.loads(asked).items() if known.get(words) != wanted]
        if others:
            message = f"--out {self.path}: was written with other {' and '.join(others)}; name another, or --overwrite"
            raise BucketsError(message)
        end = table.transaction_version(_APPLICATION) or 0
        self._clean(end)
        committed = {self.path / name for name in files_in(table)["path"].to_pylist()}
        self._remove(self._own_files() - committed)
        return end

    def write(self, rows: pa.Table) -> Iterator[DataFile]:
        """Write rows of a piece, and yield their files, which are not committed yet."""
        dates = pc.floor_temporal(rows["event_time"].cast(pa.timestamp("ms")), unit=self.by).cast(pa.date32())
        order = np.argsort(dates.cast(pa.int32()).fill_null(-(2**31)).to_numpy(), kind="stable")
        dates, rows = dates.take(order), rows.take(order).cast(self.columns)
        ends = pc.run_end_encode(dates.combine_chunks()).run_ends.to_pylist() if len(rows) else []
        for first, end in zip([0, *ends], ends, strict=False):
            date, own = dates[first].cast(pa.string()).as_py(), rows.slice(first, end - first)
            file = write_data_file(self.path, [own], self.columns, {self.by: date or _NO_TIME})
            named = file.path.with_name(f"{own['position'][0].as_py():012d}.parquet")
            file.path.replace(named)
            yield replace(file, path=named, partition={self.by: date})

    def commit(self, end: int, files: Sequence[DataFile]) -> None:
        """Commit a round that ends before an arrival, after its files and timelines are written."""
        actions: list[Action] = [
            commit_info("WRITE", {"mode": "Append"}, is_append=True),
            {"txn": {"appId": _APPLICATION, "version": end}},
            *(file.added(data_change=True) for file in files),
        ]
        if not Commits(self.path).put(open_table(self.path).version() + 1, actions):
            message = f"--out {self.path}: another process has written to it; name another"
            raise BucketsError(message)
        self._clean(end)

    def _clean(self, end: int) -> None:
        """Remove the timelines stored before any arrival but one."""
        for folder in (self.path / TIMELINES).glob("*"):
            if folder.name.isdecimal() and folder.name != str(end) and not folder.is_symlink():
                shutil.rmtree(folder)
