"""How good rules are, by what people have found: counted in one pass over the alerts of a job.

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
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any

from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS
from buckets.verdicts.confirmed import RecordedAlert
from buckets.verdicts.fraud import Fraud
from buckets.verdicts.verdict import Findings, ShareInterval, wilson

_Grouping = tuple[str, ...]
_Key = tuple[tuple[str, str], ...]  # Fields by name, each with its value as text


@dataclass(frozen=True)
class RuleQuality:
    """What is known of a rule."""

    rule_id: str  # the rule
    state: str | None  # its state now; None of a rule that is gone
    alerts: int  # how many came out
    shadow_alerts: int  # how many came out on trial; all that follows counts both
    held_alerts: int  # how many a policy held back; they count nowhere else
    verdicts: Mapping[str, int]  # how many alerts have each verdict
    by_event: int  # how many of these have it from their event alone
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
        """Return how many alerts turned out to be fraud or legitimate."""
        return self.verdicts["fraud"] + self.verdicts["legitimate"]

    @property
    def fraud_of_judged(self) -> ShareInterval | None:
        """Return the share of fraud among these; None without any."""
        return wilson(self.verdicts["fraud"], self.judged)

    @property
    def false_positives(self) -> float | None:
        """Return the share of legitimate ones among these; None without any."""
        return self.verdicts["legitimate"] / self.judged if self.judged else None

    @property
    def caught_of_confirmed(self) -> ShareInterval | None:
        """Return the share of confirmed frauds that were caught; None where none is confirmed."""
        return wilson(self.caught, self.frauds)


@dataclass
class _Tally:
    """What has been counted of a rule so far."""

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
    """Return how good each rule is. Cost: O(alerts), with memory for what was fraud.

    Args:
        alerts: the alerts of all rules, each id once.
        found: the verdicts that count.
        frauds: all confirmed frauds, by event id.
        rules: the states of rules that are there now, by id; they are in the result with alerts or without.

    Returns:
        By rule id.
    """
    tallies = {rule_id: _Tally() for rule_id in rules}
    first_frauds: dict[_Grouping, dict[_Key, int]] = {}
    alerting: dict[str, set[str]] = {}
    for alert in alerts:
        tally = tallies.setdefault(alert.rule_id, _Tally())
        tally.outputs[alert.output] += 1
        if alert.output == HELD_ALERTS:
            tally.held.update({alert.event_id} & frauds.keys())
            continue
        _count_verdict(tally, alert, found)
        if alert.event_id in frauds:
            tally.caught.add(alert.event_id)
            if alert.output == ALERTS:
                alerting.setdefault(alert.event_id, set()).add(alert.rule_id)
        key = _key_of(alert.key)
        grouping = tuple(name for name, _ in key)
        if grouping not in first_frauds:
            first_frauds[grouping] = _first_frauds(grouping, frauds.values())
        tally.groupings.add(grouping)
        _detect(tally, key, alert.event_time_ms, first_frauds[grouping])
    return [
        _quality_of(rule_id, rules.get(rule_id), tallies[rule_id], frauds, first_frauds, alerting)
        for rule_id in sorted(tallies)
    ]


def _count_verdict(tally: _Tally, alert: RecordedAlert, found: Findings) -> None:
    verdict = found.of(alert.alert_id, alert.event_id)
    if verdict is not None:
        tally.verdicts[verdict.verdict] += 1
        tally.by_event += alert.alert_id not in found.by_alert
    if alert.decided_ms is not None:
        tally.decided_ms.append(alert.decided_ms - alert.event_time_ms)


def _detect(tally: _Tally, key: _Key, event_time_ms: int, first_frauds: Mapping[_Key, int]) -> None:
    first_ms = first_frauds.get(key)
    if first_ms is not None and event_time_ms >= first_ms:
        tally.detected_ms[key] = min(tally.detected_ms.get(key, event_time_ms), event_time_ms)


def _first_frauds(grouping: _Grouping, frauds: Iterable[Fraud]) -> dict[_Key, int]:
    """Return when each key of a grouping had its first fraud, of those confirmed whose time and fields are known."""
    first: dict[_Key, int] = {}
    for fraud in frauds:
        if fraud.event_time_ms is not None and all(fraud.fields.get(name) is not None for name in grouping):
            key = _key_of({name: fraud.fields[name] for name in grouping})
            first[key] = min(first.get(key, fraud.event_time_ms), fraud.event_time_ms)
    return first


def _key_of(fields: Mapping[str, Any]) -> _Key:
    """Return a key by the names of its fields, the same for typed values and for those read from a file of text."""
    texts = ((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in fields.items())
    return tuple(sorted(texts))


def _quality_of(
    rule_id: str,
    state: str | None,
    tally: _Tally,
    frauds: Mapping[str, Fraud],
    first_frauds: Mapping[_Grouping, Mapping[_Key, int]],
    alerting: Mapping[str, set[str]],
) -> RuleQuality:
    first: dict[_Key, int] = {}
    for grouping in tally.groupings:
        first |= first_frauds[grouping]
    waits = [at_ms - first[key] for key, at_ms in tally.detected_ms.items()]
    return RuleQuality(
        rule_id=rule_id,
        state=state,
        alerts=tally.outputs[ALERTS],
        shadow_alerts=tally.outputs[SHADOW_ALERTS],
        held_alerts=tally.outputs[HELD_ALERTS],
        verdicts={finding: tally.verdicts[finding] for finding in ("fraud", "legitimate", "unclear")},
        by_event=tally.by_event,
        frauds=len(frauds),
        caught=len(tally.caught),
        caught_alone=sum(not alerting.get(event_id, set()) - {rule_id} for event_id in tally.caught),
        caught_held=len(tally.held - tally.caught),
        amount_caught=_sum(fraud for event_id, fraud in frauds.items() if event_id in tally.caught),
        amount_missed=_sum(fraud for event_id, fraud in frauds.items() if event_id not in tally.caught),
        fraud_keys=len(first),
        detected_keys=len(waits),
        detect_ms=float(median(waits)) if waits else None,
        decide_ms=float(median(tally.decided_ms)) if tally.decided_ms else None,
    )


def _sum(frauds: Iterable[Fraud]) -> Decimal:
    return sum((fraud.amount for fraud in frauds if fraud.amount is not None), Decimal(0))
