"""The quality of all rules of a job, and what to do with each, from its tables and its verdicts.

What to do with a rule by its verdicts.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, results_folder
from buckets.errors import BucketsError
from buckets.moment import ANY_TIME, TimeRange, iso_text
from buckets.numbers.fixed_point import short_percent_text
from buckets.outputs.recorded_outputs import has_alerts
from buckets.verdicts.confirmed import FindEvents, confirmed_fraud, job_verdicts, recorded_alerts
from buckets.verdicts.fraud import Fraud
from buckets.verdicts.quality import RuleQuality, quality
from buckets.verdicts.verdict import ShareInterval, findings

What = Literal["keep", "tune", "retire", "not enough verdicts"]


@dataclass(frozen=True)
class Thresholds:
    """What the advice goes by."""

    verdicts: int = 20  # how many alerts must have turned out to be fraud or legitimate
    keep: float = 0.3  # a rule whose precision is at least this, with 95 % confidence, is kept
    retire: float = 0.1  # one whose precision is below this, likewise, and which has caught nothing alone, is retired


@dataclass(frozen=True)
class Advice:
    """What to do with a rule."""

    what: What
    reason: str


def advise(rule: RuleQuality, thresholds: Thresholds) -> Advice:
    """Return what to do with a rule."""
    precision, judged = rule.fraud_of_judged, rule.judged
    if precision is None or judged < thresholds.verdicts:
        return Advice("not enough verdicts", f"{_judged(rule)}; {thresholds.verdicts:,} are needed")
    judgement = f"{rule.verdicts['fraud']:,} of {judged:,} were fraud: with 95 % confidence"
    keep, retire = short_percent_text(thresholds.keep), short_percent_text(thresholds.retire)
    if precision.low >= thresholds.keep:
        return Advice("keep", f"{judgement} at least {short_percent_text(precision.low)}, and {keep} is asked for")
    alone = {0: "no fraud", 1: "one fraud"}.get(rule.caught_alone, f"{rule.caught_alone:,} frauds")
    if precision.high >= thresholds.retire:
        between = f"{short_percent_text(precision.low)} to {short_percent_text(precision.high)}"
        return Advice("tune", f"{judgement} {between}, and at least {keep} is asked for; it caught {alone} alone")
    below = f"{judgement} at most {short_percent_text(precision.high)}, and {retire} is the least"
    if rule.caught_alone:
        return Advice("tune", f"{below}; but it caught {alone} alone")
    return Advice("retire", f"{below}; it caught {alone} alone")


def _judged(rule: RuleQuality) -> str:
    """Return how many alerts of a rule turned out to be something."""
    fired = rule.alerts + rule.shadow_alerts
    return f"{rule.judged:,} of {fired:,} alerts are fraud or legitimate" if fired else "it has no alerts"


_EVALUATED = ("ACTIVE", "SHADOW")


@dataclass(frozen=True)
class QualityReport:
    """The quality of rules."""

    rules: list[tuple[RuleQuality, Advice]]  # each with what to do with it, by rule id
    frauds: int  # how many frauds are confirmed in the time that was asked for
    without_time: int  # how many others were left out, because it is not known when they happened
    without_amount: int  # of how many of `frauds` the amount is not known
    measure: str | None  # the measure of amounts; None where the events have none
    thresholds: Thresholds  # what the advice goes by
    times: TimeRange  # the event times that count, of alerts and of frauds alike

    def as_json(self) -> dict[str, Any]:
        """Return an object that JSON can hold: times in ISO 8601, durations in ms, amounts as text."""
        return {
            "from": None if self.times.from_ms is None else iso_text(self.times.from_ms),
            "to": None if self.times.until_ms is None else iso_text(self.times.until_ms),
            "measure": self.measure,
            "frauds": self.frauds,
            "frauds_without_time": self.without_time,
            "frauds_without_amount": self.without_amount,
            "thresholds": asdict(self.thresholds),
            "rules": [_rule(rule, advice) for rule, advice in self.rules],
        }


def quality_report(
    job: Job,
    thresholds: Thresholds,
    times: TimeRange = ANY_TIME,
    fraud: Path | None = None,
    measure: str | None = None,
    find_events: FindEvents | None = None,
) -> QualityReport:
    """Return how good the rules of a job are.

    Args:
        job: the job.
        thresholds: what the advice goes by.
        times: the event times that count, of alerts and of frauds alike.
        fraud: a table of further confirmed frauds; see `read_fraud_table`.
        measure: whose values are amounts; the first measure where it is left out.
        find_events: looks for events in the archive.

    Raises:
        BucketsError: there are no alerts, or something cannot be read.
    """
    folder = results_folder(job)
    if not has_alerts(folder):
        message = f"results {folder}: there are no tables of alerts; run the job first, and `buckets audit` for topics"
        raise BucketsError(message)
    measures = job.event_schema.measures
    if measure is not None and measure not in measures:
        message = f"--measure {measure}: the events have no such measure; there are {', '.join(measures) or 'none'}"
        raise BucketsError(message)
    verdicts = findings(job_verdicts(job))
    known = confirmed_fraud(job, fraud, measure, find_events, verdicts)
    frauds = {event_id: each for event_id, each in known.items() if _is_inside(each, times)}
    rules = quality(recorded_alerts(folder, times), verdicts, frauds, _states(job))
    return QualityReport(
        rules=[(rule, advise(rule, thresholds)) for rule in rules],
        frauds=len(frauds),
        without_time=sum(each.event_time_ms is None for each in known.values()) if times != ANY_TIME else 0,
        without_amount=sum(each.amount is None for each in frauds.values()),
        measure=measure or next(iter(measures), None),
        thresholds=thresholds,
        times=times,
    )


def _is_inside(fraud: Fraud, times: TimeRange) -> bool:
    return times == ANY_TIME or (fraud.event_time_ms is not None and times.has(fraud.event_time_ms))


def _states(job: Job) -> Mapping[str, str]:
    """Return the rules that are evaluated now: as the job had them last, or before its first start as its files say."""
    rule_set = RuleVersions(job.checkpoint).latest_rule_set()
    rules = job.rules if rule_set is None else rule_set.rules
    return {rule.rule_id: rule.state for rule in rules if rule.state in _EVALUATED}


def _rule(rule: RuleQuality, advice: Advice) -> dict[str, Any]:
    return {
        "rule_id": rule.rule_id,
        "state": rule.state,
        "alerts": rule.alerts,
        "shadow_alerts": rule.shadow_alerts,
        "held_alerts": rule.held_alerts,
        **rule.verdicts,
        "verdict_by_event": rule.by_event,
        "precision": _interval(rule.fraud_of_judged),
        "false_positives": rule.false_positives,
        "recall": _interval(rule.caught_of_confirmed),
        "caught": rule.caught,
        "missed": rule.frauds - rule.caught,
        "caught_alone": rule.caught_alone,
        "missed_but_held": rule.caught_held,
        "amount_caught": format(rule.amount_caught, "f"),
        "amount_missed": format(rule.amount_missed, "f"),
        "keys_with_fraud": rule.fraud_keys,
        "keys_detected": rule.detected_keys,
        "time_to_detect": rule.detect_ms,
        "time_to_decide": rule.decide_ms,
        "advice": advice.what,
        "reason": advice.reason,
    }


def _interval(interval: ShareInterval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)
