"""Finds rules that equal another one, and rules that fire only where another one fires."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from buckets.aggregates.component import AVG
from buckets.events.schema import EventSchema
from buckets.expressions.expression import Expression, normalise
from buckets.lint.logic import Facts, implies
from buckets.lint.subject import Code, Finding, Subject
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter, canonical_filter, filter_condition, filter_identity
from buckets.rules.group import kernel_limit
from buckets.rules.rule import POLICY_FIELDS, WHOLE_SHARE, Rule

SAME = Code("B201", "is the same as rule {other!r}: events, features, condition and policy; delete one")
IMPLIED = Code(
    "B202",
    "fires only where rule {other!r} fires too, which has the same policy; delete one, or give them different "
    "severities, scores or tags",
)
ALIKE = Code("B203", "is the same as {other}: function, field, events and window; leave one of them out")
_MOST_COMPARED = 100  # Up to so many rules with the same events are compared pairwise


@dataclass(frozen=True)
class _Form:
    """A rule in a form that does not depend on how it is written."""

    rule: Rule  # the rule
    kin: Hashable  # equal for rules to compare: state, policy, key and filter
    condition: Expression  # when it fires; the name of a feature says what the feature is
    facts: Facts  # what is known of the names in it


def find(subject: Subject) -> Iterator[Finding]:
    """Compare the rules with the same events and policies."""
    kin: dict[Hashable, list[_Form]] = {}
    for rule in subject.rules:
        yield from _alike(rule, subject.schema_of(rule))
        facts = subject.firing_facts[rule.rule_id]
        # A rollout can choose other keys for another rule.
        if rule.is_evaluated and facts is not None and rule.rollout == WHOLE_SHARE:
            form = _form(rule, facts, subject.schema_of(rule))
            kin.setdefault(form.kin, []).append(form)
    for forms in kin.values():
        yield from _among(forms)


def _alike(rule: Rule, schema: EventSchema | None) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for named in rule.named_features():
        there = first.setdefault(_name(named, False, schema), named.name)
        if there != named.name:
            yield ALIKE.at(rule, ("features", named.name), other=there)


def _among(forms: list[_Form]) -> Iterator[Finding]:
    first: dict[Expression, _Form] = {}
    for form in forms:
        there = first.setdefault(form.condition, form)
        if there is not form:
            yield SAME.at(form.rule, ("rule_id",), other=there.rule.rule_id)
    # After an alert such a rule is quiet, or counts from zero, while the other one continues.
    different = [form for form in first.values() if not form.rule.depends_on_alerts]
    if len(different) > _MOST_COMPARED:
        return
    for form in different:
        other = next((other for other in different if other is not form and _implies(form, other)), None)
        if other is not None:
            yield IMPLIED.at(form.rule, form.rule.written_at("when"), other=other.rule.rule_id)


def _implies(form: _Form, other: _Form) -> bool:
    """Return whether one rule can fire, and the other then surely fires too."""
    facts = Facts({**other.facts.kinds, **form.facts.kinds}, {**other.facts.domains, **form.facts.domains})
    return implies(form.condition, other.condition, facts)


def _form(rule: Rule, facts: Facts, schema: EventSchema | None) -> _Form:
    # The name of a feature says what it is.
    is_compared_exactly = kernel_limit(rule) is not None
    names = {named.name: _name(named, is_compared_exactly, schema) for named in rule.named_features()}
    kin = (
        rule.state,
        repr([getattr(rule, name) for name in POLICY_FIELDS if name != "silence"]),
        frozenset(rule.group_by),
        _written(rule.where, schema),
    )
    kinds = {names.get(name, name): kind for name, kind in facts.kinds.items()}
    domains = {_renamed(part, names): domain for part, domain in facts.domains.items()}
    return _Form(rule, kin, normalise(_renamed(rule.when.expression, names)), Facts(kinds, domains))


def _name(named: NamedFeature, is_compared_exactly: bool, schema: EventSchema | None) -> str:
    feature = named.feature
    function = "exact_avg" if is_compared_exactly and feature.aggregate.operation == AVG else feature.function
    where, window = _written(named.where, schema), feature.window
    special = repr(window) if window.calendar or window.needs_raw_events or feature.periods else ""
    beside = window.reach_ms, window.offset_ms, window.exclude, special
    steps = [_written(each, schema) for each in (*feature.step_filters, feature.between or ())]
    return repr((function, feature.of_text, beside, where, sorted(named.fields), feature.p, steps, feature.within_ms))


def _written(where: Filter, schema: EventSchema | None) -> str:
    """Return a filter in the normal form of all its spellings."""
    try:
        return repr(filter_identity(where if schema is None else canonical_filter(where, schema)))
    except ValueError:
        return repr(filter_condition(where, schema))


def _renamed(part: Expression, names: Mapping[str, str]) -> Expression:
    if part.operator == "field":
        return replace(part, value=names.get(str(part.value), part.value))
    return replace(part, operands=tuple(_renamed(operand, names) for operand in part.operands))
