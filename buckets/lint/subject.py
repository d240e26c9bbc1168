"""What lint looks at: rules, with all that is known about their fields, features, events and job; and its findings."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from importlib.resources import files
from typing import Any, Final, Literal

from buckets.aggregates.aggregate import ValueKind, ValueRange
from buckets.aggregates.component import COUNT, COUNT_DISTINCT
from buckets.config.engine import EngineSettings
from buckets.events.bad_rows import BadRows
from buckets.events.derived_fields import ARRAY_KINDS
from buckets.events.schema import EventSchema
from buckets.expressions.expression import Expression, Kind
from buckets.lint.logic import TRUTH, Domain, Facts, between, given
from buckets.lint.relations import is_exact, is_within, relations
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.rules.feature import Feature, NamedFeature
from buckets.rules.filter import Filter, filter_condition
from buckets.rules.role import has_roles
from buckets.rules.rule import Rule
from buckets.rules.this_event import names_this, split_filter
from buckets.validation import Location

_KINDS: Final[Mapping[str, Kind]] = {"string": "text", "long": "number", "boolean": "boolean"}


def event_facts(rule: Rule, schema: EventSchema | None) -> Facts:
    """Return what is known of the fields of the events that a rule looks at.

    The rule never sees an event with a null in a grouping field.
    """
    if schema is None:
        return Facts()
    kinds = {name: _KINDS[kind] for name, kind in schema.attributes.items()}
    kinds |= dict.fromkeys(schema.measures, "number")
    arrays: dict[str, Kind] = {name: ARRAY_KINDS[kind] for name, kind in schema.arrays.items()}
    domains = {}
    for name, kind in kinds.items():
        may_be_null = name not in rule.group_by
        domain = Domain(may_be_null=may_be_null)
        if kind == "boolean":
            domain = Domain(members=TRUTH.members, may_be_null=may_be_null)
        elif kind == "number":
            digits = schema.measures[name].scale if name in schema.measures else 0
            least, greatest = (Decimal(end).scaleb(-digits) for end in (INT64_MIN, INT64_MAX))
            domain = between(least, greatest, digits, may_be_null)
        domains[Expression("field", value=name)] = domain
    return Facts({**kinds, **arrays, schema.event_time.field: "time"}, domains)


def firing_facts(rule: Rule, schema: EventSchema | None, engine: EngineSettings | None = None) -> Facts | None:
    """Return what is known of fields and features where a rule is evaluated; None where its filter lets no event pass.

    The buckets of a job with these settings may leave out what lies in them.
    """
    of_events = event_facts(rule, schema)
    facts = given(filter_condition(rule.where, schema), of_events)
    if facts is None:
        return None
    kinds, domains = dict(facts.kinds), dict(facts.domains)
    for named in rule.named_features():
        kind = feature_kind(named.feature, schema)
        if kind is not None:
            kinds[named.name] = kind
        domains[Expression("field", value=named.name)] = _domain_of(named, rule, of_events, schema, engine)
    orders, implied = relations(rule, facts, schema, engine)
    return Facts(kinds, domains, orders, implied)


def feature_kind(feature: Feature, schema: EventSchema | None) -> ValueKind | None:
    """Return what the values of a feature are; None where that depends on a schema, which is not known."""
    if schema is None:
        return None if feature.aggregate.keeps_kind else feature.aggregate.kind(None)
    return feature.kind(schema)


def _domain_of(
    named: NamedFeature, rule: Rule, of_events: Facts, schema: EventSchema | None, engine: EngineSettings | None
) -> Domain:
    aggregate, kind = named.feature.aggregate, feature_kind(named.feature, schema)
    domain = Domain(members=TRUTH.members, may_be_null=False)
    if aggregate.is_boolean and named.feature.steps:
        whole = Expression("and", (named.feature.step_filters[-1].expression, filter_condition(rule.where, schema)))
        if given(whole, of_events) is None:  # The event is the last step.
            domain = replace(domain, members=frozenset([False]))
    if not aggregate.is_boolean:
        field, counts_itself = ValueRange(), False
        if is_exact(named, schema, engine) and named.feature.on is None:
            counted = given(filter_condition(split_filter(named.where)[0], schema), of_events)
            counts_itself = named.feature.window.holds_its_event and not has_roles(named.fields) and counted is not None
            counts_itself = counts_itself and is_within(rule.where, named.where, schema)
            of_field = (counted or of_events).of_name(named.feature.of or "")
            size = 1 if named.feature.of in named.fields else of_field.size
            field = ValueRange(size=size)  # anything where there can be no number
            if of_field.may_be_known:
                field = ValueRange(*of_field.hull, of_field.digits, of_field.may_be_null, size)
        possible = aggregate.value_range(field, named.feature.window.reach_ms, counts_itself)
        if named.feature.window.last and aggregate.operation in (COUNT, COUNT_DISTINCT) and not aggregate.by_value:
            possible = replace(possible, upper=min(possible.upper, Decimal(named.feature.window.last)))
        domain = between(possible.lower, possible.upper, possible.digits, possible.may_be_null)
        if kind != "number":
            members = TRUTH.members if kind == "boolean" else None
            domain = Domain(members=members, may_be_null=possible.may_be_null)
    # At an event that does not belong to the group of the feature it is NULL.
    is_seen = set(named.fields) <= set(rule.group_by)
    return domain if is_seen else replace(domain, may_be_null=True)


@dataclass(frozen=True)
class KeyCounts:
    """The keys of a grouping: how many keys and events there are, the largest key, and how many events that has."""

    keys: int
    largest: int
    largest_key: tuple[Any, ...]
    events: int


@dataclass(frozen=True)
class EventSummary:
    """What a file of events has shown."""

    events: int  # how many there are
    bad: BadRows  # the rows that are no events, and what was rounded
    passed: Mapping[Filter, int]  # by filter, how many events pass
    nulls: Mapping[str, int]  # by field, in how many events it is null
    keys: Mapping[tuple[str, ...], KeyCounts]  # by the fields of a grouping
    fired: Mapping[str, int]  # by rule, at how many events it would fire; rules that could not be tried are not in it
    # the fields of text that the file has as floating point, each with the type of its column
    floating: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FilterAt:
    """A filter of a rule, or of one of its features, and where in the rule it is."""

    rule: Rule
    path: Location
    where: Filter
    feature: str | None = None


@dataclass(frozen=True)
class Subject:
    """What is looked at."""

    rules: tuple[Rule, ...]  # valid rules, without deleted ones
    now_ms: int  # the time, in ms since the epoch
    schema: EventSchema | None = None  # the event schema, if it is known
    engine: EngineSettings | None = None  # the settings of a job, if they are known
    events: EventSummary | None = None  # what a file of events has shown, if there is one
    # for each rule the fields that its file names, which tells a default from one that somebody wrote
    written: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_part: bool = False  # whether there may be other rules beside them

    def schema_of(self, rule: Rule) -> EventSchema | None:
        """Return the event schema of what a rule counts: that of events does not hold for alerts."""
        return self.schema if rule.on == "events" else None

    @cached_property
    def firing_facts(self) -> Mapping[str, Facts | None]:
        """By rule, what is known of fields and features where it is evaluated; None where no event can pass."""
        return {rule.rule_id: firing_facts(rule, self.schema_of(rule), self.engine) for rule in self.rules}

    def filters(self) -> Iterator[FilterAt]:
        """Yield all filters that are written, each of a rule or of a feature."""
        for rule in self.rules:
            if rule.where:
                yield FilterAt(rule, ("where",), rule.where)
            for name, feature in rule.features.items():
                for location, where in feature.filters.items():
                    if not names_this(where):
                        yield FilterAt(rule, ("features", name, *location), where, name)


Needs = Literal["schema", "engine", "events", "silence"]
_HEAD = re.compile(r"# \w+: (.*)\n\nLevel: (\w+)\.\n")


@dataclass(frozen=True)
class Code:
    """A kind of finding, whose page says what is found, and how bad that is."""

    code: str  # its stable name, as in B101
    message: str  # what, why, and what to do, in one line, with the names of values in braces
    # what it cannot be found without; `silence` where it is about silencing, and cannot be silenced
    needs: frozenset[Needs] = frozenset()
    # codes that say the same and more: where one is found in a rule, this one is left out
    said_by: frozenset[str] = frozenset()

    @cached_property
    def page(self) -> str:
        """Its page as Markdown, with an example that has the finding and one that is mended."""
        return (files("buckets.lint") / "pages" / f"{self.code}.md").read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """What is found, in a few words."""
        return self._head[1]

    @property
    def level(self) -> str:
        """How bad it is: an error makes a rule useless, a warning is hardly what was meant, a note is worth a look."""
        return self._head[2]

    @property
    def _head(self) -> re.Match[str]:
        head = _HEAD.match(self.page)
        assert head is not None
        return head

    def at(self, rule: Rule, path: Location, **values: object) -> "Finding":
        """Return a finding in a field of a rule, with the values that its message names."""
        return Finding(self, rule.rule_id, path, self.message.format(**values))


@dataclass(frozen=True)
class Finding:
    """Something that was found."""

    code: Code  # what kind of thing
    rule_id: str  # in which rule
    path: Location  # in which of its fields, as in `("features", "recent", "window")`
    message: str  # what, why, and what to do, in one line

    @property
    def said_by(self) -> set[tuple[str, str]]:
        """Findings that say the same and more, by rule and code."""
        return {(self.rule_id, code) for code in self.code.said_by}
