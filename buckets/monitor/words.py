"""A job's status as text: whether it runs, what is wrong and how to mend it, and how late results are.

Also reports, once each, the files of a source that are not read while a job runs.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from buckets.checkpoint.source_offsets import spark_folder
from buckets.clock import epoch_ms
from buckets.duration import DAY_MS, spoken_duration
from buckets.engine.stages.accounting import BatchAccount
from buckets.events.message_fields import clock_lines, misfit, wrong_unit
from buckets.events.schema import EventTime
from buckets.events.source_files import modified_files, modified_ms, passed_over, plain_path, readable_files
from buckets.moment import day_text, time_text
from buckets.monitor.live import Live
from buckets.stores.location import found_location
from buckets.stores.store_path import StorePath

Status = dict[str, Any]
FALLS_BEHIND, CATCHES_UP, SLOW = "falls behind", "catches up", "slow"
_WAITS = 0.5  # A job that is busy for a smaller share of time waits for its trigger, not for its work


def never_ran(conf: Path, checkpoint: Path) -> str:
    """Say that a job has never run."""
    return (
        f"job {conf}: has never run, there is no status in its checkpoint {checkpoint}; "
        f"start it with `buckets run {conf}`"
    )


def state_line(conf: Path, checkpoint: Path, live: Live | None, now_ms: int) -> str:
    """Describe in one line whether the job runs, and what to do if not."""
    if live is None:
        return never_ran(conf, checkpoint)
    data, state = live.data, live.state(now_ms)
    process = f"process {data['pid']} on {data['host']}"
    written = f"{clock_text(data['written_ms'])} UTC"
    if state == "running":
        return f"job {conf}: runs, {process}, since {clock_text(data['started_ms'])} UTC"
    if state == "silent":
        return f"job {conf}: has not reported since {written}; {process} hangs, or its machine is down"
    remedy = f"start it again with `buckets run {conf}`"
    if state == "gone":
        return f"job {conf}: is not running, {process} died after {written}; {remedy}"
    if data["failure"]:
        return f"job {conf}: is not running, it failed at {written}: {data['failure']}"
    return f"job {conf}: is not running, it was stopped at {written}; {remedy}"


def remarks_on(data: Status) -> list[str]:
    """Describe what is wrong with a running job, one line each."""
    remarks: list[str] = []
    if data["rules_fault"] and data["ended_ms"] is None:
        remarks.append(f"the rules may be out of date: {data['rules_fault']}")
    schema_fault = schema_news(data).get("fault")
    if schema_fault and data["ended_ms"] is None:
        remarks.append(f"the event schema stays as it is: {schema_fault}")
    if data["fault"] or data["not_counted"]:
        why = data["fault"] or "they came faster than they could be counted"
        left_out = "1 batch is" if data["not_counted"] == 1 else f"{data['not_counted']:,} batches are"
        remarks.append(f"these figures are not complete, {left_out} not in them: {why}")
    remarks += data.get("shortages", [])
    return remarks


def schema_news(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a job reports about its event schema, as `QueryNews.schema`; empty if the status has nothing."""
    news: Mapping[str, Any] = data.get("query", {}).get("schema", {})
    return news


def faults_of(conf: Path, checkpoint: Path, live: Live, now_ms: int) -> list[str]:
    """Describe a job's faults, one line each: its failure, its own reports, and falling behind.

    A slow job that keeps up has no fault; `pace_line` describes it.
    """
    failed = [state_line(conf, checkpoint, live, now_ms)] if live.has_failed(now_ms) else []
    behind = [pace_line(live.data)] if pace_state(live.data) == FALLS_BEHIND else []
    return failed + remarks_on(live.data) + behind


def pace_state(data: Mapping[str, Any]) -> str:
    """Return how a job keeps up, as `Pace.state`; `unknown` if it has ended."""
    pace = data.get("pace")
    return "unknown" if pace is None or data["ended_ms"] is not None else str(pace["state"])


def pace_line(data: Mapping[str, Any]) -> str:
    """Describe a job that falls behind, catches up, or is slow though it keeps up, with a remedy; otherwise empty."""
    state = pace_state(data)
    if state not in (FALLS_BEHIND, CATCHES_UP, SLOW):
        return ""
    pace = data["pace"]
    late = "late" if pace["delay_ms"] is None else f"{spoken_duration(pace['delay_ms'])} late"
    if state == CATCHES_UP:
        return f"the job is catching up: results are still {late}, less with each batch; nothing to do but wait"
    if state == FALLS_BEHIND:
        come = pace["come_per_s"]
        come_words = "more arrive" if come is None else f"about {come:,.0f} arrive"
        rate = "RATE" if come is None else f"{come:.0f}"
        return (
            f"the job is falling behind: it does {pace['done_per_s']:,.0f} events/s, and {come_words}; results are "
            f"{late}, and more so with each batch; give it more cores (`buckets size CONF --rate {rate}` says how "
            "many), a machine that is less busy, or fewer events"
        )
    if pace["busy"] < _WAITS:
        why = f"it is at work for {pace['busy']:.0%} of the time, and then waits: shorten trigger.interval"
    else:
        why = f"a batch takes {pace['batch_ms']:,} ms: a machine that is less busy, or fewer shards and partitions help"
    return f"the job keeps up, but is slow: results are {late}, and no more so with each batch; {why}"


def quantiles_text(times_ms: dict[str, int] | None) -> str:
    """Return quantiles of times in one line; empty if there are none."""
    return ", ".join(f"{name} {time_ms:,} ms" for name, time_ms in (times_ms or {}).items())


def clock_text(time_ms: int) -> str:
    """Return a time of day, with the date unless it is today."""
    return time_text(time_ms).removeprefix(f"{day_text(epoch_ms() // DAY_MS)} ")


LOOK_EVERY_S, LOOK_INTO_STORE_EVERY_S = 10.0, 60.0
_LOOK_SHARE = 20  # The inverse of the share of time spent looking, however many files there are
_SETTLED_MS = 60_000  # A hidden file that has not changed for this long is no longer being written


class Taken(NamedTuple):
    """A file taken by Spark: its modification time then, as in `modified_ms`, and the batch."""

    modified_ms: int
    batch: int


class TakenFiles:
    """Spark's list of the files that a query has taken, read incrementally."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "sources" / "0"
        self._commits = checkpoint / "commits"
        self._last = -1
        self.files: dict[str, Taken] = {}

    def read(self) -> None:
        """Read new entries."""
        lists = [file for file in self._folder.glob("[0-9]*") if file.suffix in ("", ".compact")]
        numbered = ((int(file.stem), file) for file in lists if file.stem.isdecimal())
        newer = sorted((entry for entry in numbered if entry[0] > self._last), key=lambda entry: entry[0])
        # A compacted list replaces all earlier ones, which may be gone.
        whole = [number for number, file in newer if file.suffix == ".compact"]
        for number, file in newer:
            if number >= max(whole, default=-1):
                for line in file.read_text(encoding="utf-8").splitlines()[1:]:
                    entry = json.loads(line)
                    path, known_ms = plain_path(entry["path"]), entry["timestamp"]
                    is_exact = path.startswith("/")
                    self.files[path] = Taken(known_ms if is_exact else known_ms // 1000 * 1000, entry["batchId"])
                self._last = number

    def ended(self) -> int:
        """Return the last ended batch, -1 for none; accurate while nothing runs."""
        commits = [int(file.name) for file in self._commits.glob("[0-9]*") if file.name.isdecimal()]
        if not commits:
            return -1
        last = self._commits.parent / "offsets" / str(max(commits))
        return int(json.loads(last.read_text(encoding="utf-8").splitlines()[-1])["logOffset"])


class FileWatch:
    """Reports the files of a source that are not read while a job runs; a context manager."""

    def __init__(self, folder: Path, subfolders: bool, checkpoint: Path, say: Callable[[str], None]) -> None:
        """Report nothing yet; `say` receives a line for each unread file."""
        in_store = isinstance(folder, StorePath)
        self._folder = folder if in_store else Path(os.path.normpath(folder))  # as Spark writes it
        self._look_every_s = LOOK_INTO_STORE_EVERY_S if in_store else LOOK_EVERY_S
        self._subfolders = subfolders
        self._taken = TakenFiles(spark_folder(checkpoint))
        self._say = say
        self._named: set[tuple[Path, str]] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="files that are not read", daemon=True)

    @property
    def not_read(self) -> int:
        """The number of files reported."""
        return len({path for path, _ in self._named})

    def __enter__(self) -> Self:
        """Report unread files, and keep looking; call this before the query starts."""
        self._taken.read()
        ended = self._taken.ended()
        for path, taken in self._taken.files.items():
            if taken.batch > ended and not found_location(path).exists():
                self._name(found_location(path), "it was listed for a batch that has not ended, and is gone")
        self._look(settled_ms=0)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Look a last time; report what a query that has processed everything has left out."""
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
        """Report files that were passed over and have been stable this long, and files that changed once taken.

        Files renamed or removed during the look are seen next time, as is anything that a store does not list.
        """
        now_ms = epoch_ms()
        with contextlib.suppress(OSError, ValueError):
            self._taken.read()
        with contextlib.suppress(OSError):
            for path, reason in passed_over(self._folder, self._subfolders):
                # An object of a store appears only when it is complete.
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


class TimeNotes:
    """Reports ambiguous clocks and, from the first batch, event times in another unit than declared."""

    def __init__(self, declared: EventTime, say: Callable[[str], None]) -> None:
        """Report nothing yet; `declared` is the time field as the event schema's file has it."""
        self._declared, self._say = declared, say
        self._is_checked, self._told = False, set[str]()

    def take(self, account: BatchAccount) -> None:
        """Examine a batch before it is written."""
        counts = account.facts.times
        if not self._is_checked and counts:
            self._is_checked = True
            span = (account.arrived[0].first_ms, account.arrived[-1].last_ms) if account.arrived else None
            fault = misfit(counts, self._declared) or (wrong_unit(counts, *span, self._declared) if span else None)
            if fault is not None:
                self._say(f"batch {account.batch_id}: {fault}")
        for kind, line in clock_lines(counts, self._declared):
            if kind not in self._told:
                self._told.add(kind)
                self._say(f"batch {account.batch_id}: {line}")
