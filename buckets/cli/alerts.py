"""The command `buckets alerts`: the latest alerts as a table."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from buckets.errors import BucketsError
from buckets.numbers.fixed_point import readable
from buckets.outputs.reader import read_output

OPTIONAL = ("terms", "condition", "severity", "tags", "held_back")
"""Columns that outputs of earlier releases lack."""

COLUMNS = [
    "event_time", "rule_id", "rule", "key", "event_id", "value", "lower", "upper", "exact", "limit", "operator",
    "count", "certain", "warm", "terms", "condition", "severity", "tags", "held_back",
]  # fmt: skip


def alerts(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a run or of an evaluation.")],
    limit: Annotated[int, typer.Option(min=1, help="How many to show, the newest first.")] = 20,
    rule: Annotated[str | None, typer.Option(help="Only those of this rule.")] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="Those of rules on trial instead.")] = False,
    held: Annotated[bool, typer.Option("--held", help="Those that policies have held back instead.")] = False,
) -> None:
    """Show the latest alerts, each with its rule as an English sentence.

    \b
    Examples:
      buckets alerts demo-out/tables
      buckets alerts results --limit 50 --rule payer-to-beneficiary-24h
      buckets alerts results --held
    """  # noqa: D301 - click needs the backspace itself
    if shadow and held:
        message = "--shadow and --held are two outputs; ask for one of them"
        raise BucketsError(message)
    name = "held_alerts" if held else "shadow_alerts" if shadow else "alerts"
    rows = read_output(folder, name, [*COLUMNS, "held_by"] if held else COLUMNS, OPTIONAL)
    chosen = [row for row in rows if rule is None or row["rule_id"] == rule]
    chosen.sort(key=lambda row: (-row["event_time"], row["rule_id"], row["event_id"]))
    console = Console()
    if not chosen:
        console.print(f"no alerts in {folder}" + (f" of rule {rule}" if rule else ""), highlight=False)
        return
    console.print(alert_table(chosen[:limit], f"{min(limit, len(chosen)):,} of {len(chosen):,} alerts, newest first"))


def alert_table(rows: list[dict[str, Any]], title: str) -> Table:
    """Alerts as a table.

    Args:
        rows: alerts with the fields of `COLUMNS`.
        title: what stands above it.
    """
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("Time (UTC)", min_width=12)
    table.add_column("Alert", overflow="fold", ratio=1)
    table.add_column("Value", justify="right", no_wrap=True)
    for row in rows:
        moment = datetime.fromtimestamp(row["event_time"] / 1000, UTC)
        key = ", ".join(f"{field} {value}" for field, value in row["key"].items()) or "all events"
        lines = [row["rule"], key, f"event {row['event_id']}, rule {row['rule_id']}"]
        lines += _of_policy(row)
        if row["warm"] is False:
            lines.append("the window reaches back beyond the history that is kept")
        if row["value"] is None:
            lines[0] = row["condition"]
            lines += [] if row["certain"] else ["not certain: some of these numbers have bounds"]
        elif row["exact"] is False:
            between = f"between {readable(row['lower'])} and {readable(row['upper'])}"
            lines.append(
                f"{between}, the limit is crossed in any case" if row["certain"] else f"not certain: {between}"
            )
        table.add_row(
            f"{moment:%Y-%m-%d}\n{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}",
            Text("\n".join(lines)),
            Text(_values(row)),
        )
    return table


def _of_policy(row: dict[str, Any]) -> list[str]:
    """What the policy of the rule adds, on a line if there is anything."""
    said = [*([row["severity"]] if row.get("severity") else []), *(row.get("tags") or [])]
    said += [f"held back by {row['held_by']}"] if row.get("held_by") else []
    said += [f"{row['held_back']:,} held back before it"] if row.get("held_back") else []
    return [", ".join(said)] if said else []


def _values(row: dict[str, Any]) -> str:
    """The value of an alert, or those of its features."""
    if row["value"] is not None:
        return f"{readable(row['value'])}\nof {row['count']:,} {'event' if row['count'] == 1 else 'events'}"
    terms = json.loads(row["terms"]) if isinstance(row["terms"], str) else row["terms"]
    return "\n".join(f"{term['name']} {term_value(term)}{_bounds(term)}" for term in terms)


def _bounds(term: dict[str, Any]) -> str:
    """Between what the value of a feature lies, on a line of its own; nothing where it is exact."""
    if term["exact"]:
        return ""
    lower, upper = (term_value({"value": term[side]}) for side in ("lower", "upper"))
    return f"\n{lower} to {upper}{', or none' if term.get('may_be_null') else ''}"


def term_value(term: dict[str, Any]) -> str:
    """The value of a feature, as people read it."""
    value = term["value"]
    if value is None:
        return "no value"
    return ("yes" if value else "no") if isinstance(value, bool) else readable(value)


def crossed(alert: dict[str, Any]) -> str:
    """What made an alert, in short: its value and limit, or its condition with the numbers in it."""
    if alert["value"] is None:
        return str(alert["condition"])
    return f"{readable(alert['value'])} {alert['operator']} {readable(alert['limit'])}"
