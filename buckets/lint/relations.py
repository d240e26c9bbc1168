"""How features of a rule relate to one another and to the fields of their event, whatever the events are.

The events of a window are among those of a longer one whose filter lets as many pass, or more. So a count is never
above that of the longer one, no value is above the greatest of a window that holds it, and where the event is the first
of its window, there is none before it in a shorter one.
"""

from collections.abc import Iterator
from decimal import Decimal
from itertools import product

from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.expressions.expression import Expression, conjuncts
from buckets.lint.logic import Facts, Order, given
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter, canonical_filter, filter_condition
from buckets.rules.group import canonical_group_id
from buckets.rules.role import has_roles
from buckets.rules.rule import Rule
from buckets.rules.this_event import split_filter

_OF_WINDOW = ("avg", "first", "last", "max", "median", "min", "mode", "percentile", "previous")
"""Functions whose value lies between the least and the greatest of the window."""
_GROWING = ("count", "count_distinct", "max", "same_count", "time_since_first")
"""Functions whose value in a longer window is no less."""
_SINCE_BEFORE = ("time_since_previous", "time_since_first")
_ONE = Expression("number", value=Decimal(1))


def is_exact(named: NamedFeature, schema: EventSchema | None, engine: EngineSettings | None) -> bool:
    """Return whether values are those of all events of the window, and not of all but those of a bucket."""
    if engine is None or schema is None:
        return True
    precision = engine.precision.of_group(canonical_group_id(named.fields, named.group_where, schema), schema)
    is_raw = precision.tail is None or named.feature.window.reach_ms <= precision.tail
    return is_raw or precision.edge == "include"


def is_within(where: Filter, counted: Filter, schema: EventSchema | None) -> bool:
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


def relations(
    rule: Rule, of_events: Facts, schema: EventSchema | None, engine: EngineSettings | None
) -> tuple[tuple[Order, ...], tuple[Order, ...]]:
    """Return pairs of names in the condition of a rule, and of conditions over them.

    Of two names the first is never above the second where neither is NULL; of two conditions the second is true
    wherever the first one is.
    """
    named = rule.named_in
    features = [
        each
        for each in rule.named_features()
        if each.name in named and each.feature.window.is_plain and is_exact(each, schema, engine)
        if not has_roles(each.fields)  # These hold the event itself.
    ]
    orders, implied = [], []
    for feature in features:
        field, function = Expression("field", value=feature.feature.of), feature.feature.function
        if feature.feature.of in named and is_within(rule.where, feature.where, schema):
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
        is_alone = _is_alone(outer, is_within(rule.where, outer.where, schema))
        implied += [(premise, consequence) for premise in is_alone for consequence in _none_before(inner)]
    return tuple(orders), tuple(implied)


def _name(named: NamedFeature) -> Expression:
    return Expression("field", value=named.name)


def _holds(outer: NamedFeature, inner: NamedFeature, schema: EventSchema | None) -> bool:
    """Return whether one feature surely counts each event that the other one does."""
    return (
        inner.feature.window.reach_ms <= outer.feature.window.reach_ms
        and set(inner.fields) == set(outer.fields)
        and is_within(inner.where, outer.where, schema)
    )


def _is_above(inner: NamedFeature, outer: NamedFeature, is_positive: bool) -> bool:
    """Return whether a feature is never above one that counts the same events, or more; no event is positive or all."""
    (one, other), same = (inner.feature.function, outer.feature.function), inner.feature.of == outer.feature.of
    if other == "count":
        return one in ("count", "count_distinct")
    if one in _OF_WINDOW and same:
        return other == "max" or (other == "sum" and is_positive)
    if one == other and same:
        return one in _GROWING or (one == "sum" and is_positive)
    return (one, other) == _SINCE_BEFORE


def _is_alone(outer: NamedFeature, counts_itself: bool) -> Iterator[Expression]:
    """Yield what is true where no event before its own counts, and nowhere else."""
    if outer.feature.function == "is_first":
        yield Expression("=", (_name(outer), Expression("boolean", value=True)))
    elif outer.feature.function == "count" and counts_itself:
        yield Expression("<=", (_name(outer), _ONE))


def _none_before(inner: NamedFeature) -> Iterator[Expression]:
    """Yield what follows from that for a feature that counts no other events."""
    function = inner.feature.function
    if function in ("previous", "time_since_previous"):
        yield Expression("is_null", (_name(inner),))
    elif function in ("count", "count_distinct"):
        yield Expression("<=", (_name(inner), _ONE))
    elif function == "is_first":
        yield Expression("=", (_name(inner), Expression("boolean", value=True)))
