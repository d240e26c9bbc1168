"""What is known of fields and features before a condition is looked at: from their types, filters and functions.

Every window ends at the event itself. So a feature that counts what its rule applies to counts at least one event, and
the least sum, where no amount is negative, is that of the event alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from buckets.aggregates.aggregate import aggregate
from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.expressions.expression import Expression, Kind
from buckets.lint.conditions import filter_condition
from buckets.lint.domain import ANYTHING, INFINITY, TRUTH, Domain, between
from buckets.lint.logic import Facts, conjuncts, given
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter, canonical_filter
from buckets.rules.rule import Rule
from buckets.rules.rule_set import canonical_group_id
from buckets.rules.window import Window

_KINDS: Final[Mapping[str, Kind]] = {"string": "text", "long": "number", "boolean": "boolean"}


def event_facts(rule: Rule, schema: EventSchema | None) -> Facts:
    """What is known of the fields of the events that a rule looks at.

    It does not see an event with a null in a field that it groups by.
    """
    if schema is None:
        return Facts()
    kinds = {name: _KINDS[kind] for name, kind in schema.attributes.items()}
    kinds |= dict.fromkeys(schema.measures, "number")
    domains = {}
    for name, kind in kinds.items():
        may_be_null = name not in rule.group_by
        domain = Domain(may_be_null=may_be_null)
        if kind == "boolean":
            domain = Domain(members=TRUTH.members, may_be_null=may_be_null)
        elif kind == "number":
            digits = schema.measures[name].scale if name in schema.measures else 0
            domain = between(*_ends(digits), digits, may_be_null)
        domains[Expression("field", value=name)] = domain
    return Facts({**kinds, schema.event_time.field: "time"}, domains)


def firing_facts(rule: Rule, schema: EventSchema | None, engine: EngineSettings | None = None) -> Facts | None:
    """What is known of fields and features where a rule is evaluated; None where its filter lets no event pass.

    Args:
        rule: the rule.
        schema: the event schema, if it is known.
        engine: the settings of the job, whose buckets may leave out what lies in them.
    """
    of_events = event_facts(rule, schema)
    facts = given(filter_condition(rule.where, schema), of_events)
    if facts is None:
        return None
    found_facts = facts
    for named in rule.named_features():
        domain = _domain_of(named, rule, of_events, schema, engine)
        kind: Kind = "boolean" if named.feature.aggregate.is_boolean else "number"
        found_facts = _with_feature(found_facts, named.name, kind, domain)
    return found_facts


def _ends(digits: int) -> tuple[Decimal, Decimal]:
    """The least and the greatest number with so many digits after the point that 64 bits hold."""
    return Decimal(INT64_MIN).scaleb(-digits), Decimal(INT64_MAX).scaleb(-digits)


def _with_feature(facts: Facts, name: str, kind: Kind, domain: Domain) -> Facts:
    return Facts({**facts.kinds, name: kind}, {**facts.domains, Expression("field", value=name): domain})


def _is_exact(named: NamedFeature, schema: EventSchema | None, engine: EngineSettings | None) -> bool:
    """Return whether values are those of all events of the window, and not of all but those of a bucket."""
    if engine is None or schema is None:
        return True
    precision = engine.precision.of_group(canonical_group_id(named.fields, named.group_where, schema), schema)
    is_raw = precision.tail is None or named.feature.window.reach_ms <= precision.tail
    return is_raw or precision.edge == "include"


def _is_within(where: Filter, counted: Filter, schema: EventSchema | None) -> bool:
    """Return whether each event that passes one filter surely passes the other."""
    if not counted or where == counted:
        return True
    try:
        if schema is not None and canonical_filter(where, schema) == canonical_filter(counted, schema):
            return True
    except ValueError:
        return False
    whole, part = filter_condition(where, schema), filter_condition(counted, schema)
    return set(conjuncts(part)) <= set(conjuncts(whole))


def _domain_of(
    named: NamedFeature, rule: Rule, of_events: Facts, schema: EventSchema | None, engine: EngineSettings | None
) -> Domain:
    """What a feature of a rule can be."""
    feature = named.feature
    counted = given(filter_condition(named.where, schema), of_events)
    if not feature.aggregate.is_boolean and not _is_exact(named, schema, engine):
        return _INEXACT.get(feature.function, ANYTHING)
    counts_itself = counted is not None and _is_within(rule.where, named.where, schema)
    found = _feature_domain(feature.function, feature.of, feature.window, counted or of_events, counts_itself)
    # At an event that does not belong to the group of the feature it is NULL.
    is_seen = set(named.fields) <= set(rule.group_by)
    return found if is_seen else replace(found, may_be_null=True)


def _feature_domain(function: str, of: str | None, window: Window, counted: Facts, counts_itself: bool) -> Domain:
    if aggregate(function).is_boolean:
        return Domain(members=TRUTH.members, may_be_null=False)
    found = _OF_FUNCTIONS.get(function, _within_values)
    return found(counted.of_name(of or ""), window, counts_itself)


def _count(of: Domain, window: Window, counts_itself: bool) -> Domain:
    return between(int(counts_itself), INFINITY, 0)


def _count_distinct(of: Domain, window: Window, counts_itself: bool) -> Domain:
    fewest = int(counts_itself and not of.may_be_null)
    return between(fewest, INFINITY if of.size is None else max(of.size, 1), 0)


def _sum(of: Domain, window: Window, counts_itself: bool) -> Domain:
    if not of.may_be_known:
        return Domain()
    least, most = of.hull
    ends = (-INFINITY, INFINITY) if of.digits is None else _ends(of.digits)
    lower, upper = (least if least >= 0 else ends[0]), (most if most <= 0 else ends[1])
    return between(lower, upper, of.digits, may_be_null=not counts_itself or of.may_be_null)


def _spread(of: Domain, window: Window, counts_itself: bool) -> Domain:
    return between(0, INFINITY, may_be_null=True)


def _age(of: Domain, window: Window, counts_itself: bool) -> Domain:
    """Seconds since another event of the window."""
    return between(0, Decimal(window.reach_ms).scaleb(-3), 3, may_be_null=True)


def _within_values(of: Domain, window: Window, counts_itself: bool) -> Domain:
    """What lies between the least and the greatest value, as an average does."""
    if not of.may_be_known:
        return Domain()
    return between(*of.hull, may_be_null=not counts_itself or of.may_be_null)


def _previous(of: Domain, window: Window, counts_itself: bool) -> Domain:
    return _within_values(of, window, counts_itself=False)


_INEXACT: Final[Mapping[str, Domain]] = dict.fromkeys(("count", "same_count"), between(0, INFINITY, 0))
"""What functions are whose value leaves out what lies in a bucket."""
_OF_FUNCTIONS: Final[Mapping[str, Callable[[Domain, Window, bool], Domain]]] = {
    "count": _count,
    "same_count": _count,
    "count_distinct": _count_distinct,
    "sum": _sum,
    "variance": _spread,
    "stddev": _spread,
    "time_since_first": _age,
    "time_since_previous": _age,
    "previous": _previous,
}
"""What functions make of the values that they are of; all others lie between the least and the greatest of these."""
