"""What `buckets demo-kafka` shows: alerts and figures while payments come, and the planted fraud that was caught."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.cli.console import Terminal, TextTable
from buckets.clock import epoch_ms
from buckets.duration import MINUTE_MS
from buckets.generator.transactions import recall
from buckets.monitor.live import Live
from buckets.monitor.pace import named_quantiles
from buckets.monitor.words import pace_line, quantiles_text
from buckets.outputs.messages import crossed
from buckets.printable import key_words


def recall_table(truth: Sequence[dict[str, Any]], alerts: Sequence[dict[str, Any]]) -> TextTable:
    """Return how many cases of each pattern were planted and caught."""
    numbers = ("Planted", "Caught", "At once", "Others")
    columns = ("Pattern", "Rule", *numbers)
    table = TextTable("What was caught of the planted fraud", columns, numbers, whole=("Pattern", "Rule"))
    table.box, table.padding = box.SIMPLE, (0, 1, 0, 0)
    for pattern, rule_id, *counts in recall(truth, alerts):
        table.add_row(pattern, rule_id, *(f"{count:,}" for count in counts))
    return table


SHOWN_A_SECOND = 2
FIGURES_EVERY_S = 5.0
_OUTCOMES = {
    "no_key": "without a key",
    "filtered": "filtered out",
    "evaluated": "evaluated",
    "late": "late",
    "too_late": "too late",
    "duplicates": "repeated",
    "collisions_not_kept": "collided and not kept",
    "dead_letters": "dead letters",
}


@dataclass
class RuleChanged:
    """A change of a rule while payments come."""

    sent_ms: int  # when it was sent, in ms since the epoch
    version: int  # of the rule set that was in force then
    in_force_ms: int | None = None  # when the first batch under the new version began
    first_alert_ms: int | None = None  # when the first alert of the new version was decided


class ShownAlerts:
    """Takes alerts as they come, and shows some of them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Say things line by line."""
        self._say = say
        self._versions: RuleVersions | None = None
        self._begun_s = self._second_s = self._figures_s = 0.0
        self.begun_ms = epoch_ms()
        self._in_second = self._unshown = 0
        self.alerts: dict[str, dict[str, Any]] = {}
        self.change: RuleChanged | None = None
        self.sent = 0
        self.live: Live | None = None
        self.pace = ""
        """What was said last of how the job keeps up; empty where nothing was."""

    def begin(self) -> None:
        """Note that payments begin to come; what came before counts for no delay."""
        self.begun_ms, self._begun_s = epoch_ms(), time.monotonic()
        self._figures_s = self._begun_s

    def take(self, alerts: Iterable[dict[str, Any]]) -> None:
        """Take alerts, repeats among them; show at most a few lines a second."""
        now_s = time.monotonic()
        if now_s - self._second_s >= 1:
            if self._unshown:
                self._say(f"  … and {self._unshown:,} more")
            self._second_s, self._in_second, self._unshown = now_s, 0, 0
        for alert in alerts:
            if alert["alert_id"] in self.alerts:
                continue
            self.alerts[alert["alert_id"]] = alert
            self._notice_change(alert)
            if self._in_second < SHOWN_A_SECOND:
                self._in_second += 1
                came_ms = alert["ingested_at"]
                after = f", {alert['decided_at'] - came_ms:,} ms after it came" if came_ms else ""
                self._say(f"  {alert['rule_id']}: {key_words(alert['key'])}: {crossed(alert)}{after}")
            else:
                self._unshown += 1

    def progress(self, sent: int, live: Callable[[], Live | None]) -> None:
        """Say now and then how far it has come, and if the job falls behind or is slow, once it does."""
        now_s = time.monotonic()
        if now_s - self._figures_s >= FIGURES_EVERY_S:
            self._figures_s = now_s
            after_s = now_s - self._begun_s
            data = {} if (now := live()) is None else now.data
            evaluated = data["totals"]["events"] if data else 0
            self._say(f"{after_s:.0f} s: {sent:,} sent, {evaluated:,} evaluated, {len(self.alerts):,} alerts")
            before, self.pace = self.pace, (pace_line(data) if data else "") or self.pace
            if self.pace.partition(":")[0] != before.partition(":")[0]:
                self._say(f"— {self.pace} —")

    def changed(self, versions: RuleVersions) -> None:
        """Note that a change of a rule is about to be sent."""
        in_force = max((version.version for version in versions.history()), default=0)
        self.change = RuleChanged(epoch_ms(), in_force)
        self._versions = versions

    def _notice_change(self, alert: dict[str, Any]) -> None:
        change = self.change
        if change is None or change.first_alert_ms is not None or alert["ruleset_version"] <= change.version:
            return
        assert self._versions is not None
        change.first_alert_ms = alert["decided_at"]
        change.in_force_ms = self._versions.history(after=change.version)[0].made_ms
        self._say(f"— {change_line(change)} —")

    def ended(self, live: Live | None) -> None:
        """Note that all alerts have come."""
        self.live = live
        change = self.change
        if change is not None and change.in_force_ms is None and self._versions is not None:
            versions = self._versions.history(after=change.version)
            change.in_force_ms = versions[0].made_ms if versions else None

    def delays_ms(self) -> list[int]:
        """Return for each alert since payments came the time from its payment's arrival in Kafka to the decision."""
        alerts = self.alerts.values()
        came = [alert for alert in alerts if (alert["ingested_at"] or 0) >= self.begun_ms]
        return [alert["decided_at"] - alert["ingested_at"] for alert in came]


def change_line(change: RuleChanged) -> str:
    """Say from when on the changed rule was in force."""
    if change.in_force_ms is None:
        return "the change of the rule came too late for any payment"
    after_ms = change.in_force_ms - change.sent_ms
    text = f"rules version {change.version + 1}: evaluates every payment from {after_ms:,} ms on"
    if change.first_alert_ms is None:
        return f"{text} after the change was sent, and has raised no alert"
    return f"{text} after the change was sent; first alert after {change.first_alert_ms - change.sent_ms:,} ms"


def quantiles_line(times_ms: list[int]) -> str:
    """Return times as p50, p99, p99.9 and the longest."""
    return quantiles_text(named_quantiles(np.array(times_ms, np.int64)))


def print_report(console: Terminal, shown: ShownAlerts, truth: list[dict[str, Any]]) -> None:
    """Print what was caught, the accounts and the delays."""
    say = console.say
    alerts = list(shown.alerts.values())
    console.print(recall_table(truth, alerts))
    say(f"{shown.sent:,} payments sent and evaluated, {len(alerts):,} alerts; what became of every payment:")
    if shown.live is not None:
        for name, counts in shown.live.data["groups"].items():
            say(f"  {account_line(name, counts)}")
        delay = shown.live.data["minute"]["latency_ms"]
        start = "" if shown.live.data["written_ms"] - shown.begun_ms >= MINUTE_MS else ", the start included"
        known = f"delay of all payments of the last minute{start}: {quantiles_text(delay)}"
        say(known if delay else "no delay is known")
    delays_ms = shown.delays_ms()
    if delays_ms:
        say(f"delay of {len(delays_ms):,} alerts, from Kafka to the decision: {quantiles_line(delays_ms)}")
    if shown.pace:
        say(f"how it kept up, as it was said last: {shown.pace}")
    if shown.change is not None:
        say(change_line(shown.change))


def account_line(name: str, counts: dict[str, int]) -> str:
    """Say what became of every payment in a group of rules: what went in is what came out."""
    out = " + ".join(f"{counts[field]:,} {outcome}" for field, outcome in _OUTCOMES.items())
    return f"{name}: {counts['events_in']:,} in = {out}"
