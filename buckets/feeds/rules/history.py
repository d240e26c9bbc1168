"""The table `rule_changes`: every change of the rules, its author, reason and start, and the rule before and after.

The driver writes it in a separate thread, so that no batch waits. Each version in the checkpoint is written once: the
table records the number of the last one, and a start, or the next write after a failure, adds all later ones.
"""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from buckets.checkpoint.record_files import OWNER
from buckets.checkpoint.rule_versions import RuleVersions, Version
from buckets.config.job import Job, kept_results
from buckets.delta.kept_table import append_new
from buckets.delta.whole_table import make_table, open_table, query
from buckets.errors import BucketsError, first_line
from buckets.json_text import write_json
from buckets.rules.rule import Rule

TABLE = "rule_changes"
AGAIN_AFTER_S = 10.0  # The pause after a failed write before the next one
_REMEDY = "the checkpoint has all changes"
_TIME = pa.timestamp("us", "UTC")
COLUMNS = pa.schema(
    {
        "ruleset_version": pa.int64(),
        "first_batch": pa.int64(),
        "change": pa.string(),
        "rule_id": pa.string(),
        "rule_version": pa.int32(),
        "author": pa.string(),
        "reason": pa.string(),
        "asked_at": _TIME,
        "in_force_at": _TIME,
        "place": pa.string(),
        "rule_before": pa.string(),
        "rule_after": pa.string(),
    }
)


def rule_changes_path(job: Job) -> Path:
    """Return the path of the changes of a job's rules: beside its other tables, or else in its checkpoint."""
    return (kept_results(job) or job.checkpoint) / TABLE


def open_history(job: Job, identity: str, on_fault: Callable[[BucketsError], None] | None = None) -> "RuleHistory":
    """Return the history of a job's rules."""
    path = rule_changes_path(job)
    # The folder must stay empty until it has an owner, who would otherwise refuse it.
    owner = path.parent / OWNER if path.parent != job.checkpoint else None
    return RuleHistory(RuleVersions(job.checkpoint), path, identity, on_fault or (lambda fault: None), owner)


def rows_of(versions: Iterable[Version]) -> list[dict[str, Any]]:
    """Return versions as rows, with times in us since the epoch."""
    return [
        {
            "ruleset_version": version.version,
            "first_batch": version.first_batch,
            "change": change.change,
            "rule_id": change.rule_id,
            "rule_version": change.rule_version,
            "author": change.author,
            "reason": change.reason,
            "asked_at": _us(change.time),
            "in_force_at": _us(version.made_ms),
            "place": change.origin,
            "rule_before": _json(change.before),
            "rule_after": _json(change.after),
        }
        for version in versions
        for change in version.changes
    ]


def _us(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * 1000


def _json(rule: Rule | None) -> str | None:
    return None if rule is None else write_json(rule.model_dump(by_alias=True, mode="json"))


def read_rule_changes(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table of changes, oldest first, in the form of `rows_of`."""
    sql = f"select {', '.join(COLUMNS.names)} from rows order by ruleset_version"
    table = query(path, sql, f"history {path}", _REMEDY)
    for name in ("asked_at", "in_force_at"):
        column = table.column(name).cast(_TIME).cast(pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


class RuleHistory:
    """Writes the table in the background."""

    def __init__(
        self,
        versions: RuleVersions,
        path: Path,
        identity: str,
        on_fault: Callable[[BucketsError], None] = lambda fault: None,
        owner: Path | None = None,
    ) -> None:
        """Write nothing before the first `record`.

        The checkpoint's identity and the version number make each write happen once. `on_fault` is called once per
        fault, and the write is retried. The table is created only once the file `owner` exists.
        """
        self._versions, self._path, self._application = versions, path, f"{identity}-{TABLE}"
        self._on_fault, self._owner = on_fault, owner
        self._fault = ""
        self._asked = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def record(self) -> None:
        """Schedule the writing of new versions; returns at once."""
        if self._thread is None:
            self._closing = False
            self._thread = threading.Thread(target=self._run, name=TABLE, daemon=True)
            self._thread.start()
        self._asked.set()

    def close(self) -> None:
        """Write the remaining versions, and end."""
        if self._thread is None:
            return
        self._closing = True
        self._asked.set()
        self._thread.join()
        self._thread = None

    def _run(self) -> None:
        waiting_s: float | None = None
        while True:
            self._asked.wait(waiting_s)
            self._asked.clear()
            last = self._closing
            try:
                waiting_s = None if self._write() else AGAIN_AFTER_S
            except Exception as error:
                waiting_s, fault = AGAIN_AFTER_S, first_line(error)
                if fault != self._fault:
                    message = f"history {self._path}: the table cannot be written ({fault}); {_REMEDY}"
                    self._on_fault(BucketsError(message))
                self._fault = fault
            else:
                self._fault = ""
            if last:
                return

    def _write(self) -> bool:
        """Write all missing versions in one commit; return False while the folder has no owner yet."""
        if self._owner is not None and not self._owner.exists():
            return False
        make_table(self._path, COLUMNS)
        append_new(open_table(self._path), self._application, self._new_rows)
        return True

    def _new_rows(self, last: int | None) -> tuple[int, pa.Table] | None:
        versions = self._versions.history(after=last or 0)
        rows = rows_of(versions)
        return (versions[-1].version, pa.Table.from_pylist(rows, schema=COLUMNS)) if rows else None
