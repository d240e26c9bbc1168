"""The rules by which Prometheus wakes somebody, made for the limits of an installation.

Each has an entry in `docs/pages/alerts.md`. A rule fires for one job: series of a job have their own `instance`. None
of them fires while all is well, also not on a stream on which nothing arrives.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from buckets.duration import DAY_MS, MINUTE_MS, format_duration

LONGEST_HOLD_MS = DAY_MS  # The longest that a limit of time may be
RUNBOOK = "docs/pages/alerts.md"
_OF_JOB = "sum by (job, instance)"


@dataclass(frozen=True)
class Limits:
    """What is too much, and for how long something has to be wrong before somebody hears of it."""

    lag: int = 100_000  # messages that wait
    delay_ms: int = 5_000  # from arrival to result, of the slowest hundredth of the events
    silence_ms: int = 10 * MINUTE_MS  # without a result, while there is something to score
    dead_letters: float = 0.01  # the share of rows that are no events
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
    window, hold = _promql(limits.hold_ms), format_duration(limits.hold_ms)
    silence_s = f"{limits.silence_ms / 1000:g}"
    yield AlertRule("BucketsDown", f'up{{job="{limits.scrape_job}"}} == 0', "The job or its audit does not answer.")
    yield AlertRule(
        "BucketsSilent",
        f"time() - buckets_last_progress_timestamp_seconds > {silence_s}",
        f"No batch has ended for {format_duration(limits.silence_ms)}, though there is something to score.",
        is_held=False,
    )
    yield AlertRule(
        "BucketsBehind",
        f"{_OF_JOB} (buckets_source_lag_messages) > {limits.lag}",
        f"For {hold} more than {limits.lag:,} messages have waited.",
    )
    yield AlertRule(
        "BucketsDelayed",
        f"histogram_quantile(0.99, sum by (job, instance, le) (rate(buckets_delay_seconds_bucket[{window}]))) "
        f"> {limits.delay_ms / 1000:g}",
        f"One event in a hundred waits longer than {format_duration(limits.delay_ms)} for its result.",
    )
    yield AlertRule("BucketsRulesNotFollowed", "buckets_rules_followed == 0", "Changes of the rules cannot be read.")
    yield AlertRule(
        "BucketsRuleChangeRefused",
        f"increase(buckets_rule_changes_refused_total[{window}]) > 0",
        "A change of the rules was not made.",
        "ticket",
        is_held=False,
    )
    yield AlertRule(
        "BucketsDeadLetters",
        f"rate(buckets_dead_letters_total[{window}]) > {limits.dead_letters:g} * rate(buckets_events_total[{window}])",
        f"More than {limits.dead_letters:.3g} of the rows that arrive are not scored.",
        is_held=False,
    )
    yield AlertRule(
        "BucketsKafkaAway",
        f"increase(buckets_kafka_retries_total[{window}]) > 0 or increase(buckets_audit_kafka_retries_total[{window}]) "
        "> 0",
        f"For {hold} Kafka has not answered.",
    )
    yield AlertRule(
        "BucketsWebhookAway",
        f"buckets_webhook_waiting > 0 and increase(buckets_webhook_failed_attempts_total[{window}]) > 0",
        f"For {hold} alerts have waited that the webhook does not take.",
    )
    yield AlertRule(
        "BucketsWebhookUndelivered",
        f"increase(buckets_webhook_undelivered_total[{window}]) > 0",
        "Alerts were given up that the webhook did not take.",
        "ticket",
        is_held=False,
    )
    yield AlertRule("BucketsShortage", "buckets_shortages > 0", "Descriptors, threads or memory run out.", "ticket")
    yield AlertRule(
        "BucketsNotCounted",
        f"increase(buckets_batches_not_counted_total[{window}]) > 0",
        "Batches are missing in the metrics of the job.",
        "ticket",
        is_held=False,
    )
    yield AlertRule(
        "BucketsAuditSilent",
        f"time() - buckets_audit_last_progress_timestamp_seconds > {silence_s}",
        f"The audit has kept nothing for {format_duration(limits.silence_ms)}, though there are messages.",
        "ticket",
        is_held=False,
    )
    yield AlertRule(
        "BucketsAuditBehind",
        f"{_OF_JOB} (buckets_audit_lag_messages) > {limits.lag}",
        f"For {hold} more than {limits.lag:,} messages have waited for the audit.",
        "ticket",
    )


def _promql(duration_ms: int) -> str:
    """Return a duration as PromQL has it."""
    return f"{duration_ms}ms" if duration_ms % 1000 else f"{duration_ms // 1000}s"


def rule_file(limits: Limits | None = None) -> str:
    """Return all rules as a file for Prometheus."""
    limits = limits or Limits()
    rules = [rule.to_yaml(_promql(limits.hold_ms), limits.runbook) for rule in alert_rules(limits)]
    groups = {"groups": [{"name": "buckets", "rules": rules}]}
    return yaml.safe_dump(groups, sort_keys=False, width=1000, allow_unicode=True)
