"""A job under inspection: its alerts, newest first, its batches, and the precision of its rules."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from buckets.changes.origin import JobRules, job_rules
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, kept_results
from buckets.delta.newest_rows import Order, RowFilter, RowPlace, newest_rows
from buckets.delta.whole_table import in_ms, is_in, is_table, query
from buckets.errors import BucketsError
from buckets.feeds.feed import WatchedFiles
from buckets.json_text import write_json
from buckets.outputs.columns import ALERTS, BATCHES, DEAD_LETTERS, HELD_ALERTS, SHADOW_ALERTS
from buckets.outputs.messages import crossed, term_value
from buckets.outputs.recorded_outputs import Selection, has_alerts, rows_of, with_alerts
from buckets.printable import key_words, quoted, value_text
from buckets.questions.long_questions import named_times
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.verdicts.confirmed import job_verdicts, recorded_alerts
from buckets.verdicts.quality import quality
from buckets.verdicts.verdict import FINDINGS, Findings, ShareInterval, findings
from buckets.verdicts.verdict_table import load_verdicts, verdict_table

ROWS = 50
MOST_LOOKED_AT = 1_000_000
KINDS = {"": (ALERTS,), "trial": (SHADOW_ALERTS,), "held": (HELD_ALERTS,), "all": (ALERTS, SHADOW_ALERTS, HELD_ALERTS)}
"""Kinds of listed alerts: raised, on trial, held back, or all."""
COLUMNS = (
    "alert_id", "event_time", "rule_id", "rule_version", "ruleset_version", "rule", "key", "event_id", "value", "limit",
    "operator", "count", "exact", "certain", "warm", "terms", "condition", "severity", "tags", "held_by",
)  # fmt: skip
_ORDER = Order("event_time", "alert_id")
_BY_OUTPUT = {ALERTS: "", SHADOW_ALERTS: "on trial", HELD_ALERTS: "held back"}
NO_VERDICT = "none"


@dataclass(frozen=True)
class AlertFilter:
    """A selection of alerts; empty texts select all."""

    kind: str = ""  # which of `KINDS`
    rule: str = ""  # the id of their rule
    key: str = ""  # a value that some field of the key has
    severity: str = ""  # of their rule
    verdict: str = ""  # what was found about them
    begin: str = ""  # the first event time
    end: str = ""  # the first event time that does not count any more
    key_fields: Mapping[str, str] = field(default_factory=dict)  # fields that the key has, each with its value as text

    @classmethod
    def of(cls, named: Callable[[str], str]) -> "AlertFilter":
        """Parse a filter from the fields of a URL, which a function returns by name."""
        kind, verdict = named("kind"), named("verdict")
        if kind not in KINDS:
            message = f"kind: there is no {kind!r}; take one of trial, held and all, or leave it out"
            raise BucketsError(message)
        if verdict not in ("", NO_VERDICT, *FINDINGS):
            message = f"verdict: there is no {verdict!r}; take one of {', '.join(FINDINGS)} and {NO_VERDICT}"
            raise BucketsError(message)
        return cls(kind, named("rule"), named("key"), named("severity"), verdict, named("from"), named("to"))

    def fields(self) -> dict[str, str]:
        """Return the filter as fields of a URL."""
        return {
            "kind": self.kind, "rule": self.rule, "key": self.key, "severity": self.severity, "verdict": self.verdict,
            "from": self.begin, "to": self.end,
        }  # fmt: skip

    def wanted(self, before: RowPlace | None, given: Findings) -> RowFilter:
        """Return the selection of rows by which an output is read."""
        tests: list[tuple[str, Callable[[pa.Table], pa.ChunkedArray]]] = []
        if self.rule:
            tests.append(("rule_id", lambda rows: pc.equal(rows["rule_id"], self.rule)))
        if self.severity:
            tests.append(("severity", lambda rows: pc.equal(rows["severity"], self.severity)))
        if self.key:
            tests.append(
                ("key", lambda rows: _has_values(rows["key"], {self.key}, lambda key: self.key in key.values()))
            )
        if self.key_fields:
            fields, values = self.key_fields.items(), set(self.key_fields.values())
            tests.append(("key", lambda rows: _has_values(rows["key"], values, lambda key: fields <= key.items())))
        if self.verdict:
            tests.append(("event_id", lambda rows: _has_verdict(rows, given, self.verdict)))

        def test(rows: pa.Table) -> pa.ChunkedArray:
            return reduce(pc.and_, (passes(rows) for _, passes in tests))

        columns = tuple(dict.fromkeys(column for column, _ in tests))
        return RowFilter(before, named_times(self.begin, self.end), columns, test if tests else None)


@dataclass(frozen=True)
class ListedAlerts:
    """Alerts of a page, newest first, and where the next page begins; None where there are no older ones."""

    rows: list[dict[str, Any]]
    after: RowPlace | None
    looked_at: int


def given_findings(job: Job) -> Findings:
    """Return the verdicts that count."""
    return findings(load_verdicts(verdict_table(job)))


def list_alerts(
    folder: Path,
    wanted: AlertFilter,
    before: RowPlace | None,
    given: Findings,
    most: int = ROWS,
    most_looked_at: int = MOST_LOOKED_AT,
) -> ListedAlerts:
    """Read a page of alerts; examines at most about a million rows, or the given number."""
    tables = [folder / output for output in KINDS[wanted.kind]]
    page = newest_rows(tables, COLUMNS, _ORDER, wanted.wanted(before, given), most, most_looked_at)
    listed = []
    for table, one in page.rows:
        (row,) = rows_of(one, table)
        more = {
            "output": table.name,
            "kind": _BY_OUTPUT[table.name],
            "why": why(row),
            "key_text": key_words(row["key"]),
        }
        listed.append(row | more | {"verdict": given.of(row["alert_id"], row["event_id"])})
    return ListedAlerts(listed, page.after, page.looked_at)


def place_text(place: RowPlace | None) -> str:
    """Encode a position in a list for a URL."""
    return "" if place is None else f"{place.time_us}.{place.row_id}"


def read_place(text: str) -> RowPlace | None:
    """Parse a position in a list; None means from the newest on."""
    time_us, _, row_id = text.partition(".")
    if not text:
        return None
    if not time_us.removeprefix("-").isdecimal() or not time_us.isascii() or len(time_us) > 19:
        message = "before: is not a place in the list; begin with the newest alerts again"
        raise BucketsError(message)
    return RowPlace(int(time_us), row_id)


def why(row: Mapping[str, Any]) -> str:
    """Explain an alert briefly; for a rule with features with their values."""
    if row["value"] is not None:
        return crossed(dict(row))
    return ", ".join(f"{term['name']} {term_value(term)}" for term in row["terms"] or ())


def _has_values(
    keys: pa.ChunkedArray, values: set[str], is_wanted: Callable[[Mapping[str, str]], bool]
) -> pa.ChunkedArray:
    """Return which keys have the values; only keys whose JSON may contain them are parsed."""
    may_have = pc.is_valid(keys)
    for value in values:
        written = json.dumps(value)[1:-1], write_json(value)[1:-1]
        may_have = pc.and_(may_have, pc.or_(*(pc.match_substring(keys, text) for text in written)))
    texts = {text for text in pc.unique(keys.filter(may_have)).to_pylist() if text is not None}
    return _is_one_of(keys, (text for text in texts if is_wanted(_fields(text))))


def _is_one_of(column: pa.ChunkedArray, values: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array(list(values), pa.string()))


def _fields(text: str) -> dict[str, str]:
    try:
        return {name: value_text(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError):
        return {}


def _has_verdict(rows: pa.Table, given: Findings, wanted: str) -> pa.ChunkedArray:
    """Return which alerts have a verdict, on themselves or on their event; `none` selects those without."""
    ids, events = rows["alert_id"], rows["event_id"]
    own = _is_one_of(ids, given.by_alert)
    if wanted == NO_VERDICT:
        return pc.invert(pc.or_(own, _is_one_of(events, given.by_event)))
    alerts = (alert_id for alert_id, verdict in given.by_alert.items() if verdict.verdict == wanted)
    of = (event_id for event_id, verdict in given.by_event.items() if verdict.verdict == wanted)
    return pc.or_(_is_one_of(ids, alerts), pc.and_not(_is_one_of(events, of), own))


_SUMS = ("evaluated", "late", "too_late", "duplicates", "collisions_not_kept", "alerts", "held_alerts")
"""Each event is counted in every group, so sums count pairs of events and groups; `events` counts events."""


def _sums(names: tuple[str, ...]) -> str:
    return ", ".join(f'sum("{name}") as "{name}"' for name in names)


_OF_BATCHES = (
    "select batch_id, max(ruleset_version) as ruleset_version, max(events_in) as events, "
    f"max(latest_event_time) as latest_event_time, {_sums(_SUMS)} from rows"
)


def latest_batches(folder: Path, most: int, before: int | None = None) -> list[dict[str, Any]]:
    """Return the latest batches, optionally those before one, newest first; empty if nothing is recorded."""
    older = "" if before is None else f" where batch_id < {before}"
    return _rows(folder / BATCHES, f"{_OF_BATCHES}{older} group by batch_id order by batch_id desc limit {most}")


def totals(folder: Path) -> dict[str, int]:
    """Return the numbers of batches and of events, by outcome."""
    names = f"count(*) as batches, max(batch_id) as last, {_sums(('events', *_SUMS))}"
    found = _rows(folder / BATCHES, f"select {names} from ({_OF_BATCHES} group by batch_id) as one")
    dead_letters = sum(row["rows"] for row in _rows(folder / DEAD_LETTERS, "select count(*) as rows from rows"))
    return {name: int(value or 0) for row in found for name, value in (row | {"dead_letters": dead_letters}).items()}


def recorded_line(found: Mapping[str, int]) -> str:
    """Summarise the recorded totals of a job without a status."""
    return f"no job runs now; {found['batches']:,} batches are recorded"


def groups_of_batch(folder: Path, batch_id: int) -> list[dict[str, Any]]:
    """Return the account of each group in a batch."""
    return _rows(folder / BATCHES, f'select * from rows where batch_id = {batch_id} order by "group"')


def _rows(table: Path, sql: str) -> list[dict[str, Any]]:
    """Return the result of a query on a table; empty if the table is missing."""
    found: list[dict[str, Any]] = in_ms(query(table, sql, f"results {table}")).to_pylist() if is_table(table) else []
    return found


def precisions(job: Job) -> dict[str, ShareInterval]:
    """Return the share of fraud among the judged alerts of each rule that has some, as in `buckets rules quality`."""
    folder = with_alerts(kept_results(job))
    if folder is None:
        return {}
    given = findings(job_verdicts(job))
    if not given.by_event and not given.by_alert:
        return {}
    tests = f"({is_in('alert_id', given.by_alert.keys())} or {is_in('event_id', given.by_event.keys())})"
    rules = quality(recorded_alerts(folder, Selection(tests=[tests])), given, {}, {})
    return {rule.rule_id: rule.fraud_of_judged for rule in rules if rule.fraud_of_judged is not None}


@dataclass
class AskedJob:
    """A job, running or not; can be used by several threads."""

    conf: Path  # its configuration
    latest: Job  # what that says

    def __post_init__(self) -> None:
        self._schema, self._lock = WatchedFiles(self.latest.schema_path, self.latest.with_schema_of_now), Lock()
        self._schema.start()

    @property
    def job(self) -> Job:
        """The job with the current event schema of its file, if that is valid. Cost: one stat."""
        with self._lock, suppress(BucketsError):
            self.latest = self._schema.read() or self.latest
        return self.latest

    @property
    def results(self) -> Path:
        """The folder of the tables of alerts."""
        folder = kept_results(self.job)
        if folder is None:
            message = "the job's alerts go to topics, and no tables of them are kept; add `audit`, run `buckets audit`"
            raise BucketsError(message)
        if not has_alerts(folder):
            run = "buckets run" if self.job.settings.output.folder is not None else "buckets audit"
            message = f"nothing is recorded in {folder} yet; start the job with `{run} {quoted(str(self.conf))}`"
            raise BucketsError(message)
        return folder

    @property
    def rule_set(self) -> RuleSet | None:
        """The newest version of the job's rules; None if it has none yet."""
        return RuleVersions(self.job.checkpoint).latest_rule_set()

    @property
    def rules_in_force(self) -> list[Rule]:
        """The rules of that version that are in force."""
        rule_set = self.rule_set
        return [] if rule_set is None else [rule for rule in rule_set.rules if rule.is_in_force]

    def rules(self, new_file: str) -> JobRules:
        """Return the rules at their origin, as they are now; in a folder, new ones go into `new_file`."""
        return job_rules(self.job, new_file)
