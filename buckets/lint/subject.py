"""The subject of lint: rules, with all facts about their fields, features, events and job; and its findings."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from importlib.resources import files
from itertools import product
from typing import Any, Literal

from buckets.aggregates.aggregate import ValueKind, ValueRange
from buckets.aggregates.component import COUNT, COUNT_DISTINCT
from buckets.config.engine import EngineSettings
from buckets.events.bad_rows import BadRows
from buckets.events.schema import EventSchema
from buckets.expressions.expression import Expression, conjuncts
from buckets.lint.logic import TRUTH, Domain, Facts, Order, between, given
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.rules.condition import kinds_in
from buckets.rules.feature import Feature, NamedFeature
from buckets.rules.filter import Filter, canonical_filter, filter_condition, names_this, split_filter
from buckets.rules.group import canonical_group_id
from buckets.rules.role import has_roles
from buckets.rules.rule import Rule
from buckets.validation import Location

_OF_WINDOW = ("avg", "first", "last", "max", "median", "min", "mode", "percentile", "previous")
"""Functions whose value lies between the least and the greatest of the window."""
_GROWING = ("count", "count_distinct", "max", "same_count", "time_since_first")
"""Functions whose value in a longer window is no less."""
_SINCE_BEFORE = ("time_since_previous", "time_since_first")
_ONE = Expression("number", value=Decimal(1))


def event_facts(rule: Rule, schema: EventSchema | None) -> Facts:
    """Return the facts about the fields of the events that a rule sees.

    The rule never sees an event with a null in a grouping field.
    """
    if schema is None:
        return Facts()
    kinds, domains = kinds_in(schema), {}
    for name in (*schema.attributes, *schema.measures):
        may_be_null = name not in rule.group_by
        domain = Domain(may_be_null=may_be_null)
        if kinds[name] == "boolean":
            domain = Domain(members=TRUTH.members, may_be_null=may_be_null)
        elif kinds[name] == "number":
            digits = schema.measures[name].scale if name in schema.measures else 0
            least, greatest = (Decimal(end).scaleb(-digits) for end in (INT64_MIN, INT64_MAX))
            domain = between(least, greatest, digits, may_be_null)
        domains[Expression("field", value=name)] = domain
    return Facts(kinds, domains)


def firing_facts(rule: Rule, schema: EventSchema | None, engine: EngineSettings | None = None) -> Facts | None:
    """Return the facts about fields and features where a rule is evaluated; None if its filter passes no event.

    Under a job's settings, buckets may leave events out.
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
    orders, implied = _relations(rule, facts, schema, engine)
    return Facts(kinds, domains, orders, implied)


def feature_kind(feature: Feature, schema: EventSchema | None) -> ValueKind | None:
    """Return the kind of a feature's values; None if that depends on an unknown schema."""
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
        if _is_exact(named, schema, engine) and named.feature.on is None:
            counted = given(filter_condition(split_filter(named.where)[0], schema), of_events)
            counts_itself = named.feature.window.holds_its_event and not has_roles(named.fields) and counted is not None
            counts_itself = counts_itself and _is_within(rule.where, named.where, schema)
            of_field = (counted or of_events).of_name(named.feature.of or "")
            size = 1 if named.feature.of in named.fields else of_field.size
            field = ValueRange(size=size)  # anything, since there is no number
            if of_field.may_be_known:
                field = ValueRange(*of_field.hull, of_field.digits, of_field.may_be_null, size)
        possible = aggregate.value_range(field, named.feature.window.reach_ms, counts_itself)
        if named.feature.window.last and aggregate.operation in (COUNT, COUNT_DISTINCT) and not aggregate.by_value:
            possible = replace(possible, upper=min(possible.upper, Decimal(named.feature.window.last)))
        domain = between(possible.lower, possible.upper, possible.digits, possible.may_be_null)
        if kind != "number":
            members = TRUTH.members if kind == "boolean" else None
            domain = Domain(members=members, may_be_null=possible.may_be_null)
    # At an event outside the feature's group it is NULL.
    is_seen = set(named.fields) <= set(rule.group_by)
    return domain if is_seen else replace(domain, may_be_null=True)


def _is_exact(named: NamedFeature, schema: EventSchema | None, engine: EngineSettings | None) -> bool:
    """Return whether values cover all events of the window, not all but those of one bucket."""
    if engine is None or schema is None:
        return True
    precision = engine.precision.of_group(canonical_group_id(named.fields, named.group_where, schema), schema)
    is_raw = precision.tail is None or named.feature.window.reach_ms <= precision.tail
    return is_raw or precision.edge == "include"


def _is_within(where: Filter, counted: Filter, schema: EventSchema | None) -> bool:
    """Return whether every event that passes one filter surely passes the other."""
    if not counted or where == counted:
        return True
    try:
        if schema is not None and canonical_filter(where, schema) == canonical_filter(counted, schema):
            return True
    except ValueError:
        return False
    whole, part = filter_condition(where, schema), filter_condition(counted, schema)
    return set(conjuncts(part)) <= set(conjuncts(whole))


def _relations(
    rule: Rule, of_events: Facts, schema: EventSchema | None, engine: EngineSettings | None
) -> tuple[tuple[Order, ...], tuple[Order, ...]]:
    """Return how features of a rule relate to one another and to event fields, for any events.

    A longer window with the same or a wider filter contains the events of a shorter one. So its count is never smaller,
    a window's maximum is never below its values, and an event that is the first of its window has no predecessor in a
    shorter one.

    Returns:
        Pairs of names in the condition of the rule, of which the first is never above the second where neither is NULL;
        and pairs of conditions over them, of which the second is true wherever the first one is.
    """
    named = rule.named_in
    features = [
        each
        for each in rule.named_features()
        if each.name in named and each.feature.window.is_plain and _is_exact(each, schema, engine)
        if not has_roles(each.fields)  # These hold the event itself.
    ]
    orders, implied = [], []
    for feature in features:
        field, function = Expression("field", value=feature.feature.of), feature.feature.function
        if feature.feature.of in named and _is_within(rule.where, feature.where, schema):
            orders += [(field, _name(feature))] if function == "max" else []
            orders += [(_name(feature), field)] if function == "min" else []
    for inner, outer in product(features, repeat=2):
        if inner is outer or not _holds(outer, inner, schema):
            continue
        counted = given(filter_condition(split_filter(outer.where)[0], schema), of_events) or of_events
        is_positive = counted.of_name(outer.feature.of or "").lower >= 0
        if _is_above(inner, outer, is_positive):
            orders.append((_name(inner), _name(outer)))
        if (inner.feature.of, outer.feature.function) == (outer.feature.of, "min"):
            orders += [(_name(outer), _name(inner))] if inner.feature.function in _OF_WINDOW else []
        is_alone = _is_alone(outer, _is_within(rule.where, outer.where, schema))
        implied += [(premise, consequence) for premise in is_alone for consequence in _none_before(inner)]
    return tuple(orders), tuple(implied)


def _name(named: NamedFeature) -> Expression:
    return Expression("field", value=named.name)


def _holds(outer: NamedFeature, inner: NamedFeature, schema: EventSchema | None) -> bool:
    """Return whether one feature surely counts each event that the other counts."""
    return (
        inner.feature.window.reach_ms <= outer.feature.window.reach_ms
        and set(inner.fields) == set(outer.fields)
        and _is_within(inner.where, outer.where, schema)
    )


def _is_above(inner: NamedFeature, outer: NamedFeature, is_positive: bool) -> bool:
    """Return whether a feature is never above one that counts at least the same events; sums need `is_positive`."""
    (one, other), same = (inner.feature.function, outer.feature.function), inner.feature.of == outer.feature.of
    if other == "count":
        return one in ("count", "count_distinct")
    if one in _OF_WINDOW and same:
        return other == "max" or (other == "sum" and is_positive)
    if one == other and same:
        return one in _GROWING or (one == "sum" and is_positive)
    return (one, other) == _SINCE_BEFORE


def _is_alone(outer: NamedFeature, counts_itself: bool) -> Iterator[Expression]:
    """Yield conditions that are true exactly if no earlier event counts."""
    if outer.feature.function == "is_first":
        yield Expression("=", (_name(outer), Expression("boolean", value=True)))
    elif outer.feature.function == "count" and counts_itself:
        yield Expression("<=", (_name(outer), _ONE))


def _none_before(inner: NamedFeature) -> Iterator[Expression]:
    """Yield the consequences of that for a feature that counts no other events."""
    function = inner.feature.function
    if function in ("previous", "time_since_previous"):
        yield Expression("is_null", (_name(inner),))
    elif function in ("count", "count_distinct"):
        yield Expression("<=", (_name(inner), _ONE))
    elif function == "is_first":
        yield Expression("=", (_name(inner), Expression("boolean", value=True)))


@dataclass(frozen=True)
class KeyCounts:
    """The keys of a grouping: the numbers of keys and events, and the largest key with its number of events."""

    keys: int
    largest: int
    largest_key: tuple[Any, ...]
    events: int


@dataclass(frozen=True)
class EventSummary:
    """The counts from a file of events."""

    events: int  # how many there are
    bad: BadRows  # the rows that are no events, and what was rounded
    passed: Mapping[Filter, int]  # by filter, how many events pass
    nulls: Mapping[str, int]  # by field, in how many events it is null
    keys: Mapping[tuple[str, ...], KeyCounts]  # by the fields of a grouping
    fired: Mapping[str, int]  # by rule, at how many events it would fire; only rules that could be tried
    # the fields of text that the file has as floating point, each with the type of its column
    floating: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FilterAt:
    """A filter of a rule, or of one of its features, and its location in the rule."""

    rule: Rule
    path: Location
    where: Filter
    feature: str | None = None


@dataclass(frozen=True)
class Subject:
    """The input of lint."""

    rules: tuple[Rule, ...]  # valid rules, without deleted ones
    now_ms: int  # the time, in ms since the epoch
    schema: EventSchema | None = None  # the event schema, if it is known
    engine: EngineSettings | None = None  # the settings of a job, if they are known
    events: EventSummary | None = None  # what a file of events has shown, if there is one
    # for each rule the fields that its file names, which tells a default from one that somebody wrote
    written: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_part: bool = False  # whether there may be other rules

    def schema_of(self, rule: Rule) -> EventSchema | None:
        """Return the event schema of the things that a rule counts; alerts have another one than events."""
        return self.schema if rule.on == "events" else None

    @cached_property
    def firing_facts(self) -> Mapping[str, Facts | None]:
        """By rule, the facts about fields and features where it is evaluated; None if no event can pass."""
        return {rule.rule_id: firing_facts(rule, self.schema_of(rule), self.engine) for rule in self.rules}

    def filters(self) -> Iterator[FilterAt]:
        """Yield all written filters, each of a rule or of a feature."""
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
    """A kind of finding; its page describes what is found, and its level."""

    code: str  # its stable name, as in B101
    message: str  # what, why, and what to do, in one line, with the names of values in braces
    # what it cannot be found without; `silence` where it is about silencing, and cannot be silenced
    needs: frozenset[Needs] = frozenset()
    # codes that say the same and more: where one is found in a rule, this one is left out
    said_by: frozenset[str] = frozenset()

    @cached_property
    def page(self) -> str:
        """Its page as Markdown, with an example, the corrected example, and how to silence it."""
        written = (files("buckets.lint") / "pages" / f"{self.code}.md").read_text(encoding="utf-8")
        text, _, reason = written.partition("\nSilence: ")
        way = f"```\nsilence: {{{self.code}: {reason.strip()}}}\n```"
        way = way if reason else "It cannot be silenced: it is about a silence."
        return f"{text}\n## How to silence it\n\n{way}\n"

    @property
    def title(self) -> str:
        """The kind of finding, in a few words."""
        return self._head[1]

    @property
    def level(self) -> str:
        """How bad it is: an error makes a rule useless, a warning is probably unintended, a note is worth a look."""
        return self._head[2]

    @property
    def _head(self) -> re.Match[str]:
        head = _HEAD.match(self.page)
        assert head is not None
        return head

    def at(self, rule: Rule, path: Location, **values: object) -> "Finding":
        """Return a finding in a field of a rule, with the values for its message."""
        return Finding(self, rule.rule_id, path, self.message.format(**values))


@dataclass(frozen=True)
class Finding:
    """A single finding."""

    code: Code  # what kind of thing
    rule_id: str  # in which rule
    path: Location  # in which of its fields, as in `("features", "recent", "window")`
    message: str  # what, why, and what to do, in one line
