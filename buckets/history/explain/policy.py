"""What the policy of a rule made of an event at which it fired, and what the job recorded of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from buckets.delta.whole_table import is_between, is_in
from buckets.errors import BucketsError
from buckets.history.explain.explanation import EventThen, Reason, RecordedValue, RuleOutcome, RuleThen
from buckets.history.explain.history_lookup import Arrivals, Past
from buckets.history.explain.key import KeyHistory, Target, as_arrivals, score_again
from buckets.moment import TimeRange, exact_time_text
from buckets.outputs import columns
from buckets.outputs.columns import HELD_ALERTS
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Row, Selection
from buckets.rules.policies import FiredAt, key_texts
from buckets.rules.rule import WHOLE_SHARE, Rule, share_text
from buckets.rules.warmth import Warm, rules_warmth


@dataclass(frozen=True)
class FiredThen:
    """An event at which a rule fired."""

    rule: Rule  # the rule
    key: Mapping[str, Any]  # its key, by field
    time_ms: int  # when it happened
    number: int  # which arrival it was
    warm: bool  # whether its windows were complete
    since: int  # the first batch of which something is remembered: what its group keeps may have begun again
    # where the history of its group was filled in, the alerts that it has with that; None elsewhere
    filled: Sequence[Row] | None = None


@dataclass(frozen=True)
class _EarlierAlerts:
    """The alerts of a rule and key that came out before an event; see `rules.policies`."""

    past: Past
    fired: FiredThen

    @property
    def origin(self) -> str:
        """Where they are from, if they were never put out."""
        return "" if self.fired.filled is None else ", as of its filled-in history"

    def since(self, from_ms: int | None) -> list[Row]:
        """Return those from a time on, None for all; not those that were held back."""
        return [row for row in fired_before(self.past, self.fired, from_ms) if row["output"] != HELD_ALERTS]


def holding_reasons(past: Past, fired: FiredThen) -> Iterator[Reason]:
    """Say what holds an alert back, in the order in which policies decide: the first counts."""
    event = FiredAt(fired.time_ms, fired.warm, lambda: key_texts(fired.key))
    for policy in fired.rule.policies:
        if policy.held_by is not None:
            for sentence in policy.explain(event, _EarlierAlerts(past, fired)):
                yield Reason(policy.held_by, sentence)


def not_for_alerts(rule: Rule, key: Mapping[str, Any]) -> Iterator[Reason]:
    """Say why an alert goes to `shadow_alerts`."""
    if rule.state == "SHADOW":
        yield Reason("shadow", "the rule is on trial (SHADOW): its alerts go to shadow_alerts")
    elif rule.rollout < WHOLE_SHARE and not _is_in_share(rule, key):
        share = share_text(rule.rollout)
        yield Reason("rollout", f"the key is outside the {share} of keys that the rule alerts for")


def in_share(rule: Rule, key: Mapping[str, Any]) -> Iterator[Reason]:
    """Say that a key is inside the share of a rule, where it has one."""
    if rule.state == "ACTIVE" and rule.rollout < WHOLE_SHARE and _is_in_share(rule, key):
        yield Reason("rollout", f"the key is inside the {share_text(rule.rollout)} of keys that the rule alerts for")


def _is_in_share(rule: Rule, key: Mapping[str, Any]) -> bool:
    from buckets.engine.policies import is_in_share

    text = json.dumps({name: key[name] for name in sorted(key)}, ensure_ascii=False)
    return is_in_share(rule, text)


def fired_before(past: Past, fired: FiredThen, from_ms: int | None) -> list[Row]:
    """Return the events from a time on at which a rule had fired for a key before, each with the `output` it is in."""
    rows = _recorded(past, fired, from_ms) if fired.filled is None else fired.filled
    schema = past.schema
    came = past.numbers_of(schema, [(row["event_id"], row["event_time"]) for row in rows])
    before = []
    for row in rows:
        arrivals = came.get((row["event_id"], row["event_time"]))
        if arrivals is None:
            continue
        came_at = arrivals.row_of(row["source"], row["position"])
        is_kept = arrivals.batches[came_at] >= fired.since and TimeRange(from_ms).has(row["event_time"])
        if arrivals.numbers[came_at] < fired.number and is_kept:
            before.append(row)
    return before


def _recorded(past: Past, fired: FiredThen, from_ms: int | None) -> list[Row]:
    texts = set(_spellings(past, fired))
    return [
        row | {"output": output}
        for output in ALERT_OUTPUTS
        for row in past.results(output, Selection({"rule_id": [fired.rule.rule_id], "key": texts}, TimeRange(from_ms)))
    ]


def _spellings(past: Past, fired: FiredThen) -> Iterator[str]:
    """Return the key as text, its fields in the order of the rule or of its group, by the names of each epoch."""
    names = past.archive.names
    for epoch in range(names.epoch + 1):
        key = {names.name_in(epoch, field) or field: value for field, value in fired.key.items()}
        by_rule = [names.name_in(epoch, field) or field for field in fired.rule.group_by]
        for order in (by_rule, sorted(key)):
            yield json.dumps({name: key[name] for name in order}, ensure_ascii=False)


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
    """Return what is recorded of a rule at an event, or what the engine finds of it again."""
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


def arrivals_of_event(past: Past, event_id: str, at_ms: int | None) -> Arrivals | None:
    """Read the arrivals of an event; None where a row that holds its id came, but was no event.

    Raises:
        BucketsError: nothing has come, or several events have the id.
    """
    arrivals = _events(past, event_id, at_ms)
    times_ms = sorted(set(arrivals.times_ms.tolist()))
    if len(times_ms) > 1:
        some = ", ".join(exact_time_text(time_ms) for time_ms in times_ms[:3])
        message = f"{len(times_ms)} events have the id {event_id!r}, at {some}; say which with --at"
        raise BucketsError(message)
    if len(arrivals):
        return arrivals
    if at_ms is not None or not past.faults_of(event_id):
        raise BucketsError(_not_found(past, event_id, at_ms))
    return None


def event_of_alert(past: Past, row: Row) -> Target:
    """Read the event of an alert: the very arrival at which it was raised.

    Raises:
        BucketsError: it is not in the archive.
    """
    arrivals = _events(past, row["event_id"], row["event_time"])
    if not len(arrivals):
        raise BucketsError(_not_found(past, row["event_id"], row["event_time"]))
    return Target(arrivals.take(np.array([arrivals.row_of(row["source"], row["position"])])), "events")


def alert_that_raised(past: Past, rule: Rule, target: Target, row: Row) -> Target:
    """Return the alert that raised one of a rule over alerts.

    Raises:
        BucketsError: it is not found.
    """
    event: dict[str, Any] = row["event"]
    raised = past.alert(event["alert_id"])
    alerts = None if raised is None else as_arrivals(past, target.batch_id, [raised[1]])
    if alerts is None or not len(alerts):
        message = (
            f"rule {rule.rule_id!r} counts alerts, and alert {event['alert_id']!r}, which raised this one, is not "
            "found; the table of alerts must be as the job wrote it"
        )
        raise BucketsError(message)
    return Target(alerts, "alerts")


def _events(past: Past, event_id: str, at_ms: int | None) -> Arrivals:
    schema = past.schema
    tests = [] if at_ms is None else is_between(schema.event_time.field, TimeRange(at_ms, at_ms + 1))
    return past.events(schema, [is_in(schema.event_id, [event_id]), *tests])


def _not_found(past: Past, event_id: str, at_ms: int | None) -> str:
    cuts, before = past.recorded.cuts, past.recorded.before
    when = "" if at_ms is None else f" at {exact_time_text(at_ms)}"
    since = f", which begins with batch {cuts[0].batch_id}" if before is not None else ""
    hint = "; it may have come before that" if before is not None else ""
    return f"event {event_id!r}{when} is not in the archive {past.archive.folder}{since}{hint}; check the id"


def event_then(target: Target, came: int) -> EventThen:
    """Return the event as it came, and how often."""
    arrivals = target.arrivals
    source, _, position = arrivals.origins[0]
    return EventThen(
        event_id=target.name,
        time_ms=target.time_ms,
        fields=arrivals.event(0),
        batch_id=target.batch_id,
        source=source,
        position=position,
        ingested_ms=arrivals.ingested_ms[0].as_py(),
        came=came,
    )


def rule_then(past: Past, rule: Rule, target: Target) -> RuleThen:
    """Return the rule as it was, and who made it so."""
    cut = past.cuts[target.batch_id]
    last = past.versions.latest_change(rule.rule_id, cut.ruleset_version)
    made, change = (None, None) if last is None else last
    return RuleThen(
        rule_id=rule.rule_id,
        version=rule.version,
        state=rule.state,
        sentence=rule.sentence(),
        written=rule.model_dump(by_alias=True, mode="json"),
        ruleset_version=cut.ruleset_version,
        author="" if change is None else change.author,
        reason="" if change is None else change.reason,
        made_ms=None if made is None else made.made_ms,
        lists={name: version for name, version in cut.lists.items() if name in rule.lists},
    )


def warmth_of(past: Past, rule: Rule, target: Target) -> str:
    """Say since when the windows of a rule are complete, seen from an event; nothing of a rule over alerts."""
    if rule.on == "alerts":
        return ""
    warmth = rules_warmth(past.rule_set(target.batch_id), (), 0).get(rule.rule_id)
    if warmth is None or not warmth.warm:
        return "the rule keeps nothing"
    return _warm_words(warmth.warm, target.time_ms)


def _warm_words(warm: Sequence[Warm], time_ms: int) -> str:
    for span in warm:
        begun = span.from_ms is None or span.from_ms <= time_ms
        if begun and (span.until_ms is None or time_ms < span.until_ms):
            return (
                "complete since the first event"
                if span.from_ms is None
                else f"complete from {exact_time_text(span.from_ms)} on"
            )
    ahead = next((span.from_ms for span in warm if span.from_ms is not None and span.from_ms > time_ms), None)
    return "not complete" if ahead is None else f"not complete: only from {exact_time_text(ahead)} on"
