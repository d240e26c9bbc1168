"""What is known of fields and features before a condition is looked at: from their types, filters and functions.

Every window ends at the event itself. So a feature that counts what its rule applies to counts at least one event, and
the least sum, where no amount is negative, is that of the event alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from buckets.aggregates.value_range import ValueRange
from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.expressions.expression import Expression, Kind
from buckets.lint.conditions import filter_condition
from buckets.lint.domain import TRUTH, Domain, between
from buckets.lint.logic import Facts, conjuncts, given
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter, canonical_filter
from buckets.rules.group import canonical_group_id
from buckets.rules.rule import Rule
from buckets.rules.sql_filter import ARRAY_KINDS

_KINDS: Final[Mapping[str, Kind]] = {"string": "text", "long": "number", "boolean": "boolean"}


def event_facts(rule: Rule, schema: EventSchema | None) -> Facts:
    """Return what is known of the fields of the events that a rule looks at.

    It does not see an event with a null in a field that it groups by.
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
            domain = between(*_ends(digits), digits, may_be_null)
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
        kinds[named.name] = "boolean" if named.feature.aggregate.is_boolean else "number"
        domains[Expression("field", value=named.name)] = _domain_of(named, rule, of_events, schema, engine)
    return Facts(kinds, domains)


def _ends(digits: int) -> tuple[Decimal, Decimal]:
    """Return the least and the greatest number with so many digits after the point that 64 bits hold."""
    return Decimal(INT64_MIN).scaleb(-digits), Decimal(INT64_MAX).scaleb(-digits)


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
    """Return what a feature of a rule can be."""
    aggregate = named.feature.aggregate
    domain = Domain(members=TRUTH.members, may_be_null=False)
    if not aggregate.is_boolean:
        field, counts_itself = ValueRange(), False
        if _is_exact(named, schema, engine):
            counted = given(filter_condition(named.where, schema), of_events)
            counts_itself = counted is not None and _is_within(rule.where, named.where, schema)
            field = _value_range((counted or of_events).of_name(named.feature.of or ""))
        possible = aggregate.value_range(field, named.feature.window.reach_ms, counts_itself)
        domain = between(possible.lower, possible.upper, possible.digits, possible.may_be_null)
    # At an event that does not belong to the group of the feature it is NULL.
    is_seen = set(named.fields) <= set(rule.group_by)
    return domain if is_seen else replace(domain, may_be_null=True)


def _value_range(domain: Domain) -> ValueRange:
    """Return between what numbers lie; anything where there can be none."""
    if not domain.may_be_known:
        return ValueRange(size=domain.size)
    return ValueRange(*domain.hull, domain.digits, domain.may_be_null, domain.size)
