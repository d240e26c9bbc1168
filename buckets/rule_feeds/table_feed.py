"""Rules from a Delta table that is checked while the job runs: its rows are the rules in force.

Columns: `rule_id`, `rule` (the rule as JSON), and optionally `author` and `reason`. A row whose rule
has the state DELETE says who deleted it and why; a row that is removed deletes its rule too, and says nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from buckets.checkpoint.topic_position import TopicPosition
from buckets.clock import epoch_ms
from buckets.delta.commit_watch import CommitWatch
from buckets.delta.query import query
from buckets.errors import BucketsError, first_line
from buckets.events.schema import EventSchema
from buckets.rule_feeds.feed import Read
from buckets.rules.change import RuleChange, needs_put, parse_change
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule, check_against_schema
from buckets.rules.rule_set import RuleSet

COLUMNS = pa.schema([(name, pa.string()) for name in ("rule_id", "rule", "author", "reason")])


def open_rule_table(path: Path) -> DeltaTable:
    """Open a table of rules.

    Raises:
        BucketsError: there is none, or a column is missing.
    """
    try:
        table = DeltaTable(path)
    except (TableNotFoundError, DeltaError, OSError) as error:
        remedy = "`buckets rules apply FILE --conf CONF` makes one"
        message = f"rules {path}: is not a Delta table ({first_line(error)}); {remedy}"
        raise BucketsError(message) from None
    there = {field.name for field in table.schema().fields}
    missing = [name for name in ("rule_id", "rule") if name not in there]
    if missing:
        message = f"rules {path}: the table has no column {missing[0]!r}; columns there: {', '.join(sorted(there))}"
        raise BucketsError(message)
    return table


def read_rule_rows(table: DeltaTable) -> list[dict[str, Any]]:
    """The rows of a table of rules, by `rule_id`.

    Raises:
        BucketsError: a file of the table is missing or broken.
    """
    sql = "select * from rows order by rule_id"
    rows: list[dict[str, Any]] = query(table, sql, f"rules {table.table_uri}", "restore a version").to_pylist()
    return rows


class RuleTable:
    """A feed of the rules in a table."""

    fault = None

    def __init__(self, path: Path, schema: EventSchema) -> None:
        """Look at the table at `path`; rules are checked against `schema`."""
        self.origin = str(path)
        self._path = path
        self._schema = schema
        self._first: DeltaTable | None = None
        self._commits = CommitWatch(path)

    def start(self, position: TopicPosition | None) -> None:
        """Open the table that the first batch takes, and check that its rules are valid."""
        self._commits.take()
        self._first = open_rule_table(self._path)
        found = self._changes([], self._first)
        if found.refused:
            message = f"rules {found.refused[0].origin}: {found.refused[0].reason}"
            raise BucketsError(message)

    def read(self, in_force: Sequence[Rule]) -> Read:
        """What differs from the rules in force, once after each commit; looks every second."""
        if self._first is not None:
            first, self._first = self._first, None
            return self._changes(in_force, first)
        if not self._commits.has_new():
            return Read()
        try:
            return self._changes(in_force, open_rule_table(self._path))
        except BucketsError as error:
            return Read(refused=[Refusal(self.origin, error.message, "")])

    def _changes(self, in_force: Sequence[Rule], table: DeltaTable) -> Read:
        """How the rows differ from the rules in force; a table with a broken row changes nothing."""
        origin = f"{self._path}@{table.version()}"
        rows: dict[str, RuleChange] = {}
        refused = []
        for row in read_rule_rows(table):
            try:
                change = change_of_row(row, origin, self._schema)
                if row["rule_id"] in rows:
                    message = "stands in two rows"
                    raise ValueError(message)
            except ValueError as error:
                refused.append(Refusal(origin, f"rule {row['rule_id']!r}: {error}", str(row["rule"])))
            else:
                rows[row["rule_id"]] = change
        if refused:
            return Read(refused=refused)
        old = {rule.rule_id: rule for rule in in_force}
        gone = [
            RuleChange(change="delete", rule_id=rule_id, reason="its row is gone", time=epoch_ms(), origin=origin)
            for rule_id in old
            if rule_id not in rows
        ]
        return Read(gone + [change for rule_id, change in rows.items() if _says_something(change, old.get(rule_id))])

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """The book says it; a table has nowhere to say it."""

    def export(self, rule_set: RuleSet) -> None:
        """The table is the export."""

    def stop(self) -> None:
        """Nothing runs."""


def _says_something(change: RuleChange, there: Rule | None) -> bool:
    """Whether a row differs from what is in force."""
    assert change.rule is not None
    if change.rule.state == "DELETE":
        return there is not None
    return needs_put({} if there is None else {there.rule_id: there}, change.rule)


def change_of_row(row: dict[str, Any], origin: str, schema: EventSchema) -> RuleChange:
    """A row as a change that puts its rule, which may have the state DELETE.

    Raises:
        ValueError: it holds no valid rule.
    """
    if not row["rule_id"]:
        message = "column `rule_id` must not be empty"
        raise ValueError(message)
    if not isinstance(row["rule"], str):
        message = "column `rule` must hold the rule as JSON"
        raise ValueError(message)
    change = parse_change(row["rule_id"], row["rule"], origin, epoch_ms())
    if change is None or change.rule is None:
        message = "column `rule` must hold a rule, not another change"
        raise ValueError(message)
    fault = None if change.rule.state == "DELETE" else check_against_schema(change.rule, schema)
    if fault is not None:
        message = f"{'.'.join(fault[0])}: {fault[1]}"
        raise ValueError(message)
    said = {name: row.get(name) or "" for name in ("author", "reason")}
    return change.model_copy(update=said)
