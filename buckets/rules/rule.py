"""A rule: what makes an event an alert. It has features, and a condition over them and the fields of the event.

A rule that is written in the short form, `aggregate`, `window` and `limit`, gets its one feature and its condition when
it is read, and is written as it was; see `short_form`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from buckets.duration import DurationMs, format_duration
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS
from buckets.printable import blank_letter, misleading_character, short_line, unseen_character
from buckets.rules.alert_schema import ALERT_SCORE, Counted, schema_on
from buckets.rules.condition import ConditionField, check_condition_fits, condition_fields, condition_words
from buckets.rules.feature import Feature, NamedFeature, field_kind
from buckets.rules.filter import Filter, FilterField, canonical_filter, describe_filter, filter_fields, filter_lists
from buckets.rules.part import Part
from buckets.rules.policy import LARGEST_SCORE, MOST_SNOOZES, MOST_TAGS, WHOLE_SHARE, Effective, Severity, Share, Snooze
from buckets.rules.policy_faults import key_fault, tag_fault
from buckets.rules.short_form import (
    FIELDS,
    SHORT_LOCATIONS,
    VALUE,
    Aggregation,
    Limit,
    condition_of,
    feature_of,
    phrase_of,
    sentence_of,
)
from buckets.rules.sql_filter import SqlFilter
from buckets.rules.window import Window

State = Literal["ACTIVE", "SHADOW", "PAUSE", "DRAFT", "DELETE"]

MOST_FEATURES = 100
"""So many features a rule may have."""
_FEATURE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
POLICY_FIELDS = (
    "on",
    "severity",
    "tags",
    "score",
    "cooldown",
    "reset_on_alert",
    "require_warm",
    "rollout",
    "effective",
    "snoozes",
    "silence",
)
"""Fields that are written only where they say something."""
VARIANT_MARK = "!"
"""With this begins the id of a variant, which a backtest tries beside its rule; no rule of a person has such an id."""
LARGEST_VERSION = 2**31 - 1
"""Highest version of a rule: outputs keep it in 32 bits."""


def _from_the_limit() -> Any:
    """Stand for the condition of a rule in the short form until that is known."""


class Rule(BaseModel):
    """One rule, as written in `rules.yaml` and as carried to the tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule_id: str = Field(min_length=1, max_length=200)
    version: int = Field(default=1, ge=1)
    state: State = "ACTIVE"
    description: str = ""
    group_by: tuple[str, ...]
    where: FilterField = ()
    aggregate: Aggregation | None = None
    window: Window | None = None
    limit: Limit | None = None
    features: dict[str, Feature] = Field(default_factory=dict, max_length=MOST_FEATURES)
    when: ConditionField = Field(default_factory=_from_the_limit)
    on: Counted = "events"
    severity: Severity | None = None
    tags: tuple[str, ...] = Field(default=(), max_length=MOST_TAGS)
    score: int = Field(default=0, ge=0, le=LARGEST_SCORE)
    cooldown: DurationMs | None = Field(default=None, gt=0)
    reset_on_alert: bool = False
    require_warm: bool = False
    rollout: Share = WHOLE_SHARE
    effective: Effective | None = None
    snoozes: tuple[Snooze, ...] = Field(default=(), max_length=MOST_SNOOZES)
    silence: dict[str, str] = Field(default_factory=dict)

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

    @field_validator("when", mode="wrap")
    @classmethod
    def _may_be_null(cls, value: Any, parse: ValidatorFunctionWrapHandler) -> Any:
        return None if value is None else parse(value)

    @field_validator("features")
    @classmethod
    def _names_are_words(cls, value: dict[str, Feature]) -> dict[str, Feature]:
        for name in value:
            if _FEATURE_NAME.fullmatch(name) is None:
                message = (
                    f"{short_line(repr(name))} is no name of a feature; write letters, digits and _, as in recent_1h"
                )
                raise ValueError(message)
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, read: ModelWrapValidatorHandler["Rule"]) -> "Rule":
        rule = read(data)
        return rule if isinstance(data, Rule) else rule._one_form()

    def _one_form(self) -> "Rule":
        simple: dict[str, Any] = {name: getattr(self, name) for name in FIELDS}
        has_condition: bool = self.when is not None
        if self.features or has_condition:
            both = next((name for name, value in simple.items() if value is not None), None)
            if both is not None:
                message = (
                    f"has `features` or `when`, and `{both}`; write `aggregate`, `window`, `limit`, or the other two"
                )
                raise ValueError(message)
            simple = {"features": self.features or None, "when": self.when}
        missing = next((name for name, value in simple.items() if value is None), None)
        if self.reset_on_alert and has_condition:
            message = "`reset_on_alert` goes with `aggregate`, `window` and `limit`, not with `features` and `when`"
            raise ValueError(message)
        if missing is not None:
            message = f"`{missing}` is missing; a rule has `aggregate`, `window` and `limit`, or `features` and `when`"
            raise ValueError(message)
        return self._with_condition()

    def _with_condition(self) -> "Rule":
        """Give a rule in the short form its feature and its condition."""
        if self.aggregate is not None and self.window is not None and self.limit is not None:
            object.__setattr__(self, "features", {VALUE: feature_of(self.aggregate, self.window)})
            object.__setattr__(self, "when", condition_of(self.limit))
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "Rule":
        """Return the rule with other fields; of one in the short form, feature and condition follow these."""
        return super().model_copy(update=update, deep=deep)._with_condition()

    @model_serializer(mode="wrap")
    def _of_its_form(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the fields of the other form, nor those of a policy that it does not have.

        So a rule in the short form without a policy is written as it always was.
        """
        others = ("features", "when") if self.is_short else FIELDS
        without = {name for name, default in _DEFAULTS.items() if getattr(self, name) == default}
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name not in others and name not in without}

    @property
    def is_short(self) -> bool:
        """Whether it was written in the short form."""
        return self.limit is not None

    @property
    def is_in_force(self) -> bool:
        """Whether anything is kept for the rule: neither of a draft nor of a rule that is gone."""
        return self.state not in ("DRAFT", "DELETE")

    @property
    def is_evaluated(self) -> bool:
        """Whether the rule is evaluated for events; a paused rule only keeps its events."""
        return self.state in ("ACTIVE", "SHADOW")

    @property
    def is_variant(self) -> bool:
        """Whether it is a rule with other numbers that a backtest tries: of its alerts only the events are kept."""
        return self.rule_id.startswith(VARIANT_MARK)

    @property
    def measure(self) -> str | None:
        """The field of the one feature of a rule in the short form; None for a count, and for all other rules."""
        return self.features[VALUE].of if self.is_short else None

    @property
    def filter_fields(self) -> frozenset[str]:
        """The fields that its filters and its condition name."""
        wheres = [self.where, *(feature.where or () for feature in self.features.values())]
        return frozenset(condition_fields(self.when, self.features)).union(*map(filter_fields, wheres))

    @property
    def lists(self) -> frozenset[str]:
        """The lists that its filters and its condition look into."""
        wheres = [self.where, *(feature.where or () for feature in self.features.values())]
        return self.when.lists.union(*map(filter_lists, wheres))

    @property
    def group_where(self) -> Filter:
        """The filter of its groups.

        The features of a rule may count different events, and one group with the same fields serves all of them, also
        those of other rules: it has no filter. A rule in the short form has a group with its own filter.
        """
        return self.where if self.is_short else ()

    def named_features(self) -> tuple[NamedFeature, ...]:
        """Its features, each with its grouping and its filter."""
        found = []
        for name, feature in self.features.items():
            fields = self.group_by if feature.group_by is None else feature.group_by
            if feature.aggregate.by_value and feature.of is not None and feature.of not in fields:
                fields = (*fields, feature.of)
            where = self.where if feature.where is None else feature.where
            found.append(NamedFeature(name, feature, fields, self.group_where, where, self.state == "SHADOW"))
        return tuple(found)

    def groupings(self) -> list[tuple[tuple[str, ...], Filter]]:
        """The fields and the filter of each group that the rule needs, first that of its own key."""
        found: dict[frozenset[str], tuple[str, ...]] = {frozenset(self.group_by): self.group_by}
        for each in self.named_features():
            found.setdefault(frozenset(each.fields), each.fields)
        return [(fields, self.group_where) for fields in found.values()]

    def parts(self, fields: Iterable[str]) -> tuple[Part, ...]:
        """What a group of the rule computes for its features.

        The group of the rule's own key computes something in any case: there an event is known to be no repeat.

        Args:
            fields: by which the group groups.
        """
        grouped, named = frozenset(fields), self.named_features()
        found = [part for each in named if frozenset(each.fields) == grouped for _, part in each.parts()]
        if not found and grouped == frozenset(self.group_by):
            found = [Part("count", None, None, None, self.longest_window, self.state == "SHADOW")]
        return tuple(dict.fromkeys(found))

    def windows(self, fields: Iterable[str]) -> list[Window]:
        """The windows that it has in a group; see `parts`."""
        return [part.window for part in self.parts(fields)]

    @property
    def longest_window(self) -> Window:
        """The longest window that it has."""
        return max((each.window for each in self.features.values()), key=lambda window: window.length_ms)

    def sentence(self) -> str:
        """The rule in English."""
        if self.limit is None:
            return self._sentence_of_features()
        by = " and ".join(f"the same {field}" for field in self.group_by)
        events = f" of {self.on} of {by}" if by else f" of all {self.on}"
        where = f" where {describe_filter(self.where)}" if self.where else ""
        return sentence_of(self.features[VALUE], self.limit, events=f"{events}{where}")

    def written_at(self, *location: str) -> tuple[str, ...]:
        """Where a field that has a location among features and condition is written."""
        return SHORT_LOCATIONS.get(location, location) if self.is_short else location

    def phrase(self, named: NamedFeature) -> str:
        """What one of its features computes, in English: `the sum of paymentAmount`."""
        if not self.is_short:
            return named.phrase_over(self.on)
        phrase = phrase_of(named.feature)
        return phrase[0].upper() + phrase[1:]

    def _sentence_of_features(self) -> str:
        by = " and ".join(self.group_by)
        events = f"For {self.on} of the same {by}" if by else f"For all {self.on}"
        where = f" where {describe_filter(self.where)}" if self.where else ""
        named = "; ".join(self._described(each) for each in self.named_features())
        return f"{events}{where}: {condition_words(self.when)}; {named}"

    def _described(self, each: NamedFeature) -> str:
        where = f" where {describe_filter(each.where)}" if each.where != self.where else ""
        if not each.where and self.where:
            where = " whatever they are"
        fields, by = each.feature.group_by, ""
        if fields is not None and frozenset(fields) != frozenset(self.group_by):
            by = f" by {', '.join(fields)}" if fields else f" of all {self.on}"
        phrase = each.phrase_over(self.on)
        return f"{each.name} is {phrase}{where}{by} over the last {format_duration(each.feature.window.length_ms)}"


_DEFAULTS = {name: Rule.model_fields[name].get_default(call_default_factory=True) for name in POLICY_FIELDS}

Fault = tuple[tuple[str, ...], str]
"""The location of a field in a rule, and what is wrong with it."""


def check_new(rule: Rule) -> Fault | None:
    """What a new rule may not be called or contain, if anything; rules in a checkpoint are not checked again.

    The keys of changes in a topic begin with `!`, and names appear in messages, tables and terminals.
    """
    name = rule.rule_id
    location: tuple[str, ...] = ("rule_id",)
    if name.startswith(VARIANT_MARK):
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
    texts: list[tuple[tuple[str, ...], str, str]] = [(("group_by",), field, "") for field in rule.group_by]
    filters: list[tuple[tuple[str, ...], Filter]] = [(("where",), rule.where), (("when",), rule.when)]
    for name, feature in rule.features.items():
        texts += [(("features", name, "group_by"), field, "") for field in feature.group_by or ()]
        filters.append((("features", name, "where"), feature.where or ()))
        texts += [(rule.written_at("features", name, "of"), feature.of or "", "")]
    for location, where in filters:
        fault = _filter_fault(where)
        if fault is not None:
            return location, fault
    for index, tag in enumerate(rule.tags):
        fault = tag_fault(tag)
        if fault is not None:
            return ("tags", str(index)), fault
        texts.append((("tags", str(index)), tag, ""))
    for index, snooze in enumerate(rule.snoozes):
        location = ("snoozes", str(index))
        texts += [((*location, "reason"), snooze.reason, "\n\t"), ((*location, "author"), snooze.author, "\n\t")]
    for location, text, allowed in [*texts, (("description",), rule.description, "\n\t")]:
        unseen = unseen_character(text, allowed)
        if unseen is not None:
            return location, f"holds {unseen}, which cannot be seen; leave it out"
    return None


def _filter_fault(where: Filter) -> str | None:
    """Return what a filter, or a condition, holds that nobody can see, if anything."""
    texts = [where.text] if isinstance(where, SqlFilter) else [text for each in where for text in each.operands]
    unseen = [*map(unseen_character, filter_fields(where)), *map(misleading_character, texts)]
    found = next((each for each in unseen if each is not None), None)
    return None if found is None else f"holds {found}, which cannot be seen; leave it out"


def check_against_schema(rule: Rule, schema: EventSchema) -> Fault | None:
    """What does not fit the event schema, if anything; a rule over alerts has to fit that of alerts."""
    try:
        counted = schema_on(rule.on, schema)
    except ValueError as error:
        return ("on",), str(error)
    return next(_faults(rule, counted), None)


def _faults(rule: Rule, schema: EventSchema) -> Iterator[Fault]:
    yield from _grouping_faults(rule.group_by, ("group_by",), schema)
    if rule.aggregate is not None and rule.aggregate.measure is not None:
        measure = rule.aggregate.measure
        if measure not in schema.measures:
            known = f"declared measures: {', '.join(schema.measures) or 'none'}"
            shown = short_line(repr(measure))
            yield ("aggregate", "measure"), f"{shown} is no measure of event schema {schema.name!r}; {known}"
    yield from _filter_faults(rule.where, ("where",), schema)
    if not rule.is_short:
        yield from _feature_faults(rule, schema)
    for index, snooze in enumerate(rule.snoozes):
        fault = None if snooze.key is None else key_fault(snooze.key, rule.group_by, schema)
        if fault is not None:
            yield ("snoozes", str(index), "key"), fault


def _feature_faults(rule: Rule, schema: EventSchema) -> Iterator[Fault]:
    for name, feature in rule.features.items():
        location = ("features", name)
        if name in schema.field_names:
            yield location, f"{name} is also a field of event schema {schema.name!r}; give the feature another name"
        yield from _grouping_faults(feature.group_by or (), (*location, "group_by"), schema)
        yield from _filter_faults(feature.where or (), (*location, "where"), schema)
        takes = feature.aggregate.takes
        declared = [each for each in (*schema.attributes, *schema.measures) if field_kind(each, schema) in takes]
        if feature.of is not None and feature.of not in declared:
            shown, known = short_line(repr(feature.of)), ", ".join(declared) or "none"
            kinds = "field" if len(takes) > 2 else "number"
            reason = f"{shown} is no {kinds} of event schema {schema.name!r}; {feature.function} can be of: {known}"
            yield (*location, "of"), reason
    are_boolean = {name: feature.aggregate.is_boolean for name, feature in rule.features.items()}
    try:
        check_condition_fits(rule.when, are_boolean, schema)
    except ValueError as error:
        yield ("when",), short_line(str(error))


def _grouping_faults(fields: Iterable[str], location: tuple[str, ...], schema: EventSchema) -> Iterator[Fault]:
    declared = f"declared attributes: {', '.join(schema.attributes) or 'none'}"
    for field in fields:
        if field not in schema.attributes:
            shown = short_line(repr(field))
            yield location, f"{shown} is no attribute of event schema {schema.name!r}; {declared}"


def _filter_faults(where: Filter, location: tuple[str, ...], schema: EventSchema) -> Iterator[Fault]:
    try:
        canonical_filter(where, schema)
    except ValueError as error:
        yield location, short_line(str(error))


def value_scale(rule: Rule, schema: EventSchema) -> int:
    """Digits after the point of a rule's value: the measure's, none for a count, six more for an average."""
    if rule.measure is None:
        return 0
    scale = 0 if rule.on == "alerts" and rule.measure == ALERT_SCORE else schema.measures[rule.measure].scale
    extra = AVERAGE_EXTRA_DIGITS if rule.features[VALUE].function == "avg" else 0
    return scale + extra
