"""The page of a key: its latest events over time, the windows of rules at the last of them, and how near they were."""

from typing import Any

from buckets.archive.archive import ARRIVAL, FAULT
from buckets.archive.history import History
from buckets.config.job import kept_results
from buckets.console.pages.alert import explainer, opened_history
from buckets.console.pages.alert_rows import AlertFilter, given_findings, list_alerts
from buckets.console.pages.drawings import timeline
from buckets.console.site import Site
from buckets.console.view import Asked, View
from buckets.delta.query import in_ms, is_in, quoted_column
from buckets.errors import BucketsError
from buckets.history.explain.explanation import Explanation
from buckets.outputs.rule_alerts import has_alerts

_EVENTS, _ALERTS, _RULES = 100, 20, 12


def page(asked: Asked) -> View:
    """Ask for a key, or show it with its alerts; what is read of the archive comes later."""
    site, field, value = asked.site, asked.named("field"), asked.named("value")
    fields = list(site.job.event_schema.attributes)
    folder = kept_results(site.job)
    alerts = []
    if value:
        _test(site, field, value)
        if folder is not None and has_alerts(folder):
            wanted = AlertFilter(kind="all", key=value)
            alerts = list_alerts(folder, wanted, None, given_findings(site.job), _ALERTS).rows
    is_archived = site.job.settings.archive is not None
    values = {"field": field, "value": value, "fields": fields, "alerts": alerts, "is_archived": is_archived}
    return View("key.html", values)


def events(asked: Asked) -> View:
    """Show the latest events of a key, and what rules made of the last one, as a part of the page."""
    site, field, value = asked.site, asked.named("field"), asked.named("value")
    history = opened_history(site)
    rows = _events(site, history, _test(site, field, value))
    near = _near(site, history, field, rows[0]) if rows else []
    measure = next(iter(site.job.event_schema.measures), None)
    shown = [{"time_ms": row["time_ms"], "value": float((row[measure] if measure else None) or 0)} for row in rows]
    windows = [(each["rule_id"], each["start_ms"], each["end_ms"]) for each in near if each["start_ms"] is not None]
    return View(
        "key-events.html",
        {"rows": rows, "near": near, "measure": measure, "chart": timeline(shown, windows) if rows else None},
    )


def _test(site: Site, field: str, value: str) -> str:
    """Return the test in SQL that an event is of a key.

    Raises:
        BucketsError: events have no such field, or it has no such values.
    """
    kinds = site.job.event_schema.attributes
    if field not in kinds:
        message = f"field: events have no attribute {field!r}; there are {', '.join(kinds)}"
        raise BucketsError(message)
    if kinds[field] == "long" and not (value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 20):
        message = f"value: {field} is a whole number, and {value!r} is none"
        raise BucketsError(message)
    if kinds[field] == "boolean":
        if value not in ("true", "false"):
            message = f"value: {field} is true or false, not {value!r}"
            raise BucketsError(message)
        return f"{quoted_column(field)} = {value}"
    return is_in(field, [int(value) if kinds[field] == "long" else value])


def _events(site: Site, history: History, test: str) -> list[dict[str, Any]]:
    """Return the latest events that pass a test, the latest first."""
    schema = site.job.event_schema
    if not history.archive.exists():
        return []
    time = quoted_column(schema.event_time.field)
    where = f"{test} and {quoted_column(FAULT)} is null"
    sql = f"select * from archive where {where} order by {time} desc, {quoted_column(ARRIVAL)} desc limit {_EVENTS}"
    names = [*schema.attributes, *schema.measures]
    return [
        {
            "event_id": str(row[schema.event_id]),
            "time_ms": row[schema.event_time.field],
            **{name: row.get(name) for name in schema.measures},
            "fields": {name: row[name] for name in names if row.get(name) is not None},
        }
        for row in in_ms(history.archive.query(sql)).to_pylist()
    ]


def _near(site: Site, history: History, field: str, event: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each rule that groups by a field made of an event."""
    rule_set = site.rule_set
    rules = [] if rule_set is None else [rule for rule in rule_set.rules if rule.is_in_force and rule.on == "events"]
    chosen = [rule for rule in rules if field in rule.group_by][:_RULES]
    explained = (
        (rule, explainer(site, history).event(event["event_id"], rule.rule_id, event["time_ms"])) for rule in chosen
    )
    return [{"rule_id": rule.rule_id, **_nearness(found)} for rule, found in explained]


def _nearness(found: Explanation) -> dict[str, Any]:
    feature = next(iter(found.features), None)
    tests = () if found.condition is None else found.condition.tests()
    return {
        "outcome": found.outcome,
        "words": "; ".join(test.text for test in tests) or "; ".join(reason.sentence for reason in found.reasons),
        "start_ms": None if feature is None else feature.start_ms,
        "end_ms": None if feature is None else feature.end_ms,
    }
