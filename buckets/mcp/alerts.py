"""The tool that lists alerts, by which an assistant finds the alert that somebody means.

The tools that explain what a rule made of an event.
The tool that shows a key over time.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from buckets.config.job import kept_results
from buckets.history.explain.explanation import Explanation, FeatureThen, as_json
from buckets.history.explain.words import headline
from buckets.mcp.answer import MOST_ROWS, FromTime, Limit, ToolAnswer, ToTime, plain_key, time_text
from buckets.outputs.recorded_outputs import has_alerts
from buckets.questions.key_events import (
    KeyTest,
    explained_alert,
    explainer,
    key_events,
    nearness,
    opened_history,
    rules_of_key,
)
from buckets.questions.listed_alerts import (
    AlertFilter,
    AskedJob,
    given_findings,
    list_alerts,
    place_text,
    read_place,
    value_text,
)
from buckets.questions.long_questions import named_moment_ms

Kind = Literal["in force", "on trial", "held back", "all"]
_KINDS = {"in force": "", "on trial": "trial", "held back": "held", "all": "all"}


def _check_value(value: Any) -> Any:
    if not isinstance(value, str | int | bool):
        message = "must be a text, a whole number, true or false"
        raise ValueError(message)
    return value


KeyFields = dict[str, Annotated[str | int | bool, BeforeValidator(_check_value)]]
"""The values of a key, by field."""


class AlertRow(ToolAnswer):
    """An alert."""

    alert_id: str
    event_time: str | None
    """When its event happened, in ISO 8601 and UTC."""
    event_id: str
    rule_id: str
    rule: str
    """The rule in English."""
    rule_version: int | None
    key: dict[str, Any]
    """The values of the fields that the rule groups by."""
    why: str
    """The value and the limit that it crossed, or the condition with the numbers in it."""
    kind: Literal["in force", "on trial", "held back"]
    severity: str | None
    tags: list[str]
    warm: bool | None
    """Whether nothing that its windows need could be missing."""
    certain: bool | None
    """Whether the limit is crossed for any value between the bounds of what is not exact."""
    verdict: str | None
    """What people have found: fraud, legitimate or unclear; null for nothing yet."""


class AlertsAnswer(ToolAnswer):
    """Alerts, newest first."""

    alerts: list[AlertRow]
    has_more: bool
    """Whether there may be older ones."""
    next_before: str
    """What to give as `before` to read on; empty where there are none."""
    rows_looked_at: int
    """How many rows were looked through; at most about a million in one call."""


class AlertTools:
    """Lists alerts."""

    def __init__(self, asked: AskedJob) -> None:
        """List those of a job."""
        self._asked = asked

    def alerts(
        self,
        kind: Annotated[Kind, Field(description="Which alerts.")] = "in force",
        rule_id: Annotated[str, Field(description="Only those of this rule; empty for all.")] = "",
        key: Annotated[
            KeyFields, Field(description="Only those whose key has these values, by field, as in {'payerId': 'p1'}.")
        ] = {},  # noqa: B006 - it becomes a default in a schema, and nobody changes it
        verdict: Annotated[
            Literal["", "fraud", "legitimate", "unclear", "none"],
            Field(description="Only those that people have found to be this; none for those without a verdict."),
        ] = "",
        from_time: FromTime = "",
        to_time: ToTime = "",
        limit: Limit = 20,
        before: Annotated[str, Field(description="next_before of an earlier answer, to read on.")] = "",
    ) -> AlertsAnswer:
        """List alerts, newest first, as `buckets alerts` does; of ids explain_alert says more."""
        wanted = AlertFilter(_KINDS[kind], rule_id, "", "", verdict, from_time, to_time, key_texts(key))
        return alert_rows(self._asked, wanted, limit, before)


def key_texts(key: KeyFields) -> dict[str, str]:
    """Return the values of a key as texts."""
    return {field: value_text(value) for field, value in key.items()}


def alert_rows(asked: AskedJob, wanted: AlertFilter, limit: int, before: str = "") -> AlertsAnswer:
    """Return alerts of a job, newest first."""
    listed = list_alerts(asked.results, wanted, read_place(before), given_findings(asked.job), limit)
    return AlertsAnswer(
        alerts=list(map(_row, listed.rows)),
        has_more=listed.after is not None,
        next_before=place_text(listed.after),
        rows_looked_at=listed.looked_at,
    )


def _row(row: dict[str, Any]) -> AlertRow:
    verdict = row["verdict"]
    return AlertRow.model_validate(
        row
        | {
            "event_time": time_text(row["event_time"]),
            "key": plain_key(row["key"]),
            "kind": row["kind"] or "in force",
            "tags": row["tags"] or [],
            "verdict": None if verdict is None else verdict.verdict,
        }
    )


MostEvents = Annotated[int, Field(ge=1, le=MOST_ROWS, description="How many events of each window at most.")]


class ToldRule(ToolAnswer):
    """The rule as it was when the event was scored."""

    rule_id: str
    version: int
    """Of the rule itself."""
    state: str
    """ACTIVE, SHADOW (on trial) or another one."""
    sentence: str
    """The rule in English."""
    ruleset_version: int
    """Of all rules together."""
    author: str
    """Who made this version of the rule."""
    reason: str
    """Why, in the words of the author."""
    made: str | None
    """When this version came into force, in ISO 8601 and UTC; null where it is not known."""
    written: dict[str, Any]
    """The rule as it was written."""
    lists: dict[str, int]
    """The lists that it looks into, each with the version that the batch saw."""


class ToldEvent(ToolAnswer):
    """The event as it arrived."""

    event_id: str
    time: str
    """When it happened, in ISO 8601 and UTC."""
    fields: dict[str, Any]
    """Its declared fields as they came; a time among them may be a number of ms since 1970 in UTC."""
    batch_id: int
    """The batch that scored it."""
    source: str
    """The file or topic from which it came."""
    position: int
    """Its line or offset there."""


class ConditionTest(ToolAnswer):
    """A comparison in the condition of the rule."""

    text: str
    """The reason as a sentence with its numbers."""
    truth: str
    """true, false, unknown or uncertain."""
    distance: str | None
    """How far its two sides lie apart, in the unit of what it compares; null of what is no comparison of numbers."""


class ToldReason(ToolAnswer):
    """Why there is no alert, or what would have prevented one."""

    code: str
    """A word for programs."""
    sentence: str


class WindowEvent(ToolAnswer):
    """An event in the window of a feature."""

    event_id: str
    time: str
    """When it happened, in ISO 8601 and UTC."""
    value: str | None
    """What counts of it, in the unit of the feature; null where only events are counted."""
    batch_id: int
    """The batch in which it arrived."""
    fate: str
    """What became of it."""
    counts: bool
    """Whether the value of the feature counts it."""
    note: str
    """What is to be said of it; empty for nothing."""
    so_far: str | None
    """The sum or count with it and all before it; null of other features."""


class ToldValue(ToolAnswer):
    """A value as the job has recorded it."""

    value: str | bool | None
    lower: str | bool | None
    """What it is at least, where it is not exact."""
    upper: str | bool | None
    """What it is at most, where it is not exact."""
    exact: bool
    warm: bool
    """Whether nothing that its window needs could be missing."""


class ToldComparison(ToolAnswer):
    """The value that is computed again, beside the recorded one."""

    equal: bool | None
    """null where nothing is recorded."""
    within: bool | None
    """Whether it lies within the recorded bounds; null where there are none."""
    sentence: str
    is_fault: bool
    """Whether they should be equal and are not, which is a fault of the job."""


class ToldFeature(ToolAnswer):
    """A feature of the rule over its window, computed again from the events that had arrived."""

    name: str
    phrase: str
    """What it computes, in English."""
    key: dict[str, Any]
    """The values of the fields that it groups by."""
    where: str
    """The filter of what it counts, in English; empty for all."""
    window: str
    """How long the window is, as it is written in the rule, such as 24h."""
    left: str
    """Whether the beginning of the window is in it: closed or open."""
    start: str
    """Where the window begins, in ISO 8601 and UTC."""
    end: str
    """Where it ends, which is in it."""
    reset: str | None
    """The time of the alert that has reset it, if one has: what is not later does not count."""
    count: int
    """How many events the value counts."""
    value: str | bool | None
    """Computed again; null where it has no value."""
    why_null: str | None
    unit: str | None
    """The field of the event whose unit the value has; null of counts."""
    recorded: ToldValue | None
    comparison: ToldComparison
    entries: list[WindowEvent]
    """Events with a time in the window, by time: the first and the last ones where there are more."""
    left_out: int
    """How many more events there are, between the first and the last ones in entries."""
    has_more: bool
    """Whether events are left out."""


class ExplanationAnswer(ToolAnswer):
    """What a rule made of an event, as `buckets explain CONF --json` says it."""

    headline: str
    """What came of the event, in one line."""
    outcome: str
    """alert, shadow alert (on trial), held back, did not fire, or not evaluated."""
    alert_id: str | None
    rule: ToldRule | None
    event: ToldEvent | None
    key: dict[str, Any]
    """The values of the fields that the rule groups by."""
    reasons: list[ToldReason]
    """Why it was not evaluated, or what held the alert back."""
    policy: list[ToldReason]
    """What the policy of the rule says of this event; empty where it has none."""
    warmth: str
    """Since when the windows of the rule are complete, or when they will be."""
    warm: bool | None
    """Whether they were complete at this event; null where it was not evaluated."""
    tests: list[ConditionTest]
    """The comparisons of the condition, in their order."""
    features: list[ToldFeature]
    is_faulty: bool
    """Whether a value that should be equal to the recorded one is not."""
    notes: list[str]


class ExplanationTools:
    """Explains alerts, and events without one."""

    def __init__(self, asked: AskedJob) -> None:
        """Explain what a job did."""
        self._asked = asked

    def explain_alert(
        self,
        alert_id: Annotated[str, Field(description="The id of the alert, or the beginning of it.", min_length=1)],
        most_events: MostEvents = 20,
    ) -> ExplanationAnswer:
        """Explain why an alert was raised.

        Says the rule as it was, the events in each window as they had arrived by then, each value computed again from
        them beside the recorded one, and the distance of each test to its limit. Needs `archive` in the configuration.
        """
        return _answer(explained_alert(opened_history(self._asked.job), alert_id, most_events))

    def why_not(
        self,
        event_id: Annotated[str, Field(description="The id of the event.", min_length=1)],
        rule_id: Annotated[str, Field(description="The rule to explain at that event.", min_length=1)],
        at: Annotated[
            str, Field(description="When the event happened, in ISO 8601 and UTC, where several events have its id.")
        ] = "",
        most_events: MostEvents = 20,
    ) -> ExplanationAnswer:
        """Explain why a rule raised no alert at an event, or what it made of it otherwise.

        Says whether the rule was evaluated, what held an alert back, and how near each test was to its limit.
        """
        at_ms = named_moment_ms("at", at)
        history = opened_history(self._asked.job)
        return _answer(explainer(history, most_events).event(event_id, rule_id, at_ms))


def _answer(explanation: Explanation) -> ExplanationAnswer:
    tests = () if explanation.condition is None else explanation.condition.tests()
    return ExplanationAnswer.model_validate(
        as_json(explanation)
        | {
            "headline": headline(explanation),
            "tests": as_json(tests),
            "features": list(map(_feature, explanation.features)),
            "is_faulty": explanation.is_faulty,
        }
    )


def _feature(feature: FeatureThen) -> dict[str, Any]:
    shown: dict[str, Any] = as_json(feature)
    return shown | {"has_more": feature.left_out > 0}


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
