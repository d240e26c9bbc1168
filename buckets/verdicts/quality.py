"""How good rules are by people's verdicts, counted in one pass over the alerts of a job.

What each number is:

- An alert has the latest verdict on itself; without one, what the verdicts on its event say. An event is fraud if its
  verdict says so, or a table of cases.
- Fraud of judged is fraud / (fraud + legitimate), of the alerts with such a verdict; the share of false positives is
  the rest.
- Caught of confirmed is the share of all confirmed frauds at whose events the rule fired, in force or on trial.
- Caught alone is a fraud at whose event no other rule in force raised an alert.
- Time to detect runs, for a key of the rule with confirmed fraud, in event time from its first fraudulent event to the
  rule's first alert on the key that is no earlier.
- Time to decide runs from the time of an event to when the alert on it was decided on, by the clock of the machine.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any, Literal

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, results_folder
from buckets.errors import BucketsError
from buckets.moment import ANY_TIME, TimeRange, iso_text
from buckets.numbers.fixed_point import short_percent_text
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS
from buckets.outputs.recorded_outputs import Selection, has_alerts
from buckets.verdicts.confirmed import FindEvents, Fraud, RecordedAlert, confirmed_fraud, job_verdicts, recorded_alerts
from buckets.verdicts.verdict import Findings, ShareInterval, findings, wilson

_Grouping = tuple[str, ...]
_Key = tuple[tuple[str, str], ...]  # Fields by name, each with its value as text


@dataclass(frozen=True)
class RuleQuality:
    """The quality of a rule."""

    rule_id: str  # the rule
    state: str | None  # its state now; None of a rule that is gone
    alerts: int  # how many came out
    shadow_alerts: int  # how many were raised on trial; all counts below include both
    held_alerts: int  # how many a policy held back; they count nowhere else
    verdicts: Mapping[str, int]  # how many alerts have each verdict
    by_event: int  # how many of these have only a verdict on their event
    frauds: int  # how many frauds are confirmed at all
    caught: int  # at how many of their events the rule fired
    caught_alone: int  # at how many of these no other rule in force did
    caught_held: int  # at how many others it fired, and the alert was held back
    amount_caught: Decimal  # the sum of the amounts of what was caught, as far as they are known
    amount_missed: Decimal  # that of all other frauds
    fraud_keys: int  # how many keys of the rule have a confirmed fraud whose time is known
    detected_keys: int  # how many of them have an alert at their first fraud or later
    detect_ms: float | None  # the median time to detect; None where no key is detected
    decide_ms: float | None  # the median time to decide; None where alerts do not say when they were decided on

    @property
    def judged(self) -> int:
        """Return the number of alerts found to be fraud or legitimate."""
        return self.verdicts["fraud"] + self.verdicts["legitimate"]

    @property
    def fraud_of_judged(self) -> ShareInterval | None:
        """Return the share of fraud among these; None if there are none."""
        return wilson(self.verdicts["fraud"], self.judged)

    @property
    def false_positives(self) -> float | None:
        """Return the share of legitimate alerts among these; None if there are none."""
        return self.verdicts["legitimate"] / self.judged if self.judged else None

    @property
    def caught_of_confirmed(self) -> ShareInterval | None:
        """Return the share of confirmed frauds that were caught; None if none is confirmed."""
        return wilson(self.caught, self.frauds)


@dataclass
class _Tally:
    """The counts of a rule so far."""

    outputs: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    by_event: int = 0
    caught: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    groupings: set[_Grouping] = field(default_factory=set)
    detected_ms: dict[_Key, int] = field(default_factory=dict)
    decided_ms: "array[int]" = field(default_factory=lambda: array("q"))


def quality(
    alerts: Iterable[RecordedAlert],
    found: Findings,
    frauds: Mapping[str, Fraud],
    rules: Mapping[str, str],
) -> list[RuleQuality]:
    """Return the quality of each rule, by id. Cost: O(alerts), with memory for frauds.

    Alerts are those of all rules, without repeated ids; frauds are given by event id, and the states of current rules
    by id: these are in the result even without alerts.
    """
    tallies = {rule_id: _Tally() for rule_id in rules}
    first_frauds: dict[_Grouping, dict[_Key, int]] = {}
    alerting: dict[str, set[str]] = defaultdict(set)
    for alert in alerts:
        tally, time_ms = tallies.setdefault(alert.rule_id, _Tally()), alert.event_time_ms
        tally.outputs[alert.output] += 1
        if alert.output == HELD_ALERTS:
            tally.held.update({alert.event_id} & frauds.keys())
            continue
        verdict = found.of(alert.alert_id, alert.event_id)
        if verdict is not None:
            tally.verdicts[verdict.verdict] += 1
            tally.by_event += alert.alert_id not in found.by_alert
        if alert.decided_ms is not None:
            tally.decided_ms.append(alert.decided_ms - time_ms)
        if alert.event_id in frauds:
            tally.caught.add(alert.event_id)
            if alert.output == ALERTS:
                alerting[alert.event_id].add(alert.rule_id)
        key = _key_of(alert.key)
        grouping = tuple(name for name, _ in key)
        if grouping not in first_frauds:
            first_frauds[grouping] = _first_frauds(grouping, frauds.values())
        tally.groupings.add(grouping)
        first_ms = first_frauds[grouping].get(key)
        if first_ms is not None and time_ms >= first_ms:
            tally.detected_ms[key] = min(tally.detected_ms.get(key, time_ms), time_ms)
    results = []
    for rule_id, tally in sorted(tallies.items()):
        first: dict[_Key, int] = {}
        for grouping in tally.groupings:
            first |= first_frauds[grouping]
        waits = [at_ms - first[key] for key, at_ms in tally.detected_ms.items()]
        known = [(name in tally.caught, fraud.amount) for name, fraud in frauds.items() if fraud.amount is not None]
        results.append(
            RuleQuality(
                rule_id=rule_id,
                state=rules.get(rule_id),
                alerts=tally.outputs[ALERTS],
                shadow_alerts=tally.outputs[SHADOW_ALERTS],
                held_alerts=tally.outputs[HELD_ALERTS],
                verdicts={finding: tally.verdicts[finding] for finding in ("fraud", "legitimate", "unclear")},
                by_event=tally.by_event,
                frauds=len(frauds),
                caught=len(tally.caught),
                caught_alone=sum(not alerting.get(name, set()) - {rule_id} for name in tally.caught),
                caught_held=len(tally.held - tally.caught),
                amount_caught=sum((amount for is_caught, amount in known if is_caught), Decimal(0)),
                amount_missed=sum((amount for is_caught, amount in known if not is_caught), Decimal(0)),
                fraud_keys=len(first),
                detected_keys=len(waits),
                detect_ms=float(median(waits)) if waits else None,
                decide_ms=float(median(tally.decided_ms)) if tally.decided_ms else None,
            )
        )
    return results


def _first_frauds(grouping: _Grouping, frauds: Iterable[Fraud]) -> dict[_Key, int]:
    """Return when each key of a grouping had its first fraud, from those with known time and fields."""
    first: dict[_Key, int] = {}
    for fraud in frauds:
        if fraud.event_time_ms is not None and all(fraud.fields.get(name) is not None for name in grouping):
            key = _key_of({name: fraud.fields[name] for name in grouping})
            first[key] = min(first.get(key, fraud.event_time_ms), fraud.event_time_ms)
    return first


def _key_of(fields: Mapping[str, Any]) -> _Key:
    """Return a key by field name, the same for typed values and for those read from a text file."""
    texts = ((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in fields.items())
    return tuple(sorted(texts))


What = Literal["keep", "tune", "retire", "not enough verdicts"]


@dataclass(frozen=True)
class Thresholds:
    """The thresholds for advice."""

    verdicts: int = 20  # how many alerts must have turned out to be fraud or legitimate
    keep: float = 0.3  # a rule whose precision is at least this, with 95 % confidence, is kept
    retire: float = 0.1  # one whose precision is below this, likewise, and which has caught nothing alone, is retired


@dataclass(frozen=True)
class Advice:
    """What to do with a rule."""

    what: What
    reason: str


def advise(rule: RuleQuality, thresholds: Thresholds) -> Advice:
    """Return advice on a rule."""
    precision, judged, fired = rule.fraud_of_judged, rule.judged, rule.alerts + rule.shadow_alerts
    if precision is None or judged < thresholds.verdicts:
        known = f"{judged:,} of {fired:,} alerts are fraud or legitimate" if fired else "it has no alerts"
        return Advice("not enough verdicts", f"{known}; {thresholds.verdicts:,} are needed")
    judgement = f"{rule.verdicts['fraud']:,} of {judged:,} were fraud: with 95 % confidence"
    keep, low, high = map(short_percent_text, (thresholds.keep, precision.low, precision.high))
    alone = {0: "no fraud", 1: "one fraud"}.get(rule.caught_alone, f"{rule.caught_alone:,} frauds")
    if precision.low >= thresholds.keep:
        return Advice("keep", f"{judgement} at least {low}, and {keep} is asked for")
    if precision.high >= thresholds.retire:
        return Advice("tune", f"{judgement} {low} to {high}, and at least {keep} is asked for; it caught {alone} alone")
    below = f"{judgement} at most {high}, and {short_percent_text(thresholds.retire)} is the least"
    if rule.caught_alone:
        return Advice("tune", f"{below}; but it caught {alone} alone")
    return Advice("retire", f"{below}; it caught {alone} alone")


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
    """Return the quality of a job's rules, from alerts and frauds within some event times.

    `fraud` is a table of further confirmed frauds, see `read_fraud_table`; amounts are those of `measure`, or of the
    first measure. `find_events` looks events up in the archive.
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
    frauds = {
        event_id: each
        for event_id, each in known.items()
        if times == ANY_TIME or (each.event_time_ms is not None and times.has(each.event_time_ms))
    }
    # Rules that are evaluated: as the job had them last, or before its first start as its files say.
    rule_set = RuleVersions(job.checkpoint).latest_rule_set()
    there = job.rules if rule_set is None else rule_set.rules
    states: dict[str, str] = {rule.rule_id: rule.state for rule in there if rule.state in ("ACTIVE", "SHADOW")}
    rules = quality(recorded_alerts(folder, Selection({}, times)), verdicts, frauds, states)
    return QualityReport(
        rules=[(rule, advise(rule, thresholds)) for rule in rules],
        frauds=len(frauds),
        without_time=sum(each.event_time_ms is None for each in known.values()) if times != ANY_TIME else 0,
        without_amount=sum(each.amount is None for each in frauds.values()),
        measure=measure or next(iter(measures), None),
        thresholds=thresholds,
        times=times,
    )


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
