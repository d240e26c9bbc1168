"""The command `buckets watch`: what a running job is doing, refreshed until it is interrupted."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from buckets.backfill.fill_chunks import read_fills
from buckets.cli.console import Terminal
from buckets.cli.options import read_option
from buckets.clock import epoch_ms
from buckets.config.job import load_job
from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.exit_codes import DONE, FAILED
from buckets.monitor.live import Live, read_live
from buckets.monitor.words import (
    FALLS_BEHIND,
    Status,
    clock_text,
    never_ran,
    pace_line,
    pace_state,
    quantiles_text,
    remarks_on,
    schema_news,
    state_line,
)
from buckets.numbers.fixed_point import readable
from buckets.outputs.messages import crossed
from buckets.printable import capitalised, counted, key_words
from buckets.rules.revision import names

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
    """Say how many alerts came out, and how many were held back."""
    held = totals["held_alerts"]
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


SHORTEST_MS = 100
SHOWN_ALERTS, FEWEST_ALERTS = 10, 3
_OTHER_LINES = 23  # Lines of the view beside its rules and alerts


def watch(
    conf: Annotated[Path, typer.Argument(help="The configuration of the job, as in conf/kafka.yaml.")],
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    every: Annotated[str, typer.Option(help="How often to look, as in 500ms or 1s.")] = "1s",
) -> int:
    """Show what a running job is doing: its rate, its delay, its rules and its latest alerts.

    It reads a small file beside the job's checkpoint, and takes nothing from
    the job. Ctrl-C ends the view, not the job. Where the output is no terminal,
    there is a plain line each time, and one for each new alert. With --once
    the exit code is 1 where the job has failed, died or fallen silent.

    \b
    Examples:
      buckets watch conf/kafka.yaml
      buckets watch conf/kafka.yaml --once
      buckets watch conf/demo.yaml --every 5s > job.log
    """  # noqa: D301 - click needs the backspace itself
    every_s = _every_s(every)
    watched = WatchedJob(conf, load_job(conf).checkpoint)
    console = Terminal()
    if once:
        live = read_live(watched.checkpoint)
        if live is None:
            raise BucketsError(never_ran(conf, watched.checkpoint))
        now_ms = epoch_ms()
        if console.is_terminal:
            console.print(watched.view(live, now_ms))
        else:
            console.say("\n".join(watched.lines(live, now_ms)))
        return FAILED if live.has_failed(now_ms) else DONE
    try:
        if console.is_terminal:
            _show(console, watched, every_s)
        else:
            _write(console, watched, every_s)
    except KeyboardInterrupt:
        pass
    return 0


def _every_s(text: str) -> float:
    milliseconds = read_option("--every", text, parse_duration_ms)
    if milliseconds < SHORTEST_MS:
        message = f"--every: {text!r} is shorter than the limit of {SHORTEST_MS}ms; look less often"
        raise BucketsError(message)
    return milliseconds / 1000


def _show(console: Terminal, watched: "WatchedJob", every_s: float) -> None:
    """Show a view that is refreshed in place."""
    with Screen(console=console, auto_refresh=False) as screen:
        while True:
            screen.update(watched.view(read_live(watched.checkpoint), epoch_ms(), console.height), refresh=True)
            time.sleep(every_s)


def _write(console: Terminal, watched: "WatchedJob", every_s: float) -> None:
    """Print a line each time, and one for each new alert or fault; while nothing runs, a line when that changes."""
    seen: set[tuple[str, str, int]] = set()
    remarked: list[str] = []
    last_state = last_pace = ""
    while True:
        live, now_ms = read_live(watched.checkpoint), epoch_ms()
        state = state_line(watched.conf, watched.checkpoint, live, now_ms)
        if live is not None and live.state(now_ms) == "running":
            alerts = live.data["alerts"]
            new = [alert for alert in alerts if _identity(alert) not in seen]
            seen = {_identity(alert) for alert in alerts}
            remarks = remarks_on(live.data)
            news = [remark for remark in remarks if remark not in remarked]
            remarked = remarks
            pace = pace_state(live.data)
            news += [pace_line(live.data)] if pace != last_pace and pace_line(live.data) else []
            last_pace = pace
            console.say("\n".join([figures_line(live.data), *news, *map(alert_line, reversed(new))]))
        elif state != last_state:
            console.say(state)
        last_state = state
        time.sleep(every_s)


def _identity(alert: dict[str, Any]) -> tuple[str, str, int]:
    return alert["rule_id"], alert["event_id"], alert["written_ms"]


class WatchedJob:
    """The job that is watched."""

    def __init__(self, conf: Path, checkpoint: Path) -> None:
        """Watch the job of a configuration."""
        self.conf = conf
        self.checkpoint = checkpoint

    def fill_lines(self) -> list[str]:
        """Say how far the history of rules is filled in, a line each."""
        return [f"{names(fill.rule_ids)}: {fill.words}" for fill in read_fills(self.checkpoint)]

    def lines(self, live: Live, now_ms: int) -> list[str]:
        """Return everything as plain lines."""
        data = live.data
        rules = [f"  {rule['state']} {rule['rule_id']}: {rule['sentence']}" for rule in data["rules"]["rules"]]
        alerts = [f"  {alert_line(alert)}" for alert in data["alerts"][:SHOWN_ALERTS]]
        head = [
            state_line(self.conf, self.checkpoint, live, now_ms),
            *remarks_on(data),
            *filter(None, [pace_line(data)]),
            *self.fill_lines(),
            figures_line(data),
        ]
        webhook = webhook_words(data)
        head += [f"webhook: {webhook}"] if webhook else []
        lines = [*head, *process_lines(data), f"{rules_line(data)}:", *rules]
        return [*lines, "latest alerts:", *alerts] if alerts else [*lines, "no alerts yet"]

    def view(self, live: Live | None, now_ms: int, height: int | None = None) -> RenderableType:
        """Return everything for a terminal; if its height is given, as many alerts as fit, and sentences cut short."""
        style = "bold green" if live is not None and live.state(now_ms) == "running" else "bold red"
        head = Text(state_line(self.conf, self.checkpoint, live, now_ms), style=style)
        if live is None:
            return head
        data = live.data
        remarks = remarks_on(data)
        head.append("".join(f"\n{remark}" for remark in remarks), style="bold red")
        pace = pace_line(data)
        head.append(
            f"\n{pace}" if pace else "", style="bold red" if pace_state(data) == FALLS_BEHIND else "bold yellow"
        )
        filling = self.fill_lines()
        head.append("".join(f"\n{line}" for line in filling), style="bold yellow")
        rules = rules_table(data, wrapped=height is None)
        if height is None:
            return Group(head, figures_table(data), rules, alerts_table(data, SHOWN_ALERTS))
        room = height - _OTHER_LINES - len(remarks) - bool(pace) - len(filling) - len(data["rules"]["rules"])
        return Group(head, figures_table(data), alerts_table(data, min(max(room, FEWEST_ALERTS), SHOWN_ALERTS)), rules)
