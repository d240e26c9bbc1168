"""The command `buckets alerts`: the latest alerts as a table."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from buckets.outputs.reader import read_output

COLUMNS = [
    "event_time", "rule_id", "rule", "key", "event_id", "value", "lower", "upper", "exact", "limit", "operator",
    "count", "certain", "warm",
]  # fmt: skip


def alerts(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a run or of an evaluation.")],
    limit: Annotated[int, typer.Option(min=1, help="How many to show, the newest first.")] = 20,
    rule: Annotated[str | None, typer.Option(help="Only those of this rule.")] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="Those of rules on trial instead.")] = False,
) -> None:
    """Show the latest alerts, each with its rule as an English sentence.

    \b
    Examples:
      buckets alerts demo-out/tables
      buckets alerts results --limit 50 --rule payer-to-beneficiary-24h
    """  # noqa: D301 - click needs the backspace itself
    name = "shadow_alerts" if shadow else "alerts"
    rows = read_output(folder, name, COLUMNS)
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
        if row["warm"] is False:
            lines.append("the window reaches back beyond the history that is kept")
        if row["exact"] is False:
            between = f"between {readable(row['lower'])} and {readable(row['upper'])}"
            lines.append(
                f"{between}, the limit is crossed in any case" if row["certain"] else f"not certain: {between}"
            )
        events = "event" if row["count"] == 1 else "events"
        table.add_row(
            f"{moment:%Y-%m-%d}\n{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}",
            Text("\n".join(lines)),
            f"{readable(row['value'])}\nof {row['count']:,} {events}",
        )
    return table


def readable(value: Decimal | str) -> str:
    """A value without the zeros that pad it in its column, with separated thousands."""
    number = Decimal(value)
    whole, _, digits = format(number, "f").partition(".")
    kept = digits.rstrip("0")
    text = f"{int(whole):,}" if int(whole) else whole
    return f"{text}.{kept.ljust(2, '0')}" if kept else text
