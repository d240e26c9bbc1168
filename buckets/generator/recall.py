"""Recall: how much of the planted fraud the alerts have found."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PatternRecall:
    """How one planted pattern fared.

    Attributes:
        pattern: its name.
        rule_id: the rule that is meant to catch it.
        planted: cases.
        caught: cases of which some event raised an alert of that rule.
        at_once: cases that were caught at the first event where that was possible.
    """

    pattern: str
    rule_id: str
    planted: int
    caught: int
    at_once: int


def compare(truth: Iterable[dict[str, Any]], alerts: Iterable[dict[str, Any]]) -> list[PatternRecall]:
    """Compare alerts with the planted cases, pattern by pattern."""
    events_of_rule: dict[str, set[str]] = defaultdict(set)
    for alert in alerts:
        events_of_rule[alert["rule_id"]].add(alert["event_id"])
    cases: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for case in truth:
        cases[case["pattern"], case["rule_id"]].append(case)
    return [
        PatternRecall(
            pattern=pattern,
            rule_id=rule_id,
            planted=len(members),
            caught=sum(not events_of_rule[rule_id].isdisjoint(case["event_ids"]) for case in members),
            at_once=sum(case["detect_event_id"] in events_of_rule[rule_id] for case in members),
        )
        for (pattern, rule_id), members in cases.items()
    ]


def others(truth: Iterable[dict[str, Any]], alerts: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count alerts on events that belong to no planted case, by rule."""
    planted = {event for case in truth for event in case["event_ids"]}
    return Counter(alert["rule_id"] for alert in alerts if alert["event_id"] not in planted)


def recall_rows(truth: Sequence[dict[str, Any]], alerts: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield rows of a table: pattern, rule, how many were planted, caught, caught at once, and other alerts."""
    beside = others(truth, alerts)
    for recall in compare(truth, alerts):
        numbers = (recall.planted, recall.caught, recall.at_once, beside[recall.rule_id])
        yield recall.pattern, recall.rule_id, *(f"{number:,}" for number in numbers)
