"""The tools that explain what a rule made of an event: why there is an alert, or why there is none."""

from typing import Annotated, Any

from pydantic import Field

from buckets.history.explain.explanation import Explanation, FeatureThen, as_json
from buckets.history.explain.words import headline
from buckets.mcp.answer import MOST_ROWS, ToolAnswer
from buckets.questions.asked_job import AskedJob
from buckets.questions.key_events import explained_alert, explainer, opened_history
from buckets.questions.long_questions import named_moment_ms

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
    """It in words, with the numbers in it."""
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
