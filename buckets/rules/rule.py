"""A rule: what is aggregated over which window of which events, and the limit that makes it an alert."""

from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator, model_validator

from buckets.duration import DurationMs, format_duration
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS, parse_decimal
from buckets.printable import blank_letter, short_line, unseen_character
from buckets.rules.filter import FilterField, canonical_filter, describe_filter, filter_fields

Function = Literal["sum", "count", "avg", "min", "max"]
Operator = Literal[">", ">=", "<", "<=", "=", "!="]
State = Literal["ACTIVE", "SHADOW", "PAUSE", "DELETE"]

_PHRASES: dict[Function, str] = {
    "sum": "the sum of",
    "count": "the number",
    "avg": "the average",
    "min": "the smallest",
    "max": "the largest",
}
"""What a function is called in a sentence, before the name of its measure."""
_COMPARISONS = {
    ">": "is above",
    ">=": "is at least",
    "<": "is below",
    "<=": "is at most",
    "=": "is exactly",
    "!=": "is not",
}
_LONGEST_LIMIT_DIGITS = 38
LARGEST_VERSION = 2**31 - 1
"""Highest version of a rule: outputs keep it in 32 bits."""


class Aggregate(BaseModel):
    """A function over a measure; a count needs no measure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: Function
    measure: str | None = None

    @model_validator(mode="after")
    def _measure_where_needed(self) -> "Aggregate":
        if self.function != "count" and self.measure is None:
            message = f"{self.function} needs a measure, as in {{function: {self.function}, measure: paymentAmount}}"
            raise ValueError(message)
        return self


class Window(BaseModel):
    """How far a window reaches back from its event, and whether it holds an event exactly that old."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    length_ms: DurationMs = Field(alias="length")
    left: Literal["closed", "open"] = "closed"

    @field_validator("length_ms", mode="after")
    @classmethod
    def _longer_than_nothing(cls, value: int) -> int:
        if value <= 0:
            message = "a window is at least 1ms long"
            raise ValueError(message)
        return value

    @field_serializer("length_ms")
    def _as_written(self, value: int) -> str:
        return format_duration(value)


class Limit(BaseModel):
    """The comparison that makes a value an alert."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operator: Operator
    value: Decimal

    @field_validator("value", mode="before")
    @classmethod
    def _exact(cls, value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            message = f"{value!r} is not a decimal number"
            raise ValueError(message)
        number = parse_decimal(str(value))
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        if max(number.adjusted() + 1, 0) + max(-exponent, 0) > _LONGEST_LIMIT_DIGITS:
            message = f"{value} has more than {_LONGEST_LIMIT_DIGITS} digits"
            raise ValueError(message)
        return Decimal(format(number, "f"))

    @field_serializer("value")
    def _as_written(self, value: Decimal) -> str:
        return format(value, "f")


class Rule(BaseModel):
    """One rule, as written in `rules.yaml` and as carried to the tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule_id: str = Field(min_length=1, max_length=200)
    version: int = Field(default=1, ge=1)
    state: State = "ACTIVE"
    description: str = ""
    group_by: tuple[str, ...]
    where: FilterField = ()
    aggregate: Aggregate
    window: Window
    limit: Limit

    @field_validator("rule_id", mode="before")
    @classmethod
    def _id_may_be_a_number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("group_by")
    @classmethod
    def _fields_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            message = f"a field is named twice in {list(value)}"
            raise ValueError(message)
        return value

    @property
    def is_evaluated(self) -> bool:
        """Whether the rule is evaluated for events; a paused rule only keeps its events."""
        return self.state in ("ACTIVE", "SHADOW")

    @property
    def measure(self) -> str | None:
        """The measure that is aggregated; None for a count, which looks at no values."""
        return None if self.aggregate.function == "count" else self.aggregate.measure

    def sentence(self) -> str:
        """The rule in English."""
        by = " and ".join(f"the same {field}" for field in self.group_by)
        events = f"events of {by}" if by else "all events"
        where = f" where {describe_filter(self.where)}" if self.where else ""
        phrase = _PHRASES[self.aggregate.function]
        what = phrase if self.measure is None else f"{phrase} {self.measure}"
        window = f"over the last {format_duration(self.window.length_ms)}"
        limit = f"{_COMPARISONS[self.limit.operator]} {self.limit.value:,f}"
        text = f"{what} of {events}{where} {window} {limit}"
        return text[0].upper() + text[1:]


Fault = tuple[tuple[str, ...], str]
"""The location of a field in a rule, and what is wrong with it."""


def check_new(rule: Rule) -> Fault | None:
    """What a new rule may not be called or contain, if anything; rules in a checkpoint are not checked again.

    The keys of changes in a topic begin with `!`, and names appear in messages, tables and terminals.
    """
    name, location = rule.rule_id, ("rule_id",)
    if name.startswith("!"):
        return location, f"{name!r} begins with !, as only the keys of changes do; give the rule another name"
    if name.strip() != name:
        return location, f"{name!r} begins or ends with a blank; leave it out"
    if not name.isprintable():
        return location, f"{name!r} holds a character that is neither visible nor a plain blank; leave it out"
    unseen = blank_letter(name)
    if unseen is not None:
        return location, f"holds {unseen}, which cannot be seen; leave it out"
    if rule.version > LARGEST_VERSION:
        return ("version",), f"{rule.version} is more than {LARGEST_VERSION}; write a smaller one"
    texts = [(("group_by",), field, "") for field in rule.group_by]
    texts += [(("where",), field, "") for field in filter_fields(rule.where)]
    for location, text, allowed in [*texts, (("description",), rule.description, "\n\t")]:
        unseen = unseen_character(text, allowed)
        if unseen is not None:
            return location, f"holds {unseen}, which cannot be seen; leave it out"
    return None


def check_against_schema(rule: Rule, schema: EventSchema) -> Fault | None:
    """What does not fit the event schema, if anything."""
    declared = f"declared attributes: {', '.join(schema.attributes) or 'none'}"
    for field in rule.group_by:
        if field not in schema.attributes:
            shown = short_line(repr(field))
            return ("group_by",), f"{shown} is no attribute of event schema {schema.name!r}; {declared}"
    measure = rule.aggregate.measure
    if measure is not None and measure not in schema.measures:
        known = f"declared measures: {', '.join(schema.measures) or 'none'}"
        shown = short_line(repr(measure))
        return ("aggregate", "measure"), f"{shown} is no measure of event schema {schema.name!r}; {known}"
    try:
        canonical_filter(rule.where, schema)
    except ValueError as error:
        return ("where",), short_line(str(error))
    return None


def value_scale(rule: Rule, schema: EventSchema) -> int:
    """Digits after the point of a rule's value: the measure's, none for a count, six more for an average."""
    if rule.measure is None:
        return 0
    extra = AVERAGE_EXTRA_DIGITS if rule.aggregate.function == "avg" else 0
    return schema.measures[rule.measure].scale + extra
