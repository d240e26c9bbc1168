"""What an explanation is about: the event or the alert, found in the archive, and the rule as it scored it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from buckets.delta.query import is_between, is_in
from buckets.errors import BucketsError
from buckets.history.explain.alerts import as_arrivals
from buckets.history.explain.arrivals import Arrivals
from buckets.history.explain.explanation import EventThen, RuleThen
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import Target
from buckets.moment import TimeRange, exact_time_text
from buckets.outputs.recorded_outputs import Row
from buckets.rules.rule import Rule
from buckets.rules.warmth import Warm, rules_warmth


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
