"""An explanation: what is known of a rule at an event, and whether it can be computed again from what arrived.

A value that is computed again, beside the recorded one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from typing import Any, Literal

from buckets.aggregates.plain import PlainValue
from buckets.moment import iso_text
from buckets.numbers.fixed_point import readable

RuleOutcome = Literal["alert", "shadow alert", "held back", "did not fire", "not evaluated"]
Truth = Literal["true", "false", "unknown", "uncertain"]


@dataclass(frozen=True)
class RuleThen:
    """A rule as it was.

    Attributes:
        rule_id: its id.
        version: its own version.
        state: ACTIVE, SHADOW and so on.
        sentence: it in English.
        written: it as it was written.
        ruleset_version: the version of all rules that scored the event.
        author: who made this version of it.
        reason: why.
        made_ms: when it came into force.
        lists: by name, the versions of the lists that the batch saw and the rule looks into.
    """

    rule_id: str
    version: int
    state: str
    sentence: str
    written: Mapping[str, Any]
    ruleset_version: int
    author: str
    reason: str
    made_ms: int | None
    lists: Mapping[str, int]


@dataclass(frozen=True)
class EventThen:
    """An event as it came.

    Attributes:
        event_id: its id.
        time_ms: when it happened.
        fields: its declared fields.
        batch_id: the batch that scored it.
        source: where it came from.
        position: its line or offset there.
        ingested_ms: when the source took it in, where it says so.
        came: how often its id and time have arrived.
    """

    event_id: str
    time_ms: int
    fields: Mapping[str, Any]
    batch_id: int
    source: str
    position: int
    ingested_ms: int | None
    came: int = 1


@dataclass(frozen=True)
class WindowArrival:
    """Something that arrived with a time inside a window.

    Attributes:
        event_id: its id; of an alert the alert's.
        time_ms: when it happened.
        value: what counts of it, as it is shown; None where only events are counted.
        batch_id: the batch in which it arrived.
        source: where it came from.
        position: its line or offset there.
        ingested_ms: when the source took it in, where it says so.
        fate: what became of it, as `event_outcome` names it.
        counts: whether the value counts it.
        note: what is to be said of it; empty for nothing.
        so_far: of what counts for a sum or a count, what that comes to with it and all before it; None of all else.
    """

    event_id: str
    time_ms: int
    value: str | None
    batch_id: int
    source: str
    position: int
    ingested_ms: int | None
    fate: str
    counts: bool
    note: str
    so_far: str | None = None


@dataclass(frozen=True)
class RecordedValue:
    """A value as the job has it.

    Attributes:
        value: as it is written; None where there is none.
        lower: what it is at least, where it is not exact.
        upper: what it is at most, where it is not exact.
        exact: whether it is known to the last digit.
        warm: whether nothing that its window needs could be missing.
    """

    value: str | bool | None
    lower: str | bool | None
    upper: str | bool | None
    exact: bool
    warm: bool


@dataclass(frozen=True)
class ValueComparison:
    """A value that is computed again, beside the recorded one.

    Attributes:
        equal: whether they are equal to the last digit; None where nothing is recorded.
        within: whether it lies within the recorded bounds; None where there are none.
        sentence: the same in words.
        is_fault: whether they should be equal and are not.
    """

    equal: bool | None
    within: bool | None
    sentence: str
    is_fault: bool = False


@dataclass(frozen=True)
class FeatureThen:
    """A feature, or the one aggregate of a rule, over its window.

    Attributes:
        name: of the feature; `value` of a rule of one aggregate.
        phrase: what it computes, in English.
        key: the values of the fields that it groups by.
        where: the filter of what it counts, in English; empty for all.
        window: how long its window is, as it is written.
        left: whether the beginning is in it: closed or open.
        start_ms: where the window begins.
        end_ms: where it ends, which is in it.
        reset_ms: the alert that has reset it, if one has: what is not later does not count.
        entries: what arrived with a time in the window, by time.
        left_out: how many more there are, between the first and the last that are here.
        over: the event from which on the sum or the count of a rule is over its limit; None where it is not.
        fates: how many of each fate there are.
        count: how many events the value counts.
        value: computed again; None where it is NULL.
        why_null: why it is.
        recorded: as the job has it; None where it is not known.
        comparison: of both.
        unit: of the value, the field.
    """

    name: str
    phrase: str
    key: Mapping[str, Any]
    where: str
    window: str
    left: str
    start_ms: int
    end_ms: int
    reset_ms: int | None
    entries: tuple[WindowArrival, ...]
    left_out: int
    over: WindowArrival | None
    fates: Mapping[str, int]
    count: int
    value: Decimal | bool | None
    why_null: str | None
    recorded: RecordedValue | None
    comparison: ValueComparison
    unit: str | None


@dataclass(frozen=True)
class ConditionPart:
    """A part of a condition.

    Attributes:
        kind: a test, or what joins several.
        text: it in words, with the numbers in it.
        truth: whether it holds.
        distance: how far its two sides lie apart; None of what is no comparison of numbers.
        parts: those that it joins.
    """

    kind: Literal["test", "all", "any", "not"]
    text: str
    truth: Truth
    distance: Decimal | None = None
    parts: tuple["ConditionPart", ...] = ()

    def tests(self) -> tuple["ConditionPart", ...]:
        """Return the tests in it, in their order."""
        return (self,) if self.kind == "test" else tuple(test for part in self.parts for test in part.tests())


@dataclass(frozen=True)
class Reason:
    """Why there is no alert, or what would have prevented one.

    Attributes:
        code: a word for machines.
        sentence: for people.
    """

    code: str
    sentence: str


@dataclass(frozen=True)
class Explanation:
    """What is known of a rule at an event.

    Attributes:
        outcome: what came of it.
        alert_id: of the alert, where there is one.
        rule: the rule as it was; None where there was none.
        event: the event as it came; None where it did not.
        key: the values of the fields that the rule groups by.
        reasons: why it was not evaluated, or what held the alert back.
        policy: what its policy says of this event; empty where it has none.
        warmth: since when its windows are complete, or when they will be.
        warm: whether they were; None where it was not evaluated.
        condition: what it asks, with the distance to the limit; None where it was not evaluated.
        features: its features over their windows.
        origin: where what is recorded of it was found.
        notes: what else is to be said.
    """

    outcome: RuleOutcome
    alert_id: str | None = None
    rule: RuleThen | None = None
    event: EventThen | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    policy: tuple[Reason, ...] = ()
    warmth: str = ""
    warm: bool | None = None
    condition: ConditionPart | None = None
    features: tuple[FeatureThen, ...] = ()
    origin: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_faulty(self) -> bool:
        """Whether a value that should be equal is not."""
        return any(feature.comparison.is_fault for feature in self.features)


def as_json(value: Any) -> Any:
    """Return an explanation as JSON: times in ISO 8601, decimals as text, so that no digit is lost."""
    if is_dataclass(value) and not isinstance(value, type):
        return dict(_as_json(part.name, getattr(value, part.name)) for part in fields(value))
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return format(value, "f") if isinstance(value, Decimal) else value


def _as_json(name: str, value: Any) -> tuple[str, Any]:
    """Return a field by its name in JSON; all that are in ms are times."""
    if not name.endswith("_ms"):
        return name, as_json(value)
    return name.removesuffix("_ms"), None if value is None else iso_text(value)


def compare(plain: PlainValue, recorded: RecordedValue | None) -> ValueComparison:
    """Compare a value that is computed again with the recorded one."""
    if recorded is None:
        return ValueComparison(None, None, "no value is recorded to compare it with")
    again = plain.shown
    equal = _same(again, recorded.value)
    words = _words(again)
    if equal:
        return ValueComparison(
            True, None if recorded.exact else True, f"computed again: {words}, equal to the last digit"
        )
    if recorded.exact and recorded.warm:
        sentence = f"computed again: {words}, and {_words(recorded.value)} is recorded: they differ"
        return ValueComparison(False, None, sentence, is_fault=True)
    if not recorded.exact:
        within = _is_within(again, recorded)
        bounds = f"{_words(recorded.lower)} and {_words(recorded.upper)}"
        lies = "within the recorded bounds" if within else "outside the recorded bounds"
        sentence = f"computed again: {words}, {lies} {bounds} (of {_words(recorded.value)})"
        return ValueComparison(False, within, sentence, is_fault=recorded.warm and not within)
    sentence = (
        f"computed again from all that arrived: {words}; {_words(recorded.value)} is recorded, whose window was not "
        "complete"
    )
    return ValueComparison(False, None, sentence)


def _same(again: Decimal | bool | None, recorded: str | bool | None) -> bool:
    if again is None or recorded is None or isinstance(again, bool) or isinstance(recorded, bool):
        return again is recorded or (again == recorded and isinstance(again, bool) == isinstance(recorded, bool))
    return again == Decimal(recorded)


def _is_within(again: Decimal | bool | None, recorded: RecordedValue) -> bool:
    if again is None:
        return True
    if isinstance(again, bool):
        return again in (recorded.lower, recorded.upper)
    return Decimal(str(recorded.lower)) <= again <= Decimal(str(recorded.upper))


def _words(value: Decimal | str | bool | None) -> str:
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return readable(value)
