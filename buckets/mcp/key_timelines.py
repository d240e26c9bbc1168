"""The tool that shows a key over time: its latest events, its alerts, and how near rules are to their limits."""

from typing import Annotated, Any

from pydantic import Field

from buckets.config.job import kept_results
from buckets.mcp.alerts import AlertRow, KeyFields, alert_rows, key_texts
from buckets.mcp.answer import Limit, ToolAnswer, time_text
from buckets.outputs.recorded_outputs import has_alerts
from buckets.questions.asked_job import AskedJob
from buckets.questions.key_events import KeyTest, explainer, key_events, nearness, opened_history, rules_of_key
from buckets.questions.listed_alerts import AlertFilter

_ALERTS, _RULES, _EVENTS_OF_WINDOW = 20, 12, 1


class KeyEvent(ToolAnswer):
    """An event of the key."""

    event_id: str
    time: str | None
    """When it happened, in ISO 8601 and UTC."""
    fields: dict[str, Any]
    """Its declared fields that have a value."""


class RuleNearness(ToolAnswer):
    """What a rule made of the latest event, and how near it was to its limit."""

    rule_id: str
    outcome: str
    """alert, shadow alert (on trial), held back, did not fire, or not evaluated."""
    words: str
    """The tests of its condition with the numbers in them, or why it was not evaluated."""
    window_start: str | None
    """Where its first window began, in ISO 8601 and UTC."""
    window_end: str | None


class TimelineAnswer(ToolAnswer):
    """A key over time."""

    key: dict[str, str]
    events: list[KeyEvent]
    """Its latest events in the archive, the latest first."""
    has_more: bool
    """Whether there are older events; read them with a larger limit."""
    alerts: list[AlertRow]
    """Its latest alerts of all kinds, newest first, at most 20."""
    has_more_alerts: bool
    rules: list[RuleNearness]
    """What rules that group by the fields of the key made of the latest event, at most 12."""
    has_more_rules: bool


class KeyTimelineTools:
    """Shows keys."""

    def __init__(self, asked: AskedJob) -> None:
        """Show keys of a job."""
        self._asked = asked

    def key_timeline(
        self,
        key: Annotated[KeyFields, Field(description="The fields of the key, as in {'payerId': 'p1'}.", min_length=1)],
        limit: Limit = 50,
    ) -> TimelineAnswer:
        """Show the latest events of a key, such as one payer, its alerts, and how near rules are to their limits.

        Needs `archive` in the configuration.
        """
        asked, texts = self._asked, key_texts(key)
        test = KeyTest.of(texts, asked.job.event_schema.attributes)
        history = opened_history(asked.job)
        events = key_events(history, test, limit + 1)
        rules = rules_of_key(asked.rules_in_force, test)
        near = nearness(explainer(history, _EVENTS_OF_WINDOW), events[0], rules[:_RULES]) if events else []
        folder, alerts = kept_results(asked.job), None
        if folder is not None and has_alerts(folder):
            alerts = alert_rows(asked, AlertFilter(kind="all", key_fields=texts), _ALERTS)
        return TimelineAnswer(
            key=texts,
            events=[
                KeyEvent(event_id=event["event_id"], time=time_text(event["time_ms"]), fields=event["fields"])
                for event in events[:limit]
            ],
            has_more=len(events) > limit,
            alerts=[] if alerts is None else alerts.alerts,
            has_more_alerts=alerts is not None and alerts.has_more,
            rules=list(map(_near, near)),
            has_more_rules=len(rules) > len(near) > 0,
        )


def _near(found: dict[str, Any]) -> RuleNearness:
    times = {"window_start": time_text(found["start_ms"]), "window_end": time_text(found["end_ms"])}
    return RuleNearness.model_validate(found | times)
