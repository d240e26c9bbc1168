"""The status of a job as tables for a terminal, and as plain lines."""

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from buckets.monitor.words import Status, clock_text, pace_state, quantiles_text, schema_news
from buckets.numbers.figures import readable
from buckets.outputs.alert_words import crossed
from buckets.printable import capitalised, counted, key_words

_BARS = "▁▂▃▄▅▆▇█"


def figures_table(data: Status) -> Table:
    """Return rate, times and totals as a table."""
    minute, totals = data["minute"], data["totals"]
    table = Table(title="The last minute", title_justify="left", show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_row("events/s", f"{minute['events_per_s']:,.0f}  {bars(minute['events_by_second'])}")
    table.add_row("delay", quantiles_text(minute["latency_ms"]) or "not known of this source")
    table.add_row("batches", _batches(minute))
    table.add_row("behind", _behind(data["lag"]))
    for kind, held in data.get("processes", {}).items():
        table.add_row(kind, _held(held))
    since_start = f"{totals['events']:,} events, {_alerts(totals)}, {totals['malformed']:,} malformed"
    since_start += f", {totals['skipped']:,} skipped" if totals.get("skipped") else ""
    since_start += f", {counted(totals['rounded'], 'value')} rounded" if totals.get("rounded") else ""
    table.add_row("since start", since_start)
    without_key = [f"{total['no_key']:,} by {name}" for name, total in data["groups"].items() if total["no_key"]]
    if webhook := webhook_words(data):
        table.add_row("webhook", webhook)
    unjudged = [f"{total['unjudged']:,} by {name}" for name, total in data["groups"].items() if total.get("unjudged")]
    if unjudged:
        table.add_row("not judged", ", ".join(unjudged))
    if appeared := data["query"].get("topics_appeared") if "query" in data else None:
        table.add_row("topics", f"{counted(appeared, 'topic')} appeared since the start")
    if without_key:
        table.add_row("without a key", ", ".join(without_key))
    scattered = [
        f"{counts['several']:,} of {counts['sampled']:,} sampled by {name}"
        for name, counts in data.get("partitions", {}).items()
        if counts["several"]
    ]
    if scattered:
        table.add_row("keys in several partitions", ", ".join(scattered))
    return table


def rules_table(data: Status, wrapped: bool) -> Table:
    """Return the rules in force as a table, each sentence in full or cut to one line."""
    table = Table(title=capitalised(rules_line(data)), title_justify="left", expand=True)
    for name in ("State", "Rule"):
        table.add_column(name, no_wrap=True)
    table.add_column("Version", justify="right", no_wrap=True)
    table.add_column("Alerts when", overflow="fold" if wrapped else "ellipsis", no_wrap=not wrapped, ratio=1)
    for rule in data["rules"]["rules"]:
        table.add_row(rule["state"], rule["rule_id"], str(rule["version"]), rule["sentence"])
    return table


def alerts_table(data: Status, most: int) -> RenderableType:
    """Return the latest alerts as a table, at most `most` of them."""
    if not data["alerts"]:
        return "no alerts yet"
    table = Table(title="Latest alerts, newest first", title_justify="left", expand=True)
    table.add_column("Seen (UTC)", no_wrap=True)
    table.add_column("Rule", no_wrap=True)
    table.add_column("Key", overflow="ellipsis", no_wrap=True, ratio=1)
    for name in ("Value", "Limit"):
        table.add_column(name, justify="right", no_wrap=True)
    for alert in data["alerts"][:most]:
        limit, value = "", crossed(alert)
        if alert["value"] is not None:
            limit, value = f"{alert['operator']} {readable(alert['limit'])}", readable(alert["value"])
        table.add_row(clock_text(alert["written_ms"]), alert["rule_id"], key_words(alert["key"]), value, limit)
    return table


def process_lines(data: Status) -> list[str]:
    """Return what the processes of a job hold, a line a kind."""
    return [f"{kind}: {_held(held)}" for kind, held in data.get("processes", {}).items()]


def _held(held: dict[str, int]) -> str:
    """Return what processes of one kind hold, in one line."""
    several = f"{held['processes']} processes, " if held["processes"] > 1 else ""
    return (
        f"{several}{held['resident_bytes'] / (1 << 20):,.0f} MiB, {held['threads']:,} threads, "
        f"{held['descriptors']:,} descriptors"
    )


def figures_line(data: Status) -> str:
    """Return rate, times and totals as one line."""
    minute = data["minute"]
    delay = quantiles_text(minute["latency_ms"])
    parts = [
        f"{clock_text(data['written_ms'])} UTC",
        f"{minute['events_per_s']:,.0f} events/s",
        _batches(minute),
        f"delay {delay}" if delay else "delay not known",
        _behind(data["lag"]),
        *(word for word in [pace_state(data)] if word != "unknown"),
        rules_line(data),
        _alerts(data["totals"]),
    ]
    return " | ".join(parts)


def webhook_words(data: Status) -> str:
    """Say what became of alerts for the webhook; nothing where there is none."""
    counts = data["query"].get("webhook") if "query" in data else None
    if not counts:
        return ""
    return f"{counts['delivered']:,} delivered, {counts['waiting']:,} waiting, {counts['undelivered']:,} given up"


def _alerts(totals: dict[str, int]) -> str:
    """Say how many alerts came out, and how many were held back, which earlier releases do not count."""
    held = totals.get("held_alerts", 0)
    return f"{totals['alerts']:,} alerts" + (f" ({held:,} held back)" if held else "")


def rules_line(data: Status) -> str:
    """Return the rule set in force, and the event schema, in one line."""
    rules, schema = data["rules"], schema_news(data)
    states = ", ".join(f"{count} {state}" for state, count in rules["states"].items()) or "none"
    of_events = f", event schema version {schema['version']}" if schema else ""
    return f"rules version {rules['version']} ({states}){of_events}"


def alert_line(alert: dict[str, Any]) -> str:
    """Return an alert as one line."""
    return f"{clock_text(alert['written_ms'])} UTC {alert['rule_id']}: {key_words(alert['key'])}: {crossed(alert)}"


def bars(numbers: list[int]) -> str:
    """Return numbers as bars, the greatest as the highest; empty if all are zero."""
    most = max(numbers, default=0)
    steps = len(_BARS) - 1
    return "".join(_BARS[-(-number * steps // most)] for number in numbers) if most else ""


def _batches(minute: dict[str, Any]) -> str:
    times = minute["batch_ms"]
    if times is None:
        return "no batch"
    unit = "batch" if minute["batches"] == 1 else "batches"
    return f"{minute['batches']:,} {unit} of {times['p50']:,} ms, at most {times['max']:,} ms"


def _behind(lag: int | None) -> str:
    return "lag not known" if lag is None else f"{counted(lag, 'message')} behind"
