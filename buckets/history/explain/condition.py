"""The condition of a rule in its parts: which of them hold, and how far each comparison is from the other side.

What a rule computes.
"""

import operator as operators
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from buckets.aggregates.aggregate import Aggregate
from buckets.aggregates.plain import PlainValue
from buckets.expressions.certainty import Truths, Value, possible_number, possible_truths
from buckets.expressions.decimals import Interval
from buckets.expressions.expression import COMPARISONS, Expression
from buckets.expressions.wording import in_words, value_in_words
from buckets.history.explain.explanation import ConditionPart, Truth
from buckets.lists.index import ListsAt
from buckets.numbers.fixed_point import readable
from buckets.printable import elements_shown, one_line
from buckets.rules.feature import Limit, NamedFeature, Window
from buckets.rules.filter import Filter
from buckets.rules.rule import Rule
from buckets.rules.sql_filter import SqlFilter

_VERBS: Final = {
    "=": ("is exactly", "is not exactly"),
    "!=": ("is not", "is"),
    ">": ("is above", "is not above"),
    ">=": ("is at least", "is below"),
    "<": ("is below", "is not below"),
    "<=": ("is at most", "is above"),
}
"""A comparison that is true, and one that is false."""
_JOINS: Final[dict[str, Literal["all", "any", "not"]]] = {"and": "all", "or": "any", "not": "not"}
_COMPARE: Final[dict[str, Callable[[Fraction, Fraction], bool]]] = {
    "=": operators.eq,
    "!=": operators.ne,
    ">": operators.gt,
    ">=": operators.ge,
    "<": operators.lt,
    "<=": operators.le,
}


@dataclass(frozen=True)
class KnownValues:
    """What a condition is about."""

    values: Mapping[str, Value]  # by name, features and fields of the event; NULL is None
    why_null: Mapping[str, str]  # by name, why a feature has no value
    lists: ListsAt | None  # as they were at the event

    def words(self, name: str) -> str:
        """Return a value with its name."""
        return f"{name} ({shown(self.values[name])})"


def shown(value: Value) -> str:
    """Return a value as people read it."""
    if value is None:
        return "no value"
    if isinstance(value, Interval):
        return f"{readable(value.lower)} to {readable(value.upper)}"
    if isinstance(value, list):
        return elements_shown([shown(element) for element in value])
    if isinstance(value, frozenset):
        return "yes or no" if len(value) > 1 else shown(next(iter(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return readable(Decimal(value)) if isinstance(value, Decimal | int) else one_line(value)


def explain_condition(when: SqlFilter, known: KnownValues) -> ConditionPart:
    """Explain a condition part by part, in the order in which it was written."""
    from buckets.expressions.parser import parse_expression

    return _part(parse_expression(when.text), known)


def explain_test(name: str, value: PlainValue, limit: Limit) -> ConditionPart:
    """Explain a comparison that the kernel has made: of all digits, also of those that are not shown."""
    assert isinstance(value.exact, Fraction)
    assert isinstance(value.shown, Decimal)
    test = Expression(limit.operator, (Expression("field", value=name), Expression("number", value=limit.value)))
    holds = _COMPARE[limit.operator](value.exact, Fraction(limit.value))
    return _compared(test, value.shown, limit.value, "true" if holds else "false")


def _part(expression: Expression, known: KnownValues) -> ConditionPart:
    operator = expression.operator
    truth = _truth(possible_truths(expression, known.values, known.lists))
    if operator in ("and", "or", "not"):
        parts = tuple(_part(operand, known) for operand in expression.operands)
        return ConditionPart(_JOINS[operator], _words(expression, known), truth, parts=parts)
    nulls = [name for name in dict.fromkeys(expression.fields()) if known.values[name] is None]
    if truth == "unknown" and nulls:
        because = "; ".join(known.why_null.get(name, f"{name} is missing") for name in nulls)
        return ConditionPart("test", f"{_words(expression, known)} is unknown: {because}", truth)
    if operator in COMPARISONS:
        first, second = (possible_number(operand, known.values, known.lists) for operand in expression.operands)
        if first is not None and second is not None and first.is_exact and second.is_exact:
            return _compared(expression, first.lower, second.lower, truth)
    holds = {"true": "holds", "false": "does not hold", "unknown": "is unknown", "uncertain": "may hold"}[truth]
    return ConditionPart("test", f"{_words(expression, known)}: {holds}", truth)


def _compared(expression: Expression, first: Decimal, second: Decimal, truth: Truth) -> ConditionPart:
    """Explain a comparison of two numbers, and how far they lie apart."""
    left, right = expression.operands
    verb = _VERBS[expression.operator][truth != "true"]
    distance = abs(first - second)
    apart = f"by {readable(distance)}" if distance else "they are equal"
    text = f"{_side(left, first)} {verb} {_side(right, second)}"
    if expression.operator in ("=", "!="):
        text += "" if not distance else f", {readable(distance)} apart"
    else:
        text += f" {apart}" if distance else f", {apart}"
    return ConditionPart("test", text, truth, distance)


def _side(expression: Expression, value: Decimal) -> str:
    """Return a side of a comparison, with its value where that does not stand there already."""
    if expression.operator == "number":
        return readable(value)
    words = value_in_words(expression)
    return f"{words} {readable(value)}"


def _words(expression: Expression, known: KnownValues) -> str:
    return in_words(expression, {name: known.words(name) for name in set(expression.fields())})


def _truth(truths: Truths) -> Truth:
    if len(truths) > 1:
        return "uncertain"
    (truth,) = truths
    return "unknown" if truth is None else "true" if truth else "false"


@dataclass(frozen=True)
class Computation:
    """What is computed: a feature."""

    name: str  # of the feature
    aggregate: Aggregate  # what computes it
    of: str | None  # the field; None where only events are counted
    window: Window  # over which
    fields: tuple[str, ...]  # by which fields its group groups
    group_where: Filter  # the filter of its group
    where: Filter  # which events of the group it counts
    phrase: str  # it in English
    tracks: tuple[str, ...]  # what its timeline keeps for it, by name

    def start_ms(self, time_ms: int) -> int:
        """Return the first time that is in the window of an event."""
        return time_ms - self.window.reach_ms


def computations(rule: Rule) -> list[Computation]:
    """Return what a rule computes, in its order."""
    return [_computation(rule, named) for named in rule.named_features()]


def _computation(rule: Rule, named: NamedFeature) -> Computation:
    feature = named.feature
    return Computation(
        name=named.name,
        aggregate=feature.aggregate,
        of=None if feature.aggregate.by_value else feature.of,
        window=feature.window,
        fields=tuple(named.fields),
        group_where=named.group_where,
        where=named.counted,
        phrase=rule.phrase(named),
        tracks=tuple(dict.fromkeys(track.name for _, part in named.parts() for track in part.tracks)),
    )
