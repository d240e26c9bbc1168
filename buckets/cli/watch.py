"""The command `buckets watch`: what a running job is doing, refreshed until it is interrupted."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
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
_SHORTEST_MS = 100
_SHOWN_ALERTS, _FEWEST_ALERTS = 10, 3
_OTHER_LINES = 23  # Lines of the view beside its rules and alerts


def watch(
    conf: Annotated[Path, typer.Argument(help="The configuration of the job, as in conf/kafka.yaml.")],
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    every: Annotated[str, typer.Option(help="How often to refresh, as in 500ms or 1s.")] = "1s",
) -> int:
    """Show what a running job is doing: its rate, its delay, its rules and its latest alerts.

    It reads a small file beside the job's checkpoint, and takes nothing from
    the job. Ctrl-C ends the view, not the job. Where the output is not a terminal,
    there is a plain line each time, and one for each new alert. With --once
    the exit code is 1 where the job has failed, died or fallen silent.

    Examples:
      buckets watch conf/kafka.yaml
      buckets watch conf/kafka.yaml --once
      buckets watch conf/demo.yaml --every 5s > job.log
    """
    every_ms = read_option("--every", every, parse_duration_ms)
    if every_ms < _SHORTEST_MS:
        message = f"--every: {every!r} is shorter than the limit of {_SHORTEST_MS}ms; look less often"
        raise BucketsError(message)
    watched = WatchedJob(conf, load_job(conf).checkpoint)
    console = Terminal()
    if once:
        live, now_ms = read_live(watched.checkpoint), epoch_ms()
        if live is None:
            raise BucketsError(never_ran(conf, watched.checkpoint))
        if console.is_terminal:
            console.print(watched.view(live, now_ms))
        else:
            console.say("\n".join(watched.lines(live, now_ms)))
        return FAILED if live.has_failed(now_ms) else DONE
    try:
        with Screen(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as screen:
            while True:
                if screen is None:
                    for line in watched.news():
                        console.say(line)
                else:
                    live = read_live(watched.checkpoint)
                    screen.update(watched.view(live, epoch_ms(), console.height), refresh=True)
                time.sleep(every_ms / 1000)
    except KeyboardInterrupt:
        return DONE


class WatchedJob:
    """The job that is watched; remembers what has been told of it."""

    def __init__(self, conf: Path, checkpoint: Path) -> None:
        self.conf, self.checkpoint = conf, checkpoint
        self._alerts: set[tuple[str, str, int]] = set()
        self._remarks: list[str] = []
        self._state = self._pace = ""

    def news(self) -> Iterator[str]:
        """Yield lines: the figures each time, alerts and faults when they are new, and the state when it changes."""
        live, now_ms = read_live(self.checkpoint), epoch_ms()
        state = state_line(self.conf, self.checkpoint, live, now_ms)
        if live is not None and live.state(now_ms) == "running":
            yield figures_line(live.data)
            remarks, pace, alerts = remarks_on(live.data), pace_state(live.data), live.data["alerts"]
            yield from (remark for remark in remarks if remark not in self._remarks)
            if pace != self._pace and pace_line(live.data):
                yield pace_line(live.data)
            yield from (_alert_line(alert) for alert in reversed(alerts) if _identity(alert) not in self._alerts)
            self._remarks, self._pace, self._alerts = remarks, pace, set(map(_identity, alerts))
        elif state != self._state:
            yield state
        self._state = state

    def _fills(self) -> list[str]:
        return [f"{names(fill.rule_ids)}: {fill.words}" for fill in read_fills(self.checkpoint)]

    def lines(self, live: Live, now_ms: int) -> list[str]:
        """Return everything as plain lines."""
        data, pace = live.data, pace_line(live.data)
        alerts = [f"  {_alert_line(alert)}" for alert in data["alerts"][:_SHOWN_ALERTS]]
        return [
            state_line(self.conf, self.checkpoint, live, now_ms),
            *remarks_on(data),
            *([pace] if pace else []),
            *self._fills(),
            figures_line(data),
            *(f"{name}: {text}" for name, text in _details(data)),
            f"{_rules_line(data)}:",
            *(f"  {rule['state']} {rule['rule_id']}: {rule['sentence']}" for rule in data["rules"]["rules"]),
            *(["latest alerts:", *alerts] if alerts else ["no alerts yet"]),
        ]

    def view(self, live: Live | None, now_ms: int, height: int | None = None) -> RenderableType:
        """Return everything for a terminal; if its height is given, as many alerts as fit, and sentences cut short."""
        style = "bold green" if live is not None and live.state(now_ms) == "running" else "bold red"
        head = Text(state_line(self.conf, self.checkpoint, live, now_ms), style=style)
        if live is None:
            return head
        data, pace = live.data, pace_line(live.data)
        remarks = [(remark, "bold red") for remark in remarks_on(data)]
        remarks += [(pace, "bold red" if pace_state(data) == FALLS_BEHIND else "bold yellow")] if pace else []
        remarks += [(line, "bold yellow") for line in self._fills()]
        for line, line_style in remarks:
            head.append(f"\n{line}", style=line_style)
        rules = _rules_table(data, is_wrapped=height is None)
        if height is None:
            return Group(head, _figures_table(data), rules, _alerts_table(data, _SHOWN_ALERTS))
        room = height - _OTHER_LINES - len(remarks) - len(data["rules"]["rules"])
        alerts = _alerts_table(data, min(max(room, _FEWEST_ALERTS), _SHOWN_ALERTS))
        return Group(head, _figures_table(data), alerts, rules)


def _figures_table(data: Status) -> Table:
    minute = data["minute"]
    table = Table(title="The last minute", title_justify="left", show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_row("events/s", f"{minute['events_per_s']:,.0f}  {bars(minute['events_by_second'])}")
    table.add_row("delay", quantiles_text(minute["latency_ms"]) or "not known for this source")
    table.add_row("batches", _batches(minute))
    table.add_row("behind", _behind(data["lag"]))
    for row in _details(data):
        table.add_row(*row)
    return table


def _rules_table(data: Status, is_wrapped: bool) -> Table:
    table = Table(title=capitalised(_rules_line(data)), title_justify="left", expand=True)
    for name in ("State", "Rule"):
        table.add_column(name, no_wrap=True)
    table.add_column("Version", justify="right", no_wrap=True)
    table.add_column("Alerts when", overflow="fold" if is_wrapped else "ellipsis", no_wrap=not is_wrapped, ratio=1)
    for rule in data["rules"]["rules"]:
        table.add_row(rule["state"], rule["rule_id"], str(rule["version"]), rule["sentence"])
    return table


def _alerts_table(data: Status, most: int) -> RenderableType:
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


def _details(data: Status) -> Iterator[tuple[str, str]]:
    totals, query = data["totals"], data.get("query", {})
    for kind, held in data.get("processes", {}).items():
        several = f"{held['processes']} processes, " if held["processes"] > 1 else ""
        memory = f"{held['resident_bytes'] / (1 << 20):,.0f} MiB"
        yield kind, f"{several}{memory}, {held['threads']:,} threads, {held['descriptors']:,} descriptors"
    since_start = [f"{totals['events']:,} events", _alerts(totals), f"{totals['malformed']:,} malformed"]
    since_start += [f"{totals['skipped']:,} skipped"] if totals.get("skipped") else []
    since_start += [f"{counted(totals['rounded'], 'value')} rounded"] if totals.get("rounded") else []
    yield "since start", ", ".join(since_start)
    if counts := query.get("webhook"):
        waiting, given_up = f"{counts['waiting']:,} waiting", f"{counts['undelivered']:,} given up"
        yield "webhook", f"{counts['delivered']:,} delivered, {waiting}, {given_up}"
    if appeared := query.get("topics_appeared"):
        yield "topics", f"{counted(appeared, 'topic')} appeared since the start"
    for title, field in (("not judged", "unjudged"), ("without a key", "no_key")):
        if of := [f"{total[field]:,} by {name}" for name, total in data["groups"].items() if total.get(field)]:
            yield title, ", ".join(of)
    partitions = data.get("partitions", {})
    if scattered := [
        f"{counts['several']:,} of {counts['sampled']:,} sampled by {name}"
        for name, counts in partitions.items()
        if counts["several"]
    ]:
        yield "keys in several partitions", ", ".join(scattered)


def figures_line(data: Status) -> str:
    """Return rate, times and totals as one line."""
    minute, pace = data["minute"], pace_state(data)
    parts = [
        f"{clock_text(data['written_ms'])} UTC",
        f"{minute['events_per_s']:,.0f} events/s",
        _batches(minute),
        f"delay {quantiles_text(minute['latency_ms']) or 'not known'}",
        _behind(data["lag"]),
        *([] if pace == "unknown" else [pace]),
        _rules_line(data),
        _alerts(data["totals"]),
    ]
    return " | ".join(parts)


def _alerts(totals: dict[str, int]) -> str:
    held = totals["held_alerts"]
    return f"{totals['alerts']:,} alerts" + (f" ({held:,} held back)" if held else "")


def _rules_line(data: Status) -> str:
    rules, schema = data["rules"], schema_news(data)
    states = ", ".join(f"{count} {state}" for state, count in rules["states"].items()) or "none"
    of_events = f", event schema version {schema['version']}" if schema else ""
    return f"rules version {rules['version']} ({states}){of_events}"


def _alert_line(alert: dict[str, Any]) -> str:
    return f"{clock_text(alert['written_ms'])} UTC {alert['rule_id']}: {key_words(alert['key'])}: {crossed(alert)}"


def _identity(alert: dict[str, Any]) -> tuple[str, str, int]:
    return alert["rule_id"], alert["event_id"], alert["written_ms"]


def bars(numbers: list[int]) -> str:
    """Return numbers as bars, the greatest as the highest; empty if all are zero."""
    most, steps = max(numbers, default=0), len(_BARS) - 1
    return "".join(_BARS[-(-number * steps // most)] for number in numbers) if most else ""


def _batches(minute: dict[str, Any]) -> str:
    times = minute["batch_ms"]
    if times is None:
        return "no batch"
    unit = "batch" if minute["batches"] == 1 else "batches"
    return f"{minute['batches']:,} {unit} of {times['p50']:,} ms, at most {times['max']:,} ms"


def _behind(lag: int | None) -> str:
    return "lag not known" if lag is None else f"{counted(lag, 'message')} behind"
