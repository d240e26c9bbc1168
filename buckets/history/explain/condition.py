"""The condition of a rule in its parts: which of them hold, and how far each comparison is from the other side."""

import operator as operators
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from buckets.expressions.certainty import Between, Truths, Value, possible_number, possible_truths
from buckets.expressions.expression import COMPARISONS, Expression
from buckets.expressions.wording import in_words, value_in_words
from buckets.history.explain.explanation import Part, Truth
from buckets.history.explain.value import PlainValue
from buckets.lists.lists import ListsAt
from buckets.numbers.fixed_point import readable
from buckets.printable import one_line
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
    """What a condition is about.

    Attributes:
        values: by name, features and fields of the event; NULL is None.
        why_null: by name, why a feature has no value.
        lists: as they were at the event.
    """

    values: Mapping[str, Value]
    why_null: Mapping[str, str]
    lists: ListsAt | None

    def words(self, name: str) -> str:
        """A value with its name."""
        return f"{name} ({shown(self.values[name])})"


def shown(value: Value) -> str:
    """A value as people read it."""
    if value is None:
        return "no value"
    if isinstance(value, Between):
        return f"{readable(Decimal(value.lower))} to {readable(Decimal(value.upper))}"
    if isinstance(value, frozenset):
        return "yes or no" if len(value) > 1 else shown(next(iter(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return readable(Decimal(value)) if isinstance(value, Decimal | int) else one_line(value)


def explain_condition(when: SqlFilter, known: KnownValues) -> Part:
    """A condition in its parts, in the order in which it was written."""
    from buckets.expressions.parser import parse_expression

    return _part(parse_expression(when.text), known)


def explain_test(name: str, value: PlainValue, operator: str, limit: Decimal) -> Part:
    """The comparison of a rule of one aggregate with its limit: of all digits, also of those that are not shown."""
    assert isinstance(value.exact, Fraction)
    assert isinstance(value.shown, Decimal)
    test = Expression(operator, (Expression("field", value=name), Expression("number", value=limit)))
    holds = _COMPARE[operator](value.exact, Fraction(limit))
    return _compared(test, value.shown, limit, "true" if holds else "false")


def _part(expression: Expression, known: KnownValues) -> Part:
    operator = expression.operator
    truth = _truth(possible_truths(expression, known.values, known.lists))
    if operator in ("and", "or", "not"):
        parts = tuple(_part(operand, known) for operand in expression.operands)
        return Part(_JOINS[operator], _words(expression, known), truth, parts=parts)
    nulls = [name for name in dict.fromkeys(expression.fields()) if known.values[name] is None]
    if truth == "unknown" and nulls:
        because = "; ".join(known.why_null.get(name, f"{name} is missing") for name in nulls)
        return Part("test", f"{_words(expression, known)} is unknown: {because}", truth)
    if operator in COMPARISONS:
        first, second = (possible_number(operand, known.values, known.lists) for operand in expression.operands)
        if first is not None and second is not None and first.is_exact and second.is_exact:
            return _compared(expression, first.lower, second.lower, truth)
    holds = {"true": "holds", "false": "does not hold", "unknown": "is unknown", "uncertain": "may hold"}[truth]
    return Part("test", f"{_words(expression, known)}: {holds}", truth)


def _compared(expression: Expression, first: Decimal, second: Decimal, truth: Truth) -> Part:
    """A comparison of two numbers, and how far they lie apart."""
    left, right = expression.operands
    verb = _VERBS[expression.operator][truth != "true"]
    distance = abs(first - second)
    apart = f"by {readable(distance)}" if distance else "they are equal"
    text = f"{_side(left, first)} {verb} {_side(right, second)}"
    if expression.operator in ("=", "!="):
        text += "" if not distance else f", {readable(distance)} apart"
    else:
        text += f" {apart}" if distance else f", {apart}"
    return Part("test", text, truth, distance)


def _side(expression: Expression, value: Decimal) -> str:
    """A side of a comparison, with its value where that does not stand there already."""
    if expression.operator == "number":
        return readable(value)
    words = value_in_words(expression)
    return f"{words} {readable(value)}"


def _words(expression: Expression, known: KnownValues) -> str:
    return in_words(expression, {name: known.words(name) for name in set(expression.fields())})


def _truth(truths: Truths) -> Truth:
    if len(truths) > 1:
        return "uncertain"
    (found,) = truths
    return "unknown" if found is None else "true" if found else "false"
