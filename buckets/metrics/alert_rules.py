"""The rules by which Prometheus wakes somebody, made for the limits of an installation.

Each has an entry in `docs/pages/alerts.md`. A rule fires for one job: series of a job have their own `instance`. None
of them fires while all is well, also not on a stream on which nothing arrives.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from string import Template
from typing import Any, Literal

import yaml

from buckets.duration import DAY_MS, MINUTE_MS, format_duration
from buckets.resources import resource

LONGEST_HOLD_MS = DAY_MS  # The longest that a limit of time may be
RUNBOOK = "docs/pages/alerts.md"


@dataclass(frozen=True)
class Limits:
    """What is too much, and for how long something has to be wrong before somebody hears of it."""

    lag: int = 100_000  # messages that wait
    delay_ms: int = 5_000  # from arrival to result, of the slowest hundredth of the events
    silence_ms: int = 10 * MINUTE_MS  # without a result, while there is something to score
    dead_letters: float = 0.01  # the share of rows that are not events
    hold_ms: int = 5 * MINUTE_MS  # for how long it has to be so, and over how long rates are taken; for less than a day
    scrape_job: str = "buckets"  # the name of Prometheus' job that scrapes
    runbook: str = RUNBOOK  # where the runbook can be read


@dataclass(frozen=True)
class AlertRule:
    """A rule."""

    name: str  # its name, and its heading in the runbook
    expr: str  # when it fires, in PromQL
    summary: str  # what is wrong, in one line
    severity: Literal["page", "ticket"] = "page"  # page, if somebody has to get up, or ticket
    is_held: bool = True  # whether it has to be so for a while

    def to_yaml(self, hold: str, runbook: str = RUNBOOK) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            **({"for": hold} if self.is_held else {}),
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook": f"{runbook}#{self.name.lower()}"},
        }


def alert_rules(limits: Limits) -> Iterator[AlertRule]:
    """Return all rules for some limits."""
    values = {
        "window": _promql(limits.hold_ms),
        "hold": format_duration(limits.hold_ms),
        "silence_s": f"{limits.silence_ms / 1000:g}",
        "silence": format_duration(limits.silence_ms),
        "delay_s": f"{limits.delay_ms / 1000:g}",
        "delay": format_duration(limits.delay_ms),
        "lag": limits.lag,
        "messages": f"{limits.lag:,}",
        "dead_letters": f"{limits.dead_letters:g}",
        "share": f"{limits.dead_letters:.3g}",
        "scrape_job": limits.scrape_job,
    }
    for rule in yaml.safe_load(resource("metrics/alert_rules.yaml").read_bytes()):
        yield AlertRule(**rule | {name: Template(rule[name]).substitute(values) for name in ("expr", "summary")})


def _promql(duration_ms: int) -> str:
    return f"{duration_ms}ms" if duration_ms % 1000 else f"{duration_ms // 1000}s"


def rule_file(limits: Limits | None = None) -> str:
    """Return all rules as a file for Prometheus."""
    limits = limits or Limits()
    rules = [rule.to_yaml(_promql(limits.hold_ms), limits.runbook) for rule in alert_rules(limits)]
    groups = {"groups": [{"name": "buckets", "rules": rules}]}
    return yaml.safe_dump(groups, sort_keys=False, width=1000, allow_unicode=True)
