"""An explanation: all that is known of a rule at an event, and whether recomputed values match the recorded ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from typing import Any, Literal

from buckets.aggregates.plain import PlainValue
from buckets.expressions.certainty import Value
from buckets.expressions.number_functions import Interval
from buckets.moment import iso_text
from buckets.numbers.fixed_point import readable
from buckets.printable import elements_shown, one_line

RuleOutcome = Literal["alert", "shadow alert", "held back", "did not fire", "not evaluated"]
Truth = Literal["true", "false", "unknown", "uncertain"]


@dataclass(frozen=True)
class RuleThen:
    """A rule at the time."""

    rule_id: str  # its id
    version: int  # its own version
    state: str  # ACTIVE, SHADOW and so on
    sentence: str  # the rule in English
    written: Mapping[str, Any]  # the rule as written
    ruleset_version: int  # the version of all rules that scored the event
    author: str  # who made this version of it
    reason: str  # why
    made_ms: int | None  # when it came into force
    lists: Mapping[str, int]  # by name, the versions of the lists that the batch saw and the rule looks into


@dataclass(frozen=True)
class EventThen:
    """An event as it arrived."""

    event_id: str  # its id
    time_ms: int  # when it happened
    fields: Mapping[str, Any]  # its declared fields
    batch_id: int  # the batch that scored it
    source: str  # where it came from
    position: int  # its line or offset there
    ingested_ms: int | None  # when the source took it in, where it says so
    came: int = 1  # how often its id and time have arrived


@dataclass(frozen=True)
class WindowArrival:
    """An arrival with a time inside a window."""

    event_id: str  # its id; of an alert the alert's
    time_ms: int  # when it happened
    value: str | None  # the value that counts, as text; None where only events are counted
    batch_id: int  # the batch in which it arrived
    source: str  # where it came from
    position: int  # its line or offset there
    ingested_ms: int | None  # when the source took it in, where it says so
    fate: str  # what became of it, as `Fate` names it
    counts: bool  # whether the value counts it
    note: str  # a remark about it; empty for none
    # of a sum or a count, its value up to and including this event; None for other aggregates and what does not count
    so_far: str | None = None


@dataclass(frozen=True)
class StepThen:
    """A step of a sequence, or an event that must not come between its steps."""

    name: str  # as the rule has it
    event_id: str | None  # of the latest event that can be the step; None without one
    time_ms: int | None  # when that happened
    came_between: bool = False  # whether it is no step, and must not have come


@dataclass(frozen=True)
class RecordedValue:
    """A value as recorded by the job."""

    value: str | bool | None  # as text; None for NULL
    lower: str | bool | None  # what it is at least, where it is not exact
    upper: str | bool | None  # what it is at most, where it is not exact
    exact: bool  # whether it is known to the last digit
    warm: bool  # whether nothing that its window needs could be missing
    is_text: bool = False  # whether it is a text, and no number

    @property
    def known(self) -> Decimal | str | bool | None:
        """The value, converted if it is a number."""
        return self.value if self.is_text else _number(self.value)


@dataclass(frozen=True)
class ValueComparison:
    """A recomputed value compared with the recorded one."""

    equal: bool | None  # whether they are equal to the last digit; None where nothing is recorded
    within: bool | None  # whether it lies within the recorded bounds; None where there are none
    sentence: str  # the same in words
    is_fault: bool = False  # whether they should be equal and are not


@dataclass(frozen=True, kw_only=True)
class FeatureThen:
    """A feature, or the only aggregate of a rule, over its window."""

    name: str  # of the feature; `value` of a rule of one aggregate
    phrase: str  # what it computes, in English
    key: Mapping[str, Any]  # the values of the fields that it groups by
    where: str  # the filter of what it counts, in English; empty for all
    window: str  # the length of its window, as written in the rule
    left: str  # whether the beginning is in it: closed or open
    start_ms: int  # where the window begins
    end_ms: int  # where it ends, which is in it
    reset_ms: int | None = None  # the latest alert that reset it, if any: only later events count
    entries: tuple[WindowArrival, ...] = ()  # what arrived with a time in the window, by time
    left_out: int = 0  # how many more there are, between the first and the last that are here
    steps: tuple[StepThen, ...] = ()  # of a sequence its steps, and after these what must not have come
    # the event from which the sum or the count of a rule exceeds its limit; None if it does not
    over: WindowArrival | None = None
    fates: Mapping[str, int] = field(default_factory=dict)  # how many of each fate there are
    count: int = 0  # how many events the value counts
    value: Decimal | bool | str | None  # computed again; None where it is NULL
    why_null: str | None  # why it is
    recorded: RecordedValue | None  # as the job has it; None where it is not known
    comparison: ValueComparison  # of both
    unit: str | None  # of the value, the field


@dataclass(frozen=True)
class ConditionPart:
    """A part of a condition."""

    kind: Literal["test", "all", "any", "not"]  # a test, or what joins several
    text: str  # the reason as a sentence with its numbers
    truth: Truth  # whether it holds
    distance: Decimal | None = None  # how far its two sides lie apart; None of what is no comparison of numbers
    parts: tuple["ConditionPart", ...] = ()  # those that it joins

    def tests(self) -> tuple["ConditionPart", ...]:
        """Return its tests in order."""
        return (self,) if self.kind == "test" else tuple(test for part in self.parts for test in part.tests())


@dataclass(frozen=True)
class Reason:
    """A reason why there is no alert, or why one would have been held back."""

    code: str  # a word for machines
    sentence: str  # for people


@dataclass(frozen=True)
class Explanation:
    """A rule at an event: the outcome, and what led to it."""

    outcome: RuleOutcome  # what came of it
    alert_id: str | None = None  # of the alert, where there is one
    rule: RuleThen | None = None  # the rule as it was; None where there was none
    event: EventThen | None = None  # the event as it came; None where it did not
    key: Mapping[str, Any] = field(default_factory=dict)  # the values of the fields that the rule groups by
    reasons: tuple[Reason, ...] = ()  # why it was not evaluated, or what held the alert back
    policy: tuple[Reason, ...] = ()  # what its policies say of this event; empty without any
    warmth: str = ""  # since when its windows are complete, or when they will be
    warm: bool | None = None  # whether they were; None where it was not evaluated
    # its condition, with distances to limits; None if it was not evaluated
    condition: ConditionPart | None = None
    features: tuple[FeatureThen, ...] = ()  # its features over their windows
    origin: str = ""  # where what is recorded of it was found
    notes: tuple[str, ...] = ()  # further remarks

    @property
    def is_faulty(self) -> bool:
        """Whether a value differs that should be equal."""
        return any(feature.comparison.is_fault for feature in self.features)


def as_json(value: Any) -> Any:
    """Return an explanation as JSON: times in ISO 8601, decimals as text, to keep all digits."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {part.name: getattr(value, part.name) for part in fields(value)}
        return {
            name.removesuffix("_ms"): iso_text(inner) if name.endswith("_ms") and inner is not None else as_json(inner)
            for name, inner in named.items()
        }
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return format(value, "f") if isinstance(value, Decimal) else value


def shown(value: Value) -> str:
    """Return a value for people."""
    if value is None:
        return "no value"
    if isinstance(value, Interval):
        return f"{readable(value.lower)} to {readable(value.upper)}"
    if isinstance(value, list):
        return elements_shown([shown(element) for element in value])
    if isinstance(value, frozenset):
        return "yes or no" if len(value) > 1 else shown(next(iter(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return readable(Decimal(value)) if isinstance(value, Decimal | int) else one_line(value)


def compare(plain: PlainValue, recorded: RecordedValue | None) -> ValueComparison:
    """Compare a recomputed value with the recorded one."""
    if recorded is None:
        return ValueComparison(None, None, "no value is recorded to compare it with")
    again, words, known = plain.shown, shown(plain.shown), shown(recorded.known)
    if again == recorded.known:
        within = None if recorded.exact else True
        return ValueComparison(True, within, f"computed again: {words}, equal to the last digit")
    if recorded.exact and recorded.warm:
        sentence = f"computed again: {words}, and {known} is recorded: they differ"
        return ValueComparison(False, None, sentence, is_fault=True)
    if not recorded.exact and recorded.is_text:
        sentence = f"computed again: {words}; {known} is recorded, whose events are not kept one by one"
        return ValueComparison(False, None, sentence)
    if not recorded.exact:
        within = _is_within(again, recorded)
        bounds = f"{shown(_number(recorded.lower))} and {shown(_number(recorded.upper))}"
        lies = "within the recorded bounds" if within else "outside the recorded bounds"
        sentence = f"computed again: {words}, {lies} {bounds} (of {known})"
        return ValueComparison(False, within, sentence, is_fault=recorded.warm and not within)
    sentence = f"computed again from all that arrived: {words}; {known} is recorded, whose window was not complete"
    return ValueComparison(False, None, sentence)


def _is_within(again: Decimal | bool | str | None, recorded: RecordedValue) -> bool:
    if again is None:
        return True
    if isinstance(again, bool):
        return again in (recorded.lower, recorded.upper)
    return Decimal(str(recorded.lower)) <= Decimal(again) <= Decimal(str(recorded.upper))


def _number(written: str | bool | None) -> Decimal | bool | None:
    return Decimal(written) if isinstance(written, str) else written
