"""Rules and their changes as tables and text."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from buckets.cli.rule_origin import KeptRule
from buckets.rule_files.differences import fields_that_differ
from buckets.rules.rule import Rule


def rules_table(title: str, kept: Sequence[KeptRule]) -> Table:
    """Rules with what is known of their last change."""
    said = any(each.author or each.reason or each.time_ms is not None for each in kept)
    names = ("Rule", "Version", "State", "Alerts when", *(("Author", "Reason", "Changed (UTC)") if said else ()))
    table = _table(title, names)
    for each in kept:
        rule = each.rule
        cells = [rule.rule_id, str(rule.version), rule.state, rule.sentence()]
        more = [each.author, each.reason, moment(each.time_ms)] if said else []
        table.add_row(*map(Text, [*cells, *more]))
    return table


def changes_table(title: str, rows: Sequence[tuple[str, str, str]]) -> Table:
    """What a command does to rules: the rule, what is done, and what differs."""
    table = _table(title, ("Rule", "Change", "What"))
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def history_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Changes that have been made."""
    table = _table(title, ("In force (UTC)", "Rule", "What", "By, why"))
    for row in rows:
        before, after = (_rule(row[side]) for side in ("rule_before", "rule_after"))
        in_force_us = row["in_force_at"]
        since = moment(None if in_force_us is None else in_force_us // 1000)
        first = "" if row["first_batch"] is None else f", from batch {row['first_batch']}"
        version = "" if row["rule_version"] is None else f"version {row['rule_version']}"
        cells = [
            f"{since}\nrules {row['ruleset_version']}{first}",
            f"{row['rule_id'] or 'all'}\n{version}",
            f"{row['change']}: {difference(before, after)}",
            "\n".join(part for part in (row["author"], row["reason"]) if part),
        ]
        table.add_row(*map(Text, cells))
    return table


def difference(before: Rule | None, after: Rule | None) -> str:
    """How two versions of a rule differ; the whole rule if it is new or gone."""
    if before is None or after is None:
        there = after or before
        return "" if there is None else there.sentence()
    return "; ".join(map(str, fields_that_differ(before, after)))


def moment(time_ms: int | None) -> str:
    """A time as people read it, to the second."""
    return "" if time_ms is None else f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _rule(text: str | None) -> Rule | None:
    return None if text is None else Rule.model_validate_json(text)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
