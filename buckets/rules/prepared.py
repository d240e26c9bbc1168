"""Rules with features, laid out once for all batches: what several of them share has a number."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from buckets.rules.condition import condition_fields
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter
from buckets.rules.part import Part
from buckets.rules.policy import Effective
from buckets.rules.rule import Rule
from buckets.rules.sql_filter import SqlFilter
from buckets.rules.template import Holes, Template


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
    members: dict[Hashable, list[tuple[int, Holes]]] = {}
    conditions: dict[Hashable, tuple[int, SqlFilter]] = {}
    for number, prepared in enumerate(rules):
        when, holes = prepared.rule.when, Holes()
        condition = SqlFilter(holes.cut_into(when.expression), when.text)
        alone = number if when.lists else None
        key: Hashable = (prepared.choice, condition, tuple(prepared.features.items()), prepared.fields, alone)
        members.setdefault(key, []).append((number, holes))
        conditions.setdefault(key, (prepared.choice, condition))
    return tuple(Template.of(*conditions[key], of_template) for key, of_template in members.items())
