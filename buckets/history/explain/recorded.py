"""What a job has recorded of a rule at an event; where it has recorded nothing, what the engine itself finds again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from buckets.history.explain.explanation import RecordedValue, RuleOutcome
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import KeyHistory, Target
from buckets.history.explain.scoring import score_again
from buckets.moment import TimeRange
from buckets.outputs import columns
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Row, Selection
from buckets.rules.rule import Rule

_OUTCOMES: Mapping[str, RuleOutcome] = {
    columns.ALERTS: "alert",
    columns.SHADOW_ALERTS: "shadow alert",
    columns.HELD_ALERTS: "held back",
}


@dataclass(frozen=True)
class RecordedResult:
    """A result of a rule at an event."""

    outcome: RuleOutcome
    row: Row
    features: Mapping[str, RecordedValue]
    origin: str


def recorded_alert(output: str, row: Row) -> RecordedResult:
    """Read a row of an output of alerts."""
    return RecordedResult(_OUTCOMES[output], row, _features(row), f"recorded in table {output}")


def find_recorded(
    past: Past, rule: Rule, target: Target, event: tuple[str, int], histories: list[KeyHistory], from_ms: int
) -> RecordedResult | None:
    """Return what is recorded of a rule at an event, or what the engine finds of it again.

    Args:
        past: the past.
        rule: the rule.
        target: the event, or the alert as an event.
        event: the event's id and time.
        histories: of the keys of the rule's groups.
        from_ms: how far back its windows reach.
    """
    for output in ALERT_OUTPUTS:
        rows = [row for row in past.results(output, _of_event(rule, *event)) if _is_of(row, target)]
        if rows:
            return recorded_alert(output, rows[0])
    rows = past.results(columns.EVALUATIONS, _of_event(rule, target.name, target.time_ms))
    if rows:
        return _of_evaluation(rows[0], "recorded in table evaluations")
    if target.on == "alerts":
        return None
    row = _scored_again(past, rule, target, histories, from_ms)
    return None if row is None else _of_evaluation(row, "not recorded: scored again by the engine in memory")


def _is_of(row: Row, target: Target) -> bool:
    """Return whether an alert is of the target: a rule over alerts has several of an event that raised several."""
    return target.on == "events" or row["event"].get("alert_id") == target.name


def _of_event(rule: Rule, event_id: str, time_ms: int) -> Selection:
    return Selection({"rule_id": [rule.rule_id], "event_id": [event_id]}, TimeRange(time_ms, time_ms + 1))


def _of_evaluation(row: Row, origin: str) -> RecordedResult:
    outcome: RuleOutcome = "alert" if row["fired"] else "did not fire"
    return RecordedResult(outcome, row, _features(row), origin)


def _features(row: Row) -> dict[str, RecordedValue]:
    """Read the values of an alert or an evaluation."""
    if row.get("terms") is None or row.get("value") is not None:
        value, lower, upper = (None if row[name] is None else str(row[name]) for name in ("value", "lower", "upper"))
        return {"value": RecordedValue(value, lower, upper, bool(row["exact"]), bool(row["warm"]))}
    terms: list[dict[str, Any]] = row["terms"] or []
    return {
        term["name"]: RecordedValue(term["value"], term.get("lower"), term.get("upper"), term["exact"], term["warm"])
        for term in terms
    }


def _scored_again(
    past: Past, rule: Rule, target: Target, histories: list[KeyHistory], from_ms: int
) -> dict[str, Any] | None:
    """Evaluate a rule at an event with the engine, over the events of its keys alone."""
    source, _, position = target.arrivals.origins[0]
    groups = [history.group for history in histories]
    # Whether an alert has reset a rule depends on alerts before it, and so on; of repeats by their id it is the same.
    by_id = past.terms(target.batch_id).engine.duplicates.within is not None
    since_ms = None if rule.reset_on_alert or by_id else from_ms
    evaluation = None
    for row in score_again(past, target.arrivals, groups, since_ms, [columns.EVALUATIONS])[columns.EVALUATIONS]:
        is_event = (row["source"], row["position"]) == (source, position) if "source" in row else True
        if row["rule_id"] == rule.rule_id and row["event_id"] == target.name and is_event:
            evaluation = row
    return evaluation
