"""What a running job is doing, for those who watch it: a small file beside its checkpoint, renewed twice a second.

    CHECKPOINT/buckets/live.json      written whole or not at all

Whoever scores only hands over each finished batch, which costs an append to a queue. A thread of its own counts, and
writes the file. It is no result: it is not synced to the disk, a write that fails is not repeated, and a job runs the
same without it. The file names the process and says when it was written, so that a reader can tell a job that has died.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa

from buckets.accounting import GroupAccount
from buckets.errors import BucketsError, first_line, kind_and_line
from buckets.last_minute import DoneBatch, LastMinute
from buckets.ledger import epoch_ms, partial_of
from buckets.rule_set import RuleSet

FORMAT = 2
EVERY_S = 0.5
LAG_EVERY_S = 2.0
LATEST_ALERTS = 20
MOST_WAITING = 1_000
"""Finished batches that wait to be counted: more means that whoever counts hangs."""
SILENT_AFTER_MS = 10_000
"""A file that has not been renewed for so long is of a job that does not run any more, or hangs."""
_OUTCOMES = [field.name for field in fields(GroupAccount) if field.type is int]
_SHOWN = (
    "rule_id", "rule_version", "ruleset_version", "rule", "event_id", "exact", "certain", "warm", "count", "operator",
    "limit",
)  # fmt: skip
_ORDER = ("source_order", "source", "position", "rule_id")
_READ = [*_SHOWN, "key", "value", "source_order", "source", "position"]
State = Literal["running", "silent", "gone", "stopped"]


def live_path(checkpoint: Path) -> Path:
    """Where the status of a checkpoint's job is."""
    return checkpoint / "buckets" / "live.json"


class LiveStatus:
    """Writes what a job is doing, until it is closed; also a context manager."""

    def __init__(
        self,
        checkpoint: Path,
        rules: Callable[[], RuleSet],
        lag: Callable[[], int | None] = lambda: None,
        rules_fault: Callable[[], str | None] = lambda: None,
        on_remark: Callable[[str], None] = lambda remark: None,
        every_s: float = EVERY_S,
    ) -> None:
        """Begin to write.

        Args:
            checkpoint: the job's checkpoint, which is there already.
            rules: the rule set in force.
            lag: how many messages are not yet judged, None where that is not known; asked every two seconds.
            rules_fault: why rules are not followed at the moment, None where they are.
            on_remark: called with a line when batches cannot be counted or the status cannot be made, once a reason.
            every_s: how often the file is renewed.
        """
        self._path = live_path(checkpoint)
        self._rules = rules
        self._ask_lag = lag
        self._rules_fault = rules_fault
        self._on_remark = on_remark
        self._every_s = every_s
        self._waiting: deque[DoneBatch] = deque()
        self._left_out = 0
        self._not_counted = 0
        self._fault: str | None = None
        self._minute = LastMinute()
        self._alerts: deque[dict[str, Any]] = deque(maxlen=LATEST_ALERTS)
        self._totals: dict[str, Counter[str]] = {}
        self._counts = Counter({"batches": 0, "events": 0, "malformed": 0, "alerts": 0})
        self._last_batch: dict[str, Any] | None = None
        self._described: dict[str, Any] = {"version": None}
        self._lag: int | None = None
        self._lag_until_s = 0.0
        self._started_ms = epoch_ms()
        self._failure: str | None = None
        self._closing = threading.Event()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._renew()
        self._thread = threading.Thread(target=self._run, name="live status", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Nothing more to begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, and say what the job failed of, if it did."""
        self.close(None if error is None or isinstance(error, KeyboardInterrupt) else first_line(error))

    def on_batch(self, batch: DoneBatch) -> None:
        """Hand over a finished batch; one too many is left out, and counted as that. Complexity: O(1), without I/O."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(batch)
        else:
            self._left_out += 1

    def close(self, failure: str | None = None) -> None:
        """Write a last time that the job has ended, and end.

        Args:
            failure: why it ended, where it has not just been stopped.
        """
        if not self._closing.is_set():
            self._failure = failure
            self._closing.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            self._try(self._renew)
        self._try(lambda: self._renew(ended_ms=epoch_ms()))

    def _try(self, work: Callable[[], None]) -> bool:
        """Do a part of the work, whose failure must be seen and must not end the rest; whether it was done."""
        try:
            work()
        except Exception as error:
            fault = kind_and_line(error)
            if fault != self._fault:
                self._fault = fault
                # Nor may it end this thread that nobody can be told.
                with contextlib.suppress(Exception):
                    self._on_remark(f"what `buckets watch` shows is not complete: {fault}")
            return False
        return True

    def _renew(self, ended_ms: int | None = None) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            if not self._try(partial(self._count, batch)):
                self._not_counted += 1
        status = self._status(epoch_ms(), ended_ms)
        # A full disk must not end the job; readers see how old the file is.
        with contextlib.suppress(OSError):
            unfinished = partial_of(self._path)
            unfinished.write_text(json.dumps(status, ensure_ascii=False), encoding="utf-8")
            unfinished.replace(self._path)

    def _count(self, batch: DoneBatch) -> None:
        account, latest = batch.account, latest_alerts(batch.alerts, LATEST_ALERTS)
        self._minute.add(batch)
        alerts = sum(group.alerts for group in account.groups)
        sizes = {"batches": 1, "events": account.events_in, "malformed": account.malformed, "alerts": alerts}
        self._counts.update(sizes)
        for group in account.groups:
            total = self._totals.setdefault(group.group, Counter(dict.fromkeys(_OUTCOMES, 0)))
            total.update({name: getattr(group, name) for name in _OUTCOMES})
        self._last_batch = {
            "batch_id": account.batch_id,
            "ruleset_version": account.ruleset_version,
            "events": account.events_in,
            "duration_ms": round(batch.duration_s * 1000),
            "written_ms": batch.written_ms,
        }
        for alert in latest:
            self._alerts.appendleft(alert | {"written_ms": batch.written_ms})

    def _status(self, now_ms: int, ended_ms: int | None) -> dict[str, Any]:
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
            "totals": dict(self._counts),
            "groups": {name: dict(total) for name, total in self._totals.items()},
            "last_batch": self._last_batch,
            "minute": self._minute.summary(now_ms),
            "lag": self._current_lag() if ended_ms is None else None,
            "rules": self._describe_rules(),
            "rules_fault": self._rules_fault(),
            "alerts": list(self._alerts),
        }

    def _current_lag(self) -> int | None:
        if time.monotonic() >= self._lag_until_s:
            try:
                self._lag = self._ask_lag()
            except Exception:  # Whoever is asked may be away, for instance between two starts of a query.
                self._lag = None
            self._lag_until_s = time.monotonic() + LAG_EVERY_S
        return self._lag

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


def latest_alerts(tables: Sequence[pa.Table], most: int) -> list[dict[str, Any]]:
    """The latest alerts of a batch as plain data, in arrival order.

    Args:
        tables: alerts, in no order.
        most: how many at the most.
    """
    rows: list[dict[str, Any]] = []
    for table in tables:
        latest = table.sort_by([(name, "ascending") for name in _ORDER]).slice(max(len(table) - most, 0))
        times_ms = latest["event_time"].cast(pa.int64())
        rows += latest.select(_READ).append_column("event_time", times_ms).to_pylist()
    rows.sort(key=lambda row: tuple(row[name] for name in _ORDER))
    return [_plain(row) for row in rows[-most:]]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """An alert as JSON can hold it: times in ms, decimals as text."""
    shown = {name: row[name] for name in (*_SHOWN, "event_time")}
    return shown | {"key": json.loads(row["key"]), "value": format(row["value"], "f")}


def messages_behind(progress: dict[str, Any]) -> int | None:
    """How many messages a query has not yet taken in, by what Spark reports of a batch; None where it does not say.

    Args:
        progress: a query's progress as plain data.
    """
    behind = None
    for source in progress.get("sources", ()):
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        if latest is None or end is None:
            continue
        ahead = (offset - end.get(partition, 0) for partition, offset in latest.items())
        behind = (behind or 0) + sum(max(messages, 0) for messages in ahead)
    return behind


def _offsets(reported: Any) -> dict[tuple[str, str], int] | None:
    """Offsets by topic and partition; None where these are no offsets of topics."""
    written = json.loads(reported) if isinstance(reported, str) else reported
    if not isinstance(written, dict):
        return None
    parts = {topic: offsets for topic, offsets in written.items() if isinstance(offsets, dict)}
    return {(topic, name): int(at) for topic, offsets in parts.items() for name, at in offsets.items()} or None


@dataclass(frozen=True)
class Live:
    """A status as it was read; `data` is the file."""

    data: dict[str, Any]

    def state(self, now_ms: int) -> State:
        """Whether the job runs, has been stopped, is gone without a word, or has not been heard of for a while."""
        if self.data["ended_ms"] is not None:
            return "stopped"
        if self.data["host"] == socket.gethostname() and not _is_alive(self.data["pid"]):
            return "gone"
        return "running" if now_ms - self.data["written_ms"] <= SILENT_AFTER_MS else "silent"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_live(checkpoint: Path) -> Live | None:
    """The status of a checkpoint's job; None where no job has written one.

    Raises:
        BucketsError: there is a file, and it cannot be read.
    """
    path = live_path(checkpoint)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        message = f"status {path}: cannot be read ({first_line(error)}); start the job again, which writes it anew"
        raise BucketsError(message) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        message = f"status {path}: is of another release, and this one reads format {FORMAT}; start the job again"
        raise BucketsError(message)
    return Live(data)
