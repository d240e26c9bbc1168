"""Rules with features, laid out once for all batches: what several of them share has a number."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from buckets.rules.condition import condition_fields
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter
from buckets.rules.part import Part
from buckets.rules.policy import Effective
from buckets.rules.rule import Rule
from buckets.rules.sql_filter import SqlFilter
from buckets.rules.template import Template, column_of, hole, with_holes


@dataclass(frozen=True)
class Choice:
    """What decides at which events a rule is evaluated.

    Attributes:
        where: its filter.
        needed: the parts that it needs, each with the fields of its group.
        effective: from when until when it is in effect; None for always.
    """

    where: Filter
    needed: tuple[tuple[frozenset[str], Part], ...]
    effective: Effective | None


@dataclass(frozen=True)
class PreparedRule:
    """A rule.

    Attributes:
        rule: the rule.
        choice: the number of its choice.
        features: by name, the number of each feature.
        fields: the fields of events that its condition names.
    """

    rule: Rule
    choice: int
    features: dict[str, int]
    fields: tuple[str, ...]


@dataclass(frozen=True)
class PreparedRules:
    """Rules whose features are all in the same groups.

    Attributes:
        rules: the rules.
        templates: their conditions, those together that differ in numbers alone.
        choices: their different choices.
        features: their different features, without names.
    """

    rules: tuple[PreparedRule, ...]
    templates: tuple[Template, ...]
    choices: tuple[Choice, ...]
    features: tuple[NamedFeature, ...]


def prepare(rules: Iterable[Rule]) -> PreparedRules:
    """Lay out rules that need the same groups."""
    choices: dict[Choice, int] = {}
    features: dict[NamedFeature, int] = {}
    prepared = []
    for rule in rules:
        needed = tuple((frozenset(fields), part) for fields, _ in rule.groupings() for part in rule.parts(fields))
        choice = choices.setdefault(Choice(rule.where, needed, rule.effective), len(choices))
        named = {
            each.name: features.setdefault(replace(each, name=""), len(features)) for each in rule.named_features()
        }
        prepared.append(PreparedRule(rule, choice, named, tuple(condition_fields(rule.when, named))))
    return PreparedRules(tuple(prepared), _templates(prepared), tuple(choices), tuple(features))


def _templates(rules: Iterable[PreparedRule]) -> tuple[Template, ...]:
    """Return the templates of the conditions of rules; a condition that looks into a list has one for itself."""
    alike: dict[Hashable, list[tuple[int, list[Decimal]]]] = {}
    conditions: dict[Hashable, tuple[int, SqlFilter]] = {}
    for number, prepared in enumerate(rules):
        when, numbers = prepared.rule.when, list[Decimal]()
        holed = with_holes(when.expression, numbers)
        alone = number if when.lists else None
        key: Hashable = (prepared.choice, holed, tuple(prepared.features.items()), prepared.fields, alone)
        alike.setdefault(key, []).append((number, numbers))
        conditions.setdefault(key, (prepared.choice, SqlFilter(holed, when.text)))
    templates = []
    for key, members in alike.items():
        columns = zip(*(numbers for _, numbers in members), strict=True)
        bounds = {hole(index): column_of(values) for index, values in enumerate(columns)}
        choice, condition = conditions[key]
        templates.append(Template(choice, condition, tuple(number for number, _ in members), bounds))
    return tuple(templates)
