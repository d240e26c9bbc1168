"""What an explanation is about: the event, or the alert that raised another, found in the archive."""

import json
from typing import Any

import numpy as np

from buckets.delta.column_name import quoted_column
from buckets.errors import BucketsError
from buckets.history.explain.alerts import as_arrivals
from buckets.history.explain.arrivals import Arrivals
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import Target
from buckets.history.explain.results import Row, sql_moment, sql_text
from buckets.moment import exact_time_text
from buckets.rules.rule import Rule


def arrivals_of_event(past: Past, event_id: str, at_ms: int | None) -> Arrivals | None:
    """The arrivals of an event; None where a row that holds its id came, but was no event.

    Raises:
        BucketsError: nothing has come, or several events have the id.
    """
    arrivals = _events(past, event_id, at_ms)
    times_ms = sorted(set(arrivals.times_ms.tolist()))
    if len(times_ms) > 1:
        some = ", ".join(exact_time_text(each) for each in times_ms[:3])
        message = f"{len(times_ms)} events have the id {event_id!r}, at {some}; say which with --at"
        raise BucketsError(message)
    if len(arrivals):
        return arrivals
    if at_ms is not None or not past.faults_of(event_id):
        raise BucketsError(_not_found(past, event_id, at_ms))
    return None


def event_of_alert(past: Past, row: Row) -> Target:
    """The event of an alert, the very arrival at which it was raised.

    Raises:
        BucketsError: it is not in the archive.
    """
    arrivals = _events(past, row["event_id"], row["event_time"])
    if not len(arrivals):
        raise BucketsError(_not_found(past, row["event_id"], row["event_time"]))
    origins = [origin[::2] for origin in arrivals.origins]
    mine = (row["source"], row["position"])
    return Target(arrivals.take(np.array([origins.index(mine) if mine in origins else 0])), "events")


def alert_that_raised(past: Past, rule: Rule, target: Target, row: Row) -> Target:
    """The alert that raised one of a rule over alerts.

    Raises:
        BucketsError: it is not found.
    """
    event: dict[str, Any] = json.loads(row["event"]) if isinstance(row["event"], str) else row["event"]
    found = past.results.alert(event["alert_id"])
    alerts = None if found is None else as_arrivals(past, target.batch_id, [found[1]])
    if alerts is None or not len(alerts):
        message = (
            f"rule {rule.rule_id!r} counts alerts, and alert {event['alert_id']!r}, which raised this one, is not "
            "found; the table of alerts must be as the job wrote it"
        )
        raise BucketsError(message)
    return Target(alerts, "alerts")


def _events(past: Past, event_id: str, at_ms: int | None) -> Arrivals:
    schema = past.schema
    tests = [f"{quoted_column(schema.event_id)} = {sql_text(event_id)}"]
    tests += [] if at_ms is None else [f"{quoted_column(schema.event_time.field)} = {sql_moment(at_ms)}"]
    return past.events(schema, tests)


def _not_found(past: Past, event_id: str, at_ms: int | None) -> str:
    cuts, before = past.recorded.cuts, past.recorded.before
    when = "" if at_ms is None else f" at {exact_time_text(at_ms)}"
    since = f", which begins with batch {cuts[0].batch_id}" if before is not None else ""
    hint = "; it may have come before that" if before is not None else ""
    return f"event {event_id!r}{when} is not in the archive {past.archive.folder}{since}{hint}; check the id"
