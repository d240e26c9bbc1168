"""The written form of tests in a rule file, and the JSON schema by which editors complete rule files."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    WithJsonSchema,
    field_validator,
)

from buckets.duration import DurationMs
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import parse_decimal
from buckets.printable import short_line
from buckets.resources import resource
from buckets.rules.feature import ALERT_FIELDS, alert_schema
from buckets.rules.policies import HELD_BY
from buckets.validation import BY_RULE, FILE_OF_EVENTS, LIST_OF_EVENTS, OF_ALL_RULES, Checked, Location

if TYPE_CHECKING:
    HeldBy = str
else:
    HeldBy = Literal[HELD_BY]


MOST_EVENTS = 100_000  # The most events of a test


def _text(value: Any) -> Any:
    """Return a number as text; YAML has already turned numbers into text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list):
        message = f"must be one value, not a {'mapping' if isinstance(value, dict) else 'list'}"
        raise ValueError(message)
    return _text(value)


def _value_or_list(value: Any) -> Any:
    return [_plain(element) for element in value] if isinstance(value, list) else _plain(value)


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        message = f"{short_line(repr(value))} is not a decimal number"
        raise ValueError(message)
    return parse_decimal(str(value))


_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_NUMBER = {"type": ["string", "number"]}
FieldValue = Annotated[str | bool | None, BeforeValidator(_plain), WithJsonSchema(_SCALAR)]
"""A field of an event: text, with numbers as they are written; true, false; or null."""
EventValue = Annotated[
    str | bool | list[str | bool | None] | None,
    BeforeValidator(_value_or_list),
    WithJsonSchema({"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]}),
]
"""A field of an event, or an array: a list of such values."""
ExactNumber = Annotated[Decimal, BeforeValidator(_number), WithJsonSchema(_NUMBER)]
Count = Annotated[int, WithJsonSchema({"type": ["string", "integer"]})]
EventReference = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "integer"]})]
"""An event of a test: its number, from 1, or its id."""


class Repeat(Checked):
    """Several events that differ in their time alone."""

    times: Count = Field(ge=1, le=MOST_EVENTS, description="How many events.")
    every: Annotated[DurationMs, WithJsonSchema({"type": "string"})] = Field(
        default=0, description="How far apart they are, as in 10s."
    )


class GivenEvent(BaseModel):
    """An event: its fields, and `at` or `repeat` where the event schema has no fields of these names."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, EventValue]

    at: FieldValue = Field(default=None, description="When, counted from the start of the test, as in 23h, 24h + 1ms.")
    repeat: Repeat | None = Field(default=None, description="Makes several events of this one.")


class GivenFile(Checked):
    """Events of a file."""

    file: str = Field(min_length=1, description="A .jsonl, .csv or .parquet file in the folder of the rule file.")

    @field_validator("file")
    @classmethod
    def _stays_in_the_folder(cls, value: str) -> str:
        if value.startswith("/") or "://" in value or ".." in value.split("/"):
            message = f"{value!r} leads out of the folder of the rule file; put the events into it"
            raise ValueError(message)
        return value


class _Outcome(Checked):
    """What a rule made of an event; what is left out may be anything."""

    event: EventReference = Field(description="Number of the event, from 1, or its id.")
    rule: str | None = Field(default=None, description="The rule; may be left out where the test has one rule.")
    value: ExactNumber | None = Field(default=None, description="The value that is compared with the limit.")
    lower: ExactNumber | None = Field(default=None, description="Lower bound of the value.")
    upper: ExactNumber | None = Field(default=None, description="Upper bound of the value.")
    count: Count | None = Field(default=None, description="How many events the window holds.")
    exact: bool | None = Field(default=None, description="Whether the value is exact.")
    warm: bool | None = Field(default=None, description="Whether the whole window is kept.")
    features: dict[str, FieldValue] = Field(default_factory=dict, description="Values of features by name.")


class ExpectedAlert(_Outcome):
    """An alert that is expected."""

    certain: bool | None = Field(default=None, description="Whether the alert is certain, whatever the bounds.")
    key: dict[str, FieldValue] | None = Field(default=None, description="The key, by field.")
    condition: str | None = Field(default=None, description="`when` with the numbers in it.")
    severity: str | None = Field(default=None, description="How grave it is.")
    score: Count | None = Field(default=None, description="What it adds to the score of its key.")
    held_back: Count | None = Field(default=None, description="How many were held back since the last alert.")


_HELD_BY = f"{', '.join(HELD_BY[:-1])} or {HELD_BY[-1]}"


class ExpectedHeld(ExpectedAlert):
    """An alert that is expected to be held back."""

    held_by: HeldBy | None = Field(default=None, description=f"What holds it back: {_HELD_BY}.")


class ExpectedValue(_Outcome):
    """What a rule is expected to compute at an event, whether it fires there or not."""

    fired: bool | None = Field(default=None, description="Whether the rule fires.")


Alert = TypeVar("Alert", ExpectedAlert, ExpectedHeld)
OfRules = Annotated[
    Annotated[tuple[Alert, ...], Tag(OF_ALL_RULES)]
    | Annotated[dict[str, tuple[Alert, ...]], Field(min_length=1), Tag(BY_RULE)],
    Discriminator(lambda value: BY_RULE if isinstance(value, dict) else OF_ALL_RULES),
]


class Expected(Checked):
    """What is expected of the events of a test."""

    alerts: OfRules[ExpectedAlert] | None = Field(
        default=None, description="Exactly these alerts, [] for none; or by rule, and those of other rules may be any."
    )
    held_alerts: OfRules[ExpectedHeld] | None = Field(
        default=None, description="Exactly these alerts are held back, [] for none; or by rule, as alerts."
    )
    values: tuple[ExpectedValue, ...] = Field(default=(), description="Values at some events.")
    late_events: tuple[EventReference, ...] = Field(default=(), description="Exactly these events are late.")
    duplicates: tuple[EventReference, ...] = Field(default=(), description="Exactly these have already arrived.")
    collisions_not_kept: tuple[EventReference, ...] = Field(
        default=(), description="Exactly these are not kept, since another event has their time."
    )
    dead_letters: tuple[EventReference, ...] = Field(default=(), description="Exactly these are not valid events.")
    no_key: tuple[EventReference, ...] = Field(
        default=(), description="Exactly these lack a field that a rule groups by."
    )

    def _faults(self) -> Iterator[str]:
        unsaid = self.alerts is None and self.held_alerts is None
        if unsaid and not any(getattr(self, name) for name in type(self).model_fields):
            yield "expects nothing; say `alerts: []` if no rule should fire"

    def named_rules(self) -> list[tuple[Location, str]]:
        """Return the named rules, with their locations in the test."""
        outcomes = {name: self.outcomes(name) for name in ("alerts", "held_alerts", "values")}
        return [
            (("expect", *location, "rule"), outcome.rule)
            for entries in outcomes.values()
            for location, outcome in entries
            if outcome.rule is not None
        ] + [
            (("expect", name, rule_id), rule_id) for name in ("alerts", "held_alerts") for rule_id in self.by_rule(name)
        ]

    def outcomes(self, name: str) -> list[tuple[Location, ExpectedAlert | ExpectedValue]]:
        """Return the entries of `alerts`, `held_alerts` or `values`, each with its location and its rule."""
        written = getattr(self, name) or ()
        if not isinstance(written, dict):
            return [((name, at), outcome) for at, outcome in enumerate(written)]
        return [
            ((name, rule_id, at), outcome if outcome.rule is not None else outcome.model_copy(update={"rule": rule_id}))
            for rule_id, entries in written.items()
            for at, outcome in enumerate(entries)
        ]

    def by_rule(self, name: str) -> frozenset[str]:
        """Return the rules by which expected alerts are grouped; empty if the alerts of all rules are meant."""
        written = getattr(self, name)
        return frozenset(written) if isinstance(written, dict) else frozenset()


_KEYS = [{"required": keys} for keys in (["key"], ["network"], ["key1", "key2"])]
ListEntry = Annotated[
    dict[str, FieldValue],
    BeforeValidator(lambda value: value if isinstance(value, dict) else {"key": _plain(value)}),
    WithJsonSchema({"anyOf": [_SCALAR, {"type": "object", "additionalProperties": _SCALAR, "anyOf": _KEYS}]}),
]
"""An entry of a list: its key alone, or a mapping of `key`, `until` and values."""


class RuleTest(Checked):
    """One test."""

    name: str = Field(min_length=1, max_length=200, description="What is tested, as a sentence.")
    rules: tuple[str, ...] = Field(default=(), description="The rules that are evaluated; all of the file by default.")
    start: FieldValue = Field(default=None, description="Event time of `at: 0s`, as in 2026-01-05T00:00:00Z.")
    defaults: dict[str, EventValue] = Field(default_factory=dict, description="Fields of every event without them.")
    lists: dict[str, tuple[ListEntry, ...]] = Field(
        default_factory=dict,
        description="The lists that rules look into: keys, or mappings of `key` and values; in place of `key` may "
        "stand `network`, or `key1`, `key2` and so on.",
    )
    given: Annotated[
        Annotated[tuple[GivenEvent, ...], Field(min_length=1), Tag(LIST_OF_EVENTS)]
        | Annotated[GivenFile, Tag(FILE_OF_EVENTS)],
        Discriminator(lambda value: FILE_OF_EVENTS if isinstance(value, dict | GivenFile) else LIST_OF_EVENTS),
    ] = Field(description="The events, in the order in which they arrive.")
    expect: Expected

    @field_validator("name")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if not value.isprintable() or not value.strip():
            message = f"{short_line(repr(value))} cannot be shown on one line; write a sentence"
            raise ValueError(message)
        return value

    def named_rules(self) -> list[tuple[Location, str]]:
        """Return the rules that it names, with their locations."""
        own: list[tuple[Location, str]] = [(("rules", at), rule_id) for at, rule_id in enumerate(self.rules)]
        return own + self.expect.named_rules()


_CHANGES = resource("schemas/rule-change-v1.json")


def rule_file_schema(event_schema: EventSchema | None) -> dict[str, Any]:
    """Return a JSON schema (2020-12) with the rules of the published changes, and the tests of the models.

    With an event schema a rule may only group by its attributes, and aggregate and filter on its fields, or those of
    alerts on its events; and no feature may have the name of a field.
    """
    published = json.loads(_CHANGES.read_text(encoding="utf-8"))["$defs"]
    rule, feature = published["rule"]["properties"], published["feature"]["properties"]
    if event_schema is not None:
        # If events have a field reserved for alerts, rules over alerts are impossible.
        is_alone = not set(ALERT_FIELDS).isdisjoint(event_schema.all_fields)
        counted = event_schema if is_alone else alert_schema(event_schema)
        fields = [*counted.attributes, *counted.measures]
        names = list(counted.attributes)
        rule["group_by"]["items"]["enum"] = names
        one_of = "|".join(map(re.escape, names))
        feature["group_by"]["items"]["pattern"] = f"^({one_of})( AS ({one_of}))?$"
        mapping = next(form for form in published["filter"]["anyOf"] if form["type"] == "object")
        mapping["propertyNames"] = {"enum": fields}
        rule["aggregate"]["properties"]["measure"] = {"enum": [*counted.measures, None]}
        feature["of"]["anyOf"][0]["enum"] = published["periods"]["properties"]["of"]["enum"] = [*fields, None]
        texts = [name for name, kind in counted.attributes.items() if kind == "string"]
        feature["step_field"] = {**feature["step_field"], "enum": [*texts, None]}
        rule["features"]["propertyNames"]["not"] = {"enum": event_schema.all_fields}
    tests = TypeAdapter(list[RuleTest]).json_schema(ref_template="#/$defs/{model}")
    written = tests.pop("$defs")
    if event_schema is not None:
        written["RuleTest"]["properties"]["defaults"]["propertyNames"] = {"enum": list(event_schema.field_names)}
        written["GivenEvent"]["propertyNames"] = {"enum": [*event_schema.field_names, "at", "repeat"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rules" if event_schema is None else f"Rules over events of {event_schema.name}",
        "description": "A rule file of buckets.",
        "type": "object",
        "required": ["rules"],
        "additionalProperties": False,
        "properties": {
            "rules": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/rule"}},
            "tests": {"description": "Given events, and what is expected to come out.", **tests},
        },
        "$defs": {name: published[name] for name in ("rule", "feature", "periods", "step", "filter", "window", "state")}
        | written,
    }
