"""Rules from a Delta table that is checked while the job runs: its rows are the rules in force.

Columns: `rule_id`, `rule` (the rule as JSON), and optionally `author` and `reason`. A row whose rule
has the state DELETE says who deleted it and why; a row that is removed deletes its rule too, and says nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from buckets.clock import epoch_ms
from buckets.delta.query import query
from buckets.delta.whole_table import open_named
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.feeds.rules.whole_rules import RefusedRules, WholeRules
from buckets.feeds.watched import WatchedTable
from buckets.rules.change import RuleChange, needs_put, parse_change
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_faults import check_against_schema

COLUMNS = pa.schema([(name, pa.string()) for name in ("rule_id", "rule", "author", "reason")])


def open_rule_table(path: Path) -> DeltaTable:
    """Open a table of rules.

    Raises:
        BucketsError: there is none, or a column is missing.
    """
    remedy = "`buckets rules apply FILE --conf CONF` makes one"
    table = open_named(path, lambda why: f"rules {path}: is not a Delta table ({why}); {remedy}")
    columns = {field.name for field in table.schema().fields}
    missing = [name for name in ("rule_id", "rule") if name not in columns]
    if missing:
        message = f"rules {path}: the table has no column {missing[0]!r}; columns there: {', '.join(sorted(columns))}"
        raise BucketsError(message)
    return table


def read_rule_rows(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the rows of a table of rules, by `rule_id`.

    Raises:
        BucketsError: a file of the table is missing or broken.
    """
    sql = "select * from rows order by rule_id"
    rows: list[dict[str, Any]] = query(table, sql, f"rules {table.table_uri}", "restore a version").to_pylist()
    return rows


RuleRows = tuple[str, dict[str, RuleChange]]
"""The table with its version, and by rule the change that its row asks for."""


class RuleTable(WholeRules[RuleRows]):
    """A feed of the rules in a table, which is looked at every second."""

    def __init__(self, path: Path, schema: EventSchema) -> None:
        """Look at the table at `path`; rules are checked against `schema`."""
        super().__init__(path, WatchedTable(path, lambda: _load(path, self._schema)), schema)

    def _changes(self, in_force: Sequence[Rule], there: RuleRows) -> list[RuleChange]:
        (origin, rows), old = there, {rule.rule_id: rule for rule in in_force}
        gone = [
            RuleChange(change="delete", rule_id=rule_id, reason="its row is gone", time=epoch_ms(), origin=origin)
            for rule_id in old
            if rule_id not in rows
        ]
        return gone + [change for rule_id, change in rows.items() if _says_something(change, old.get(rule_id))]


def _load(path: Path, schema: EventSchema) -> RuleRows:
    """Read all rows of a table.

    Raises:
        RefusedRules: rows are broken.
        BucketsError: the table cannot be read.
    """
    table = open_rule_table(path)
    origin = f"{path}@{table.version()}"
    changes: dict[str, RuleChange] = {}
    refused = []
    for row in read_rule_rows(table):
        try:
            change = change_of_row(row, origin, schema)
            if row["rule_id"] in changes:
                message = "stands in two rows"
                raise ValueError(message)
        except ValueError as error:
            refused.append(Refusal(origin, f"rule {row['rule_id']!r}: {error}", str(row["rule"])))
        else:
            changes[row["rule_id"]] = change
    if refused:
        raise RefusedRules(refused)
    return origin, changes


def _says_something(change: RuleChange, there: Rule | None) -> bool:
    """Return whether a row differs from what is in force."""
    assert change.rule is not None
    if change.rule.state == "DELETE":
        return there is not None
    return needs_put({} if there is None else {there.rule_id: there}, change.rule)


def change_of_row(row: dict[str, Any], origin: str, schema: EventSchema) -> RuleChange:
    """Return a row as a change that puts its rule, which may have the state DELETE.

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
    return change.model_copy(update={name: row.get(name) or "" for name in ("author", "reason")})
