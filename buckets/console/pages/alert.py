"""The page of an alert: what is recorded of it at once, and the explanation when it has been computed."""

from typing import Any

from buckets.console.view import Asked, Site, View
from buckets.errors import BucketsError
from buckets.history.explain.explanation import Explanation
from buckets.history.explain.maker import Explainer
from buckets.history.explain.words import explained
from buckets.moment import ANY_TIME, TimeRange
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS, Selection, full_alert_id, output_rows
from buckets.printable import quoted
from buckets.questions.key_events import explainer, opened_history
from buckets.questions.listed_alerts import AlertFilter, given_findings, list_alerts, value_text, why
from buckets.questions.long_questions import named_moment_ms
from buckets.verdicts.verdict import FINDINGS

SHOWN_EVENTS = 1_000
_OTHERS, _LOOKED_AT = 10, 100_000
"""How many other alerts of a key are shown, and among how many of the newest they are looked for."""


def page(asked: Asked) -> View:
    """Show an alert; by its id, or by its rule and event.

    Raises:
        BucketsError: there is none.
    """
    site = asked.site
    row = _recorded(site, asked)
    given = given_findings(site.job)
    keys = list((row["key"] or {}).values())
    wanted = AlertFilter(kind="all", key=value_text(keys[0]) if len(keys) == 1 else "")
    others = [] if len(keys) != 1 else list_alerts(site.results, wanted, None, given, _OTHERS + 1, _LOOKED_AT).rows
    return View(
        "alert.html",
        {
            "row": row | {"why": why(row)},
            "key": row["key"] or {},
            "verdict": given.of(row["alert_id"], row["event_id"]),
            "findings": FINDINGS,
            "others": [other for other in others if other["alert_id"] != row["alert_id"]][:_OTHERS],
            "others_key": wanted.key,
            "is_archived": site.job.settings.archive is not None,
            "rule_ids": [rule.rule_id for rule in site.rules_in_force],
        },
    )


def explanation(asked: Asked) -> View:
    """Explain an alert, as a part of its page."""
    explained = _explainer(asked.site).alert(asked.named("id"))
    return View("explanation.html", _explained(explained))


def why_page(asked: Asked) -> View:
    """Explain what a rule made of an event, also where that is nothing.

    Raises:
        BucketsError: no event or rule is named, or the event is not in the archive.
    """
    event, rule = asked.named("event"), asked.named("rule")
    values: dict[str, Any] = {
        "event_id": event,
        "rule_id": rule,
        "rule_ids": [each.rule_id for each in asked.site.rules_in_force],
    }
    if not event or not rule:
        return View("why.html", values | {"explained": False})
    at_ms = named_moment_ms("at", asked.named("at"))
    explained = _explainer(asked.site).event(event, rule, at_ms)
    return View("why.html", values | {"explained": True} | _explained(explained))


def _explained(found: Explanation) -> dict[str, Any]:
    return explained(found) | {"is_faulty": found.is_faulty, "has_features": bool(found.features)}


def _recorded(site: Site, asked: Asked) -> dict[str, Any]:
    """Return the row of an alert, with the output that it is in."""
    alert_id = asked.named("id")
    times = ANY_TIME
    if alert_id and asked.named("at"):
        # Lists say when it was, so that files of other times need not be read.
        at_ms = named_moment_ms("at", asked.named("at"))
        assert at_ms is not None
        wanted, named, times = {"alert_id": [alert_id]}, f"alert {quoted(alert_id)}", TimeRange(at_ms, at_ms + 1)
    elif alert_id:
        wanted, named = {"alert_id": [full_alert_id(site.results, alert_id)]}, f"alert {quoted(alert_id)}"
    else:
        wanted = {"rule_id": [asked.named("rule")], "event_id": [asked.named("event")]}
        named = f"alert of rule {quoted(asked.named('rule'))} at event {quoted(asked.named('event'))}"
    for output in ALERT_OUTPUTS:
        for row in output_rows(site.results, output, selection=Selection(wanted, times)):
            empty = dict.fromkeys(("terms", "condition", "severity", "tags", "score", "held_back", "held_by"))
            return empty | row | {"output": output}
    message = f"there is no {named} in {site.results}; it may not be written yet: look again in a moment"
    raise BucketsError(message)


def _explainer(site: Site) -> Explainer:
    return explainer(opened_history(site.job), SHOWN_EVENTS)
