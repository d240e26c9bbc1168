"""The page of a key: its latest events over time, the windows of rules at the last of them, and how near they were."""

from buckets.config.job import kept_results
from buckets.console.pages.alert import SHOWN_EVENTS
from buckets.console.pages.now import timeline
from buckets.console.view import Asked, View
from buckets.outputs.recorded_outputs import has_alerts
from buckets.questions.key_events import KeyTest, explainer, key_events, nearness, opened_history, rules_of_key
from buckets.questions.listed_alerts import AlertFilter, given_findings, list_alerts

_EVENTS, _ALERTS, _RULES = 100, 20, 12


def page(asked: Asked) -> View:
    """Ask for a key, or show it with its alerts; what is read of the archive comes later."""
    site, field, value = asked.site, asked.named("field"), asked.named("value")
    fields = list(site.job.event_schema.attributes)
    folder = kept_results(site.job)
    alerts = []
    if value:
        KeyTest.of({field: value}, site.job.event_schema.attributes)
        if folder is not None and has_alerts(folder):
            wanted = AlertFilter(kind="all", key=value)
            alerts = list_alerts(folder, wanted, None, given_findings(site.job), _ALERTS).rows
    is_archived = site.job.settings.archive is not None
    values = {"field": field, "value": value, "fields": fields, "alerts": alerts, "is_archived": is_archived}
    return View("key.html", values)


def events(asked: Asked) -> View:
    """Show the latest events of a key, and what rules made of the last one, as a part of the page."""
    site, field, value = asked.site, asked.named("field"), asked.named("value")
    test = KeyTest.of({field: value}, site.job.event_schema.attributes)
    history = opened_history(site.job)
    rows = key_events(history, test, _EVENTS)
    rules = rules_of_key(site.rules_in_force, test)[:_RULES]
    near = nearness(explainer(history, SHOWN_EVENTS), rows[0], rules) if rows else []
    measure = next(iter(site.job.event_schema.measures), None)
    shown = [{"time_ms": row["time_ms"], "value": float((row[measure] if measure else None) or 0)} for row in rows]
    windows = [(each["rule_id"], each["start_ms"], each["end_ms"]) for each in near if each["start_ms"] is not None]
    return View(
        "key-events.html",
        {"rows": rows, "near": near, "measure": measure, "chart": timeline(shown, windows) if rows else None},
    )
