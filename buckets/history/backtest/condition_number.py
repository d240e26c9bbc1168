"""The number that a condition compares a feature with, as 10 in `payments >= 10`."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from buckets.expressions.expression import COMPARISONS, Expression


def number_fault(when: str, feature: str) -> str | None:
    """Say why it is not clear which number is meant; None if it is."""
    from buckets.expressions.parser import parse_expression

    count = sum(1 for _ in _comparisons(parse_expression(when), feature))
    if count == 1:
        return None
    how_often = "with no number" if not count else f"{count:,} times with a number"
    return f"the condition compares {feature} {how_often}; sweep one that is compared with one, as in {feature} > 5"


def with_number(when: str, feature: str, number: Decimal) -> str:
    """Return a condition with another number instead of that one."""
    from buckets.expressions.parser import parse_expression
    from buckets.expressions.sql_text import to_sql

    expression = parse_expression(when)
    (old,) = _comparisons(expression, feature)
    literal = Expression("number", value=number)
    operands = tuple(literal if _is_number(operand) else operand for operand in old.operands)
    return to_sql(_replaced(expression, old, replace(old, operands=operands)))


def _comparisons(expression: Expression, feature: str) -> Iterator[Expression]:
    """Return the comparisons of a feature with a number as it is written."""
    operands = expression.operands
    has_feature = any(operand.operator == "field" and operand.value == feature for operand in operands)
    if expression.operator in COMPARISONS and has_feature and any(map(_is_number, operands)):
        yield expression
    for operand in operands:
        yield from _comparisons(operand, feature)


def _is_number(expression: Expression) -> bool:
    if expression.operator == "negate":
        return _is_number(expression.operands[0])
    return expression.operator == "number"


def _replaced(expression: Expression, old: Expression, new: Expression) -> Expression:
    if expression is old:
        return new
    return replace(expression, operands=tuple(_replaced(operand, old, new) for operand in expression.operands))
