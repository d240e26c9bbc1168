"""The command `buckets watch`: what a running job is doing, renewed while one looks."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from buckets.cli.alerts import readable
from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.job import load_job
from buckets.ledger import epoch_ms
from buckets.live import Live, read_live

SHORTEST_MS = 100
SHOWN_ALERTS, FEWEST_ALERTS = 10, 3
_OTHER_LINES = 20
"""Lines of the view beside its rules and alerts."""
_BARS = "▁▂▃▄▅▆▇█"
Status = dict[str, Any]


def watch(
    conf: Annotated[Path, typer.Argument(help="The configuration of the job, as in conf/kafka.yaml.")],
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    every: Annotated[str, typer.Option(help="How often to look, as in 500ms or 1s.")] = "1s",
) -> None:
    """Show what a running job is doing: its rate, its delay, its rules and its latest alerts.

    It reads a small file beside the job's checkpoint, and takes nothing from
    the job. Ctrl-C ends the view, not the job. Where the output is no terminal,
    there is a plain line each time, and one for each new alert.

    \b
    Examples:
      buckets watch conf/kafka.yaml
      buckets watch conf/kafka.yaml --once
      buckets watch conf/demo.yaml --every 5s > job.log
    """  # noqa: D301 - click needs the backspace itself
    every_s = _every_s(every)
    watched = Watched(conf, load_job(conf).checkpoint)
    console = Console()
    if once:
        live = read_live(watched.checkpoint)
        if live is None:
            raise BucketsError(watched.never_ran())
        if console.is_terminal:
            console.print(watched.view(live, epoch_ms()))
        else:
            _print_lines(console, watched.lines(live, epoch_ms()))
        return
    try:
        if console.is_terminal:
            _show(console, watched, every_s)
        else:
            _write(console, watched, every_s)
    except KeyboardInterrupt:
        return


def _every_s(text: str) -> float:
    try:
        milliseconds = parse_duration_ms(text)
    except ValueError as error:
        message = f"--every: {error}"
        raise BucketsError(message) from None
    if milliseconds < SHORTEST_MS:
        message = f"--every: {text!r} is shorter than the limit of {SHORTEST_MS}ms; look less often"
        raise BucketsError(message)
    return milliseconds / 1000


def _show(console: Console, watched: "Watched", every_s: float) -> None:
    """A view that is renewed in its place."""
    with Screen(console=console, auto_refresh=False) as screen:
        while True:
            screen.update(watched.view(read_live(watched.checkpoint), epoch_ms(), console.height), refresh=True)
            time.sleep(every_s)


def _write(console: Console, watched: "Watched", every_s: float) -> None:
    """A line each time, and one for each alert or fault that is new; while nothing runs, a line when that changes."""
    seen: set[tuple[str, str, int]] = set()
    remarked: list[str] = []
    said = ""
    while True:
        live, now_ms = read_live(watched.checkpoint), epoch_ms()
        state = watched.state_line(live, now_ms)
        if live is not None and live.state(now_ms) == "running":
            alerts = live.data["alerts"]
            new = [alert for alert in alerts if _identity(alert) not in seen]
            seen = {_identity(alert) for alert in alerts}
            remarks = remarks_on(live.data)
            news = [remark for remark in remarks if remark not in remarked]
            remarked = remarks
            _print_lines(console, [figures_line(live.data), *news, *map(alert_line, reversed(new))])
        elif state != said:
            _print_lines(console, [state])
        said = state
        time.sleep(every_s)


def _identity(alert: dict[str, Any]) -> tuple[str, str, int]:
    return alert["rule_id"], alert["event_id"], alert["written_ms"]


def _print_lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


class Watched:
    """The job that is watched."""

    def __init__(self, conf: Path, checkpoint: Path) -> None:
        """Watch the job of a configuration."""
        self.conf = conf
        self.checkpoint = checkpoint

    def never_ran(self) -> str:
        """That there is no status."""
        return (
            f"job {self.conf}: has never run, there is no status in its checkpoint {self.checkpoint}; "
            f"start it with `buckets run {self.conf}`"
        )

    def state_line(self, live: Live | None, now_ms: int) -> str:
        """Whether the job runs, in one line; says what to do where it does not."""
        if live is None:
            return self.never_ran()
        data, state = live.data, live.state(now_ms)
        process = f"process {data['pid']} on {data['host']}"
        written = f"{_clock(data['written_ms'])} UTC"
        if state == "running":
            return f"job {self.conf}: runs, {process}, since {_clock(data['started_ms'])} UTC"
        if state == "silent":
            return f"job {self.conf}: has said nothing since {written}; {process} hangs, or its machine is gone"
        remedy = f"start it again with `buckets run {self.conf}`"
        if state == "gone":
            return f"job {self.conf}: is not running, {process} died after {written}; {remedy}"
        if data["failure"]:
            return f"job {self.conf}: is not running, it failed at {written}: {data['failure']}"
        return f"job {self.conf}: is not running, it was stopped at {written}; {remedy}"

    def lines(self, live: Live, now_ms: int) -> list[str]:
        """Everything as plain lines."""
        data = live.data
        rules = [f"  {rule['state']} {rule['rule_id']}: {rule['sentence']}" for rule in data["rules"]["rules"]]
        alerts = [f"  {alert_line(alert)}" for alert in data["alerts"][:SHOWN_ALERTS]]
        head = [self.state_line(live, now_ms), *remarks_on(data), figures_line(data)]
        lines = [*head, f"{rules_line(data)}:", *rules]
        return [*lines, "latest alerts:", *alerts] if alerts else [*lines, "no alerts yet"]

    def view(self, live: Live | None, now_ms: int, height: int | None = None) -> RenderableType:
        """Everything for a terminal.

        Args:
            live: the status.
            now_ms: now, in ms since the epoch.
            height: lines of the terminal, where everything is to fit: fewer alerts then, and short sentences.
        """
        style = "bold green" if live is not None and live.state(now_ms) == "running" else "bold red"
        head = Text(self.state_line(live, now_ms), style=style)
        if live is None:
            return head
        data = live.data
        remarks = remarks_on(data)
        head.append("".join(f"\n{remark}" for remark in remarks), style="bold red")
        rules = rules_table(data, wrapped=height is None)
        if height is None:
            return Group(head, figures_table(data), rules, alerts_table(data, SHOWN_ALERTS))
        room = height - _OTHER_LINES - len(remarks) - len(data["rules"]["rules"])
        return Group(head, figures_table(data), alerts_table(data, min(max(room, FEWEST_ALERTS), SHOWN_ALERTS)), rules)


def figures_table(data: Status) -> Table:
    """Rate, times and totals."""
    minute, totals = data["minute"], data["totals"]
    table = Table(title="The last minute", title_justify="left", show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_row("events/s", Text(f"{minute['events_per_s']:,.0f}  {bars(minute['events_by_second'])}"))
    table.add_row("delay", Text(_quantiles(minute["latency_ms"]) or "not known of this source"))
    table.add_row("batches", Text(_batches(minute)))
    table.add_row("behind", Text(_behind(data["lag"])))
    table.add_row(
        "since start",
        Text(f"{totals['events']:,} events, {totals['alerts']:,} alerts, {totals['malformed']:,} malformed"),
    )
    return table


def rules_table(data: Status, wrapped: bool) -> Table:
    """The rules in force; their sentences whole, or as much of them as fits in a line."""
    table = Table(title=f"{rules_line(data)[0].upper()}{rules_line(data)[1:]}", title_justify="left", expand=True)
    for name in ("State", "Rule"):
        table.add_column(name, no_wrap=True)
    table.add_column("Version", justify="right", no_wrap=True)
    table.add_column("Alerts when", overflow="fold" if wrapped else "ellipsis", no_wrap=not wrapped, ratio=1)
    for rule in data["rules"]["rules"]:
        table.add_row(rule["state"], Text(rule["rule_id"]), str(rule["version"]), Text(rule["sentence"]))
    return table


def alerts_table(data: Status, most: int) -> RenderableType:
    """The latest alerts, so many at the most."""
    if not data["alerts"]:
        return Text("no alerts yet")
    table = Table(title="Latest alerts, newest first", title_justify="left", expand=True)
    table.add_column("Seen (UTC)", no_wrap=True)
    table.add_column("Rule", no_wrap=True)
    table.add_column("Key", overflow="ellipsis", no_wrap=True, ratio=1)
    for name in ("Value", "Limit"):
        table.add_column(name, justify="right", no_wrap=True)
    for alert in data["alerts"][:most]:
        limit = f"{alert['operator']} {readable(alert['limit'])}"
        value = Text(readable(alert["value"]))
        table.add_row(_clock(alert["written_ms"]), Text(alert["rule_id"]), Text(_key(alert)), value, limit)
    return table


def remarks_on(data: Status) -> list[str]:
    """What is wrong with a job that goes on, a line each."""
    remarks = []
    if data["rules_fault"] and data["ended_ms"] is None:
        remarks.append(f"the rules are those of before: {data['rules_fault']}")
    if data["fault"] or data["not_counted"]:
        why = data["fault"] or "they came faster than they could be counted"
        remarks.append(f"these figures are not complete, {_batch_count(data['not_counted'])} not in them: {why}")
    return remarks


def _batch_count(batches: int) -> str:
    return "1 batch is" if batches == 1 else f"{batches:,} batches are"


def figures_line(data: Status) -> str:
    """Rate, times and totals as one line."""
    minute = data["minute"]
    delay = _quantiles(minute["latency_ms"])
    parts = [
        f"{_clock(data['written_ms'])} UTC",
        f"{minute['events_per_s']:,.0f} events/s",
        _batches(minute),
        f"delay {delay}" if delay else "delay not known",
        _behind(data["lag"]),
        rules_line(data),
        f"{data['totals']['alerts']:,} alerts",
    ]
    return " | ".join(parts)


def rules_line(data: Status) -> str:
    """The rule set in force in a few words."""
    rules = data["rules"]
    states = ", ".join(f"{count} {state}" for state, count in rules["states"].items()) or "none"
    return f"rules version {rules['version']} ({states})"


def alert_line(alert: dict[str, Any]) -> str:
    """An alert as one line."""
    value, limit = readable(alert["value"]), readable(alert["limit"])
    return f"{_clock(alert['written_ms'])} UTC {alert['rule_id']}: {_key(alert)}: {value} {alert['operator']} {limit}"


def bars(numbers: list[int]) -> str:
    """Numbers as bars, the highest for the greatest; nothing for nothing."""
    most = max(numbers, default=0)
    steps = len(_BARS) - 1
    return "".join(_BARS[-(-number * steps // most)] for number in numbers) if most else ""


def _batches(minute: dict[str, Any]) -> str:
    times = minute["batch_ms"]
    if times is None:
        return "no batch"
    unit = "batch" if minute["batches"] == 1 else "batches"
    return f"{minute['batches']:,} {unit} of {times['p50']:,} ms, at most {times['max']:,} ms"


def _quantiles(times_ms: dict[str, int] | None) -> str:
    if times_ms is None:
        return ""
    return ", ".join(f"{name} {time_ms:,} ms" for name, time_ms in times_ms.items())


def _behind(lag: int | None) -> str:
    if lag is None:
        return "lag not known"
    return f"{lag:,} {'message' if lag == 1 else 'messages'} behind"


def _key(alert: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in alert["key"].items()) or "all events"


def _clock(time_ms: int) -> str:
    """A time of day; with its date where that is not today's."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%H:%M:%S}" if moment.date() == datetime.now(UTC).date() else f"{moment:%Y-%m-%d %H:%M:%S}"
