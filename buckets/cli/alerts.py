"""The command `buckets alerts`: the latest alerts as a table."""

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.cli.console import Terminal, TextTable, echo_json, newest_of
from buckets.cli.options import AsJson, From, To, key_of, range_ms
from buckets.errors import BucketsError
from buckets.moment import exact_time_text, iso_text
from buckets.numbers.fixed_point import readable
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS
from buckets.outputs.messages import term_value
from buckets.outputs.recorded_outputs import TIMES, Selection, read_rows, short_length
from buckets.printable import counted, key_words, one_line, value_text
from buckets.stores.location import location

_USUALLY_SHOWN = 20

OPTIONAL = ("terms", "condition", "severity", "tags", "held_back")  # Columns that an output may lack

COLUMNS = [
    "alert_id", "event_time", "rule_id", "rule", "key", "event_id", "value", "lower", "upper", "exact", "limit",
    "operator", "count", "certain", "warm", "terms", "condition", "severity", "tags", "held_back",
]  # fmt: skip


def alerts(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a run or of an evaluation.")],
    limit: Annotated[int | None, typer.Option(min=1, help="How many of the newest to show; 20 by default.")] = None,
    rule: Annotated[str | None, typer.Option(help="Only alerts of this rule.")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="FIELD=VALUE", help="Only alerts of keys with these values.")
    ] = None,
    begin: From = None,
    end: To = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="Show alerts of rules on trial instead.")] = False,
    held: Annotated[bool, typer.Option("--held", help="Show alerts that policies held back instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest alerts, each with its id and its rule as an English sentence.

    Ids are cut to the length that is unique in the folder; `buckets explain`
    and `buckets verdict` take them so. --key takes several fields,
    FIELD=VALUE,FIELD=VALUE. --json prints all alerts with whole ids, unless
    --limit is given.

    Examples:
      buckets alerts demo-out/tables
      buckets alerts results --limit 50 --rule payer-to-beneficiary-24h
      buckets alerts results --key payerId=p017272 --from 2026-01-03
      buckets alerts results --held --json
    """
    if shadow and held:
        message = "--shadow and --held are two outputs; ask for one of them"
        raise BucketsError(message)
    selection = Selection({} if rule is None else {"rule_id": [rule]}, range_ms(begin, end))
    wanted = {} if key is None else {field: value_text(value) for field, value in key_of(key, {}).items()}
    output = HELD_ALERTS if held else SHADOW_ALERTS if shadow else ALERTS
    columns = None if as_json else [*COLUMNS, "held_by"] if held else COLUMNS
    chosen = [
        row
        for row in read_rows(folder, output, columns, OPTIONAL, selection)
        if all(field in row["key"] and value_text(row["key"][field]) == value for field, value in wanted.items())
    ]
    chosen.sort(key=lambda row: (-row["event_time"], row["rule_id"], row["event_id"]))
    if as_json:
        echo_json(list(map(_as_json, chosen[:limit])))
    elif chosen:
        most = limit or _USUALLY_SHOWN
        Terminal().print(alert_table(chosen[:most], newest_of(chosen, most, "alerts"), short_length(folder)))
    else:
        Terminal().print(f"no alerts in {location(str(folder))}" + (f" of rule {rule}" if rule else ""))


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return an alert as data: times in ISO 8601, decimals without the zeros that pad them, what is JSON as objects."""
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if name in TIMES and isinstance(value, int):
            shown[name] = iso_text(value)
        elif isinstance(value, Decimal):
            shown[name] = readable(value).replace(",", "")
        else:
            shown[name] = value
    return shown


def alert_table(rows: list[dict[str, Any]], title: str, id_length: int) -> TextTable:
    """Return alerts as a table."""
    table = TextTable(title, ("=Time (UTC)", "Alert", ">Value"), show_lines=True)
    for row in rows:
        lines = [row["rule"], key_words(row["key"]), f"event {row['event_id']}, rule {row['rule_id']}"]
        lines.append(f"alert {row['alert_id'][:id_length]}")
        policy = [*([row["severity"]] if row.get("severity") else []), *(row.get("tags") or [])]
        policy += [f"held back by {row['held_by']}"] if row.get("held_by") else []
        policy += [f"{row['held_back']:,} held back before it"] if row.get("held_back") else []
        lines += [", ".join(policy)] if policy else []
        if row["warm"] is False:
            lines.append("the window reaches back beyond the history that is kept")
        if row["value"] is None:
            lines[0] = row["condition"]
            lines += [] if row["certain"] else ["not certain: some of these numbers have bounds"]
        elif row["exact"] is False:
            between = f"between {readable(row['lower'])} and {readable(row['upper'])}"
            certain = f"{between}, the limit is crossed in any case"
            lines.append(certain if row["certain"] else f"not certain: {between}")
        time = exact_time_text(row["event_time"]).replace(" ", "\n")
        table.add_row(time, "\n".join(map(one_line, lines)), _values(row))
    return table


def _values(row: dict[str, Any]) -> str:
    """Return the value of an alert, or those of its features."""
    if row["value"] is not None:
        return f"{readable(row['value'])}\nof {counted(row['count'], 'event')}"
    terms = row["terms"]
    return "\n".join(f"{term['name']} {term_value(term)}{_bounds(term)}" for term in terms)


def _bounds(term: dict[str, Any]) -> str:
    """Say between which bounds the value of a feature lies, on a line of its own; nothing where it is exact."""
    if term["exact"]:
        return ""
    if term.get("type") == "text":
        return "\nor another text, or none"
    lower, upper = (term_value({"value": term[side]}) for side in ("lower", "upper"))
    return f"\n{lower} to {upper}{', or none' if term.get('may_be_null') else ''}"
