"""Rules with features, compiled once for all batches: parts that several of them share get a number."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from buckets.arrays import Int64s
from buckets.expressions.expression import COMPARISONS, Expression
from buckets.expressions.number_functions import Numbers, compared_with_limits, constant, sized
from buckets.rules.condition import SqlFilter, condition_fields
from buckets.rules.feature import NamedFeature, Part
from buckets.rules.filter import Filter
from buckets.rules.rule import Effective, Rule


class LimitTest(NamedTuple):
    """A feature or a field of the event that is compared with a number."""

    name: str
    operator: str
    number: Decimal


@dataclass(frozen=True)
class LimitTests:
    """The tests of one feature or field at one place of a template, one per rule."""

    name: str  # of the feature or field
    # by operator, which rules compare so, ascending, and their numbers, `(rules, 1)`
    limits: dict[str, tuple[Int64s, Numbers]]

    @classmethod
    def of(cls, tests: Sequence[LimitTest]) -> "LimitTests":
        """Return the tests of rules, one per rule."""
        limits = {}
        for operator in dict.fromkeys(test.operator for test in tests):
            rules = [rule for rule, test in enumerate(tests) if test.operator == operator]
            numbers = column_of([tests[rule].number for rule in rules])
            limits[operator] = np.array(rules, np.int64), numbers.rows((slice(None), None))
        return cls(tests[0].name, limits)

    def truths(self, values: Numbers, rules: range) -> pa.BooleanArray:
        """Return the results of the tests of some rules at events, grouped by rule; NULL if a value is."""
        truths = np.empty((len(rules), len(values.scaled)), np.bool_)
        for operator, (of_rules, limits) in self.limits.items():
            chosen = slice(*np.searchsorted(of_rules, (rules.start, rules.stop)))
            truths[of_rules[chosen] - rules.start] = compared_with_limits(operator, values, limits.rows(chosen))
        is_null = None if values.valid.all() else np.tile(~values.valid, len(rules))
        return pa.array(truths.ravel(), mask=is_null)


@dataclass
class Holes:
    """The values for the holes of one condition, in order; names of holes are never those of fields or features."""

    numbers: list[Decimal] = field(default_factory=list)  # what is compared with anything but a feature or a field
    tests: list[LimitTest] = field(default_factory=list)  # of features and fields

    def cut_into(self, expression: Expression) -> Expression:
        """Return a condition with its constants replaced by holes, and keep the constants."""
        operator, operands = expression.operator, expression.operands
        if operator in ("and", "or", "not"):
            return Expression(operator, tuple(map(self.cut_into, operands)))
        if operator not in COMPARISONS:
            return expression
        first, second = operands
        if first.operator == "field" and isinstance(second.value, Decimal):
            self.tests.append(LimitTest(str(first.value), operator, second.value))
            return Expression("field", value=f"\0{len(self.tests) - 1} {first.value}")
        return Expression(operator, tuple(map(self._without_number, operands)))

    def _without_number(self, operand: Expression) -> Expression:
        if not isinstance(operand.value, Decimal):
            return operand
        self.numbers.append(operand.value)
        return Expression("field", value=f"\0{len(self.numbers) - 1}")


@dataclass(frozen=True)
class Template:
    """Conditions that differ only in constants, over the same features and fields at the same events."""

    choice: int  # the number of the choice of their rules
    condition: SqlFilter  # with the holes as fields that no event has
    rules: tuple[int, ...]  # the numbers of the rules
    bounds: dict[str, Numbers]  # by hole, the numbers that stand there, one for each rule
    tests: dict[str, LimitTests]  # by hole, the tests that stand there


def column_of(values: Sequence[Decimal]) -> Numbers:
    """Return numbers of different scales as one column."""
    constants = [constant(value) for value in values]
    scale = max(number.scale for number in constants)
    scaled = [int(number.scaled) * 10 ** (scale - number.scale) for number in constants]
    largest = max(map(abs, scaled))
    return Numbers(sized(scaled, largest), scale, largest, np.ones(len(scaled), np.bool_))


@dataclass(frozen=True)
class Choice:
    """The criteria that select the events at which a rule is evaluated."""

    where: Filter  # its filter
    needed: tuple[tuple[frozenset[str], Part], ...]  # the parts that it needs, each with the fields of its group
    effective: Effective | None  # from when until when it is in effect; None for always


@dataclass(frozen=True)
class PreparedRule:
    """A rule."""

    rule: Rule  # the rule
    choice: int  # the number of its choice
    features: dict[str, int]  # by name, the number of each feature
    fields: tuple[str, ...]  # the fields of events that its condition names


@dataclass(frozen=True)
class PreparedRules:
    """Rules whose features are all in the same groups."""

    rules: tuple[PreparedRule, ...]  # the rules
    templates: tuple[Template, ...]  # their conditions, those together that differ in numbers alone
    choices: tuple[Choice, ...]  # their different choices
    features: tuple[NamedFeature, ...]  # their different features, without names


def prepare(rules: Iterable[Rule]) -> PreparedRules:
    """Compile rules that need the same groups."""
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
    return PreparedRules(tuple(prepared), tuple(_templates(prepared)), tuple(choices), tuple(features))


def _templates(rules: Iterable[PreparedRule]) -> Iterator[Template]:
    """Yield the templates of the conditions of rules; a condition that looks into a list gets its own."""
    members: dict[tuple[int, SqlFilter, Hashable], list[tuple[int, Holes]]] = {}
    for number, prepared in enumerate(rules):
        when, holes = prepared.rule.when, Holes()
        condition = SqlFilter(holes.cut_into(when.expression), when.text)
        alone = number if when.lists else None
        key = (prepared.choice, condition, (*prepared.features.items(), *prepared.fields, alone))
        members.setdefault(key, []).append((number, holes))
    for (choice, condition, _), of_template in members.items():
        numbers, holes_of_rules = zip(*of_template, strict=True)
        bounds = zip(*(holes.numbers for holes in holes_of_rules), strict=True)
        tests = map(LimitTests.of, zip(*(holes.tests for holes in holes_of_rules), strict=True))
        yield Template(
            choice,
            condition,
            numbers,
            {f"\0{index}": column_of(values) for index, values in enumerate(bounds)},
            {f"\0{index} {of_rules.name}": of_rules for index, of_rules in enumerate(tests)},
        )
