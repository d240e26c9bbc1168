"""The status of a running job in a file, written by the job and read by its observers.

    CHECKPOINT/buckets/live.json      written by `live`, atomically

The file names the process and the time of writing, so that a reader recognises a job that has died.
"""

import contextlib
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from buckets.checkpoint.record_files import seal_json, unseal_json
from buckets.checkpoint.source_offsets import records_folder
from buckets.clock import epoch_ms
from buckets.errors import BucketsError, first_line, kind_and_line
from buckets.files import show_whole
from buckets.monitor.pace import BatchReport, LastHour, RecentMoments, pace_of, recorded_hour, sample_of
from buckets.monitor.processes import PROC, ProcessUse, by_kind, job_processes
from buckets.monitor.query_news import JobCounts, QueryNews, QueryWatch
from buckets.rules.rule_set import RuleSet
from buckets.stores.store_path import StoreError, StorePath

NEAR = 0.8  # Report when this share of a resource is used
LITTLE_MEMORY = 0.05  # Report when less than this share of the memory is free
GIB = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")


def shortages(uses: Iterable[ProcessUse]) -> list[str]:
    """Describe what processes will soon run out of, a line each with a remedy; empty if all is well or unknown."""
    lines = [
        f"descriptors run out: {use.kind}, process {use.pid}, has {use.descriptors:,} open and may have "
        f"{use.descriptor_limit:,}; start the job with a higher limit (`ulimit -n`, LimitNOFILE of systemd), and "
        "report it if they grow with time"
        for use in uses
        if use.descriptor_limit is not None and use.descriptors >= NEAR * use.descriptor_limit
    ]
    taken, limit = _number(_CGROUP / "pids.current"), _number(_CGROUP / "pids.max")
    if taken is not None and limit is not None and taken >= NEAR * limit:
        lines.append(
            f"threads run out: this container has {taken:,} and may have {limit:,}; raise its limit of processes"
        )
    for left, total, whose in _memory():
        if left < LITTLE_MEMORY * total:
            lines.append(
                f"memory runs out: {left / GIB:.1f} of {total / GIB:.1f} GiB of this {whose} are left; give the job "
                "more, or less to spark.driver.memory, state.log and state.cache"
            )
            break
    return lines


def _memory() -> Iterator[tuple[int, int, str]]:
    """Yield the free and the total memory and whose it is, as far as known."""
    limit, taken = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and taken is not None:
        # The page cache is released when memory is needed.
        yield limit - taken + (_field(_CGROUP / "memory.stat", "inactive_file") or 0), limit, "container"
    left, total = (_field(PROC / "meminfo", name) for name in ("MemAvailable:", "MemTotal:"))
    if left is not None and total:
        yield left * 1024, total * 1024, "machine"


def _number(path: Path) -> int | None:
    """Read a number from a file; None if there is no file, or it says `max`."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _field(path: Path, name: str) -> int | None:
    """Read the number after a name in a file of names and numbers; None if the name is missing."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            fields = line.split()
            if fields[0] == name:
                return int(fields[1])
    return None


FORMAT = 2
SILENT_AFTER_MS = 10_000
"""A status older than this comes from a job that has stopped or hangs."""
State = Literal["running", "silent", "gone", "stopped"]


def live_path(checkpoint: Path) -> Path:
    """Return the path of the status of a checkpoint's job."""
    return records_folder(checkpoint) / "live.json"


@dataclass(frozen=True)
class Live:
    """A status as it was read; `data` is the file."""

    data: dict[str, Any]

    def state(self, now_ms: int) -> State:
        """Return whether the job runs, was stopped, vanished without a word, or has been silent for a while."""
        if self.data["ended_ms"] is not None:
            return "stopped"
        if self.data["host"] == socket.gethostname():
            try:
                os.kill(self.data["pid"], 0)
            except ProcessLookupError:
                return "gone"
            except PermissionError:
                pass
        return "running" if now_ms - self.data["written_ms"] <= SILENT_AFTER_MS else "silent"

    def has_failed(self, now_ms: int) -> bool:
        """Return whether the job failed or has fallen silent; False if it runs or was stopped."""
        state = self.state(now_ms)
        return state in ("gone", "silent") or (state == "stopped" and bool(self.data["failure"]))


def read_live(checkpoint: Path) -> Live | None:
    """Read the status of a checkpoint's job; None if no job has written one."""
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


EVERY_S = 0.5
STORE_EVERY_S = 5.0  # How often the file is written to an object store, which charges for each write
PROCESSES_EVERY_S = 10.0
MOST_WAITING = 1_000  # Finished batches that wait to be counted: with more, the counting thread must be hanging


class LiveStatus:
    """Writes what a job is doing, until it is closed; also a context manager.

    Attributes:
        latest: the newest status; never modified, but replaced by the next one.
    """

    def __init__(
        self,
        checkpoint: Path,
        rules: Callable[[], RuleSet],
        query: Callable[[], QueryNews] = QueryNews,
        rules_fault: Callable[[], str | None] = lambda: None,
        on_remark: Callable[[str], None] = lambda remark: None,
        every_s: float = EVERY_S,
    ) -> None:
        """Start writing into an existing checkpoint.

        `on_remark` receives a line when batches cannot be counted or the status cannot be made, once per reason, and
        when the job will soon run out of descriptors, threads or memory.
        """
        self.latest: dict[str, Any] = {}
        self._path = live_path(checkpoint)
        self._rules = rules
        self._query = QueryWatch(query)
        self._rules_fault = rules_fault
        self._on_remark = on_remark
        self._every_s = every_s
        self._show_every_s = STORE_EVERY_S if isinstance(checkpoint, StorePath) else 0.0
        self._shown_s = -STORE_EVERY_S
        self._waiting: deque[BatchReport] = deque()
        self._left_out = 0
        self._not_counted = 0
        self._fault: str | None = None
        self._counts = JobCounts()
        self._moments, self._hour = RecentMoments(), LastHour()
        # The last hour of the previous run, if it is readable.
        with contextlib.suppress(BucketsError):
            before = read_live(checkpoint)
            self._hour = LastHour([] if before is None else recorded_hour(before.data))
        self._described: dict[str, Any] = {"version": None}
        self._refused_changes = 0
        self._outages = 0
        self._processes: dict[str, dict[str, int]] = {}
        self._shortages: list[str] = []
        self._processes_until_s = 0.0
        self._started_ms = epoch_ms()
        self._failure: str | None = None
        self._closing = threading.Event()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._renew()
        self._thread = threading.Thread(target=self._run, name="live status", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close, and record the error if the job failed."""
        self.close(None if error is None or isinstance(error, KeyboardInterrupt) else first_line(error))

    def on_batch(self, batch: BatchReport) -> None:
        """Hand over a finished batch; if the queue is full, it is only counted as left out. Cost: O(1), without I/O."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(batch)
        else:
            self._left_out += 1

    def on_refused(self, changes: int) -> None:
        """Count rule changes that were refused."""
        self._refused_changes += changes

    def on_outage(self) -> None:
        """Count an outage of Kafka or a store, which is being retried."""
        self._outages += 1

    def close(self, failure: str | None = None) -> None:
        """Write a final status with the job's end and its failure, if it did not simply stop; then end."""
        if not self._closing.is_set():
            self._failure = failure
            self._closing.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            self._try(self._renew)
        self._try(lambda: self._renew(ended_ms=epoch_ms()))

    def _try(self, work: Callable[[], None]) -> bool:
        """Do one part of the work and return whether it succeeded; a failure is reported and does not stop the rest."""
        try:
            work()
        except Exception as error:
            fault = kind_and_line(error)
            if fault != self._fault:
                self._fault = fault
                # A failed report must not end this thread either.
                with contextlib.suppress(Exception):
                    self._on_remark(f"what `buckets watch` shows is not complete: {fault}")
            return False
        return True

    def _renew(self, ended_ms: int | None = None) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            if not self._try(partial(self._count, batch)):
                self._not_counted += 1
        for batch in self._counts.unshown():
            if not self._try(partial(self._counts.show, batch)):
                self._not_counted += 1
        self._try(self._look_at_processes)
        if ended_ms is None:
            self._query.look()
        self.latest = status = self._status(epoch_ms(), ended_ms)
        if ended_ms is None and time.monotonic() - self._shown_s < self._show_every_s:
            return
        self._shown_s = time.monotonic()
        # A full disk must not end the job: readers see the file's age.
        with contextlib.suppress(OSError):
            show_whole(self._path, seal_json(status))

    def _count(self, batch: BatchReport) -> None:
        self._moments.add(batch, self._query.news.lag)
        self._counts.add(batch)

    def _status(self, now_ms: int, ended_ms: int | None) -> dict[str, Any]:
        counts = self._counts.to_json(now_ms)
        lag = self._query.news.lag if ended_ms is None else None
        self._hour.add(sample_of(counts["minute"], lag, now_ms))
        return {
            "format": FORMAT,
            "written_ms": now_ms,
            "started_ms": self._started_ms,
            "ended_ms": ended_ms,
            "failure": self._failure,
            "not_counted": self._not_counted + self._left_out,
            "fault": self._fault,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "lag": lag,
            "idle_ms": self._query.idle_ms,
            "query": self._query.news.to_json(),
            "refused_changes": self._refused_changes,
            "outages": self._outages,
            "processes": self._processes,
            "shortages": self._shortages,
            "rules": self._describe_rules(),
            "rules_fault": self._rules_fault(),
            "hour": self._hour.to_json(),
            "pace": asdict(pace_of(self._moments.latest())),
        } | counts

    def _look_at_processes(self) -> None:
        """Measure the job's processes, and report once each time a resource begins to run out."""
        if time.monotonic() < self._processes_until_s:
            return
        self._processes_until_s = time.monotonic() + PROCESSES_EVERY_S
        uses = job_processes(os.getpid())
        known, self._processes = {_subject(line) for line in self._shortages}, by_kind(uses)
        self._shortages = shortages(uses)
        for line in self._shortages:
            if _subject(line) not in known:
                self._on_remark(line)

    def _describe_rules(self) -> dict[str, Any]:
        rule_set = self._rules()
        if rule_set.version != self._described["version"]:
            rules = [rule for rule in rule_set.rules if rule.state != "DELETE"]
            self._described = {
                "version": rule_set.version,
                "states": dict(Counter(rule.state for rule in rules)),
                "rules": [
                    {"rule_id": rule.rule_id, "version": rule.version, "state": rule.state, "sentence": rule.sentence()}
                    for rule in rules
                ],
            }
        return self._described


def _subject(shortage: str) -> str:
    """Return the subject of a shortage without its numbers, which change."""
    return shortage.partition(":")[0]
