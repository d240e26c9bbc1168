"""The command `buckets watch`: what a running job is doing, refreshed until it is interrupted."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live as Screen
from rich.text import Text

from buckets.backfill.fill_status import read_fills
from buckets.cli.console import Terminal
from buckets.cli.options import read_option
from buckets.cli.watch_view import (
    alert_line,
    alerts_table,
    figures_line,
    figures_table,
    process_lines,
    rules_line,
    rules_table,
    webhook_words,
)
from buckets.clock import epoch_ms
from buckets.config.job import load_job
from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.exit_codes import DONE, FAILED
from buckets.monitor.live import Live, read_live
from buckets.monitor.words import FALLS_BEHIND, never_ran, pace_line, pace_state, remarks_on, state_line
from buckets.rules.revision import names

SHORTEST_MS = 100
SHOWN_ALERTS, FEWEST_ALERTS = 10, 3
_OTHER_LINES = 23
"""Lines of the view beside its rules and alerts."""


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
