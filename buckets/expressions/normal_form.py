"""One form for expressions that say the same in another order or spelling.

NOT stands only before what has no opposite, which is as true with NULL; AND and OR hold nothing twice and nothing of
their own kind, in a fixed order; a comparison has its literal on the right; equalities of one thing joined by OR are
one IN. What is looked for in an array stands behind it.
"""

from buckets.expressions.expression import COMPARISONS, Expression
from buckets.expressions.sql_text import to_sql

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def normalise(expression: Expression) -> Expression:
    """Return a condition in its one form."""
    return _condition(expression, is_negated=False)


def _condition(expression: Expression, is_negated: bool) -> Expression:
    operator, operands = expression.operator, expression.operands
    if operator == "not":
        return _condition(operands[0], not is_negated)
    if operator in ("and", "or"):
        joined = {"and": "or", "or": "and"}[operator] if is_negated else operator
        return _joined(joined, [_condition(operand, is_negated) for operand in operands], expression.at)
    if operator in COMPARISONS:
        return _comparison(expression, is_negated)
    if operator == "in":
        return _membership(expression, is_negated)
    if operator == "boolean":
        return Expression("boolean", value=bool(expression.value) != is_negated, at=expression.at)
    if operator in ("field", "coalesce"):
        return Expression("=", (_value(expression), Expression("boolean", value=not is_negated)), at=expression.at)
    found = _value(expression)
    return Expression("not", (found,), at=expression.at) if is_negated else found


def _value(expression: Expression) -> Expression:
    """Return an operand, and what is in it."""
    operator = expression.operator
    if operator in ("and", "or", "not", "in", *COMPARISONS):
        return _condition(expression, is_negated=False)
    operands = tuple(map(_value, expression.operands))
    if operator in ("+", "*"):
        first, *others = sorted(_chain(Expression(operator, operands), operator), key=_order)
        for other in others[:-1]:
            first = Expression(operator, (first, other), at=expression.at)
        operands = (first, others[-1])
    # A ratio is a quotient under another name.
    return Expression("/" if operator == "ratio" else operator, operands, expression.value, expression.at)


def _chain(expression: Expression, operator: str) -> list[Expression]:
    """Return what an operator joins, however it is put into brackets; sums and products are exact."""
    if expression.operator != operator:
        return [expression]
    return [each for operand in expression.operands for each in _chain(operand, operator)]


def _order(expression: Expression) -> tuple[bool, str]:
    """Return literals after all else, then by text."""
    return expression.is_literal, to_sql(expression)


def _comparison(expression: Expression, is_negated: bool) -> Expression:
    first, second = map(_value, expression.operands)
    operator = _OPPOSITE[expression.operator] if is_negated else expression.operator
    if operator == "!=" and "boolean" in (first.operator, second.operator):
        # What is not true is false.
        operator, first, second = "=", *_one_opposite(first, second)
    if _order(second) < _order(first):
        first, second, operator = second, first, _MIRRORED[operator]
    return Expression(operator, (first, second), at=expression.at)


def _one_opposite(first: Expression, second: Expression) -> tuple[Expression, Expression]:
    """Return two conditions, the one that is written as a value turned round."""
    if second.operator == "boolean":
        return first, Expression("boolean", value=not second.value)
    return Expression("boolean", value=not first.value), second


def _membership(expression: Expression, is_negated: bool) -> Expression:
    first, *members = map(_value, expression.operands)
    different = sorted(set(members), key=_order)
    if len(different) == 1 and not first.is_array:
        return _comparison(Expression("=", (first, different[0]), at=expression.at), is_negated)
    found = Expression("in", (first, *different), at=expression.at)
    return Expression("not", (found,), at=expression.at) if is_negated else found


def _joined(operator: str, parts: list[Expression], at: int) -> Expression:
    flat = [each for part in parts for each in (part.operands if part.operator == operator else (part,))]
    flat = _merged(flat, is_negated=operator == "and")
    different = sorted(set(flat), key=_order)
    return different[0] if len(different) == 1 else Expression(operator, tuple(different), at=at)


def _merged(parts: list[Expression], is_negated: bool) -> list[Expression]:
    """Return equalities of one thing with literals as one IN; for what AND joins, the opposites as one NOT IN."""
    members: dict[Expression, list[Expression]] = {}
    others: list[Expression] = []
    for part in parts:
        inner = part.operands[0] if is_negated and part.operator == "not" else part
        is_in = inner.operator == "in" and (inner is not part) == is_negated
        is_equal = part.operator == ("!=" if is_negated else "=") and part.operands[1].is_literal
        if is_in:
            members.setdefault(inner.operands[0], []).extend(inner.operands[1:])
        elif is_equal:
            members.setdefault(part.operands[0], []).append(part.operands[1])
        else:
            others.append(part)
    for first, values in members.items():
        others.append(_membership(Expression("in", (first, *values)), is_negated))
    return others
