"""Writes expressions as SQL, which reads back as the same expression."""

import functools
import re
from decimal import Decimal
from typing import Final

from buckets.expressions.expression import ARITHMETIC, COMPARISONS, FUNCTIONS, TESTS, Expression

DIALECT: Final = "spark"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BINDING = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys((*COMPARISONS, *TESTS), 4),
}
_BINDING |= {"+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "negate": 7, "zone": 8}
_ATOM = 9


def to_sql(expression: Expression) -> str:
    """Return an expression as SQL; of equal expressions, the same text."""
    return _written(expression)[0]


@functools.cache
def _keywords() -> frozenset[str]:
    """Return words that mean something to SQL, so that a field of that name needs backticks."""
    import sqlglot  # takes long to import, and few texts have names

    dialect = sqlglot.Dialect.get_or_raise(DIALECT)
    parser = dialect.parser_class
    return frozenset(
        [
            *dialect.tokenizer_class.KEYWORDS,
            *parser.FUNCTIONS,
            *parser.FUNCTION_PARSERS,
            *parser.NO_PAREN_FUNCTION_PARSERS,
        ]
    )


def quoted_text(text: str) -> str:
    """Return a text as a literal of SQL."""
    escaped = (
        text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f"'{escaped}'"


def quoted_name(name: str) -> str:
    """Return the name of a field in SQL: as it is, or in backticks where it is no plain word."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in _keywords():
        return name
    return "`" + name.replace("`", "``") + "`"


def _literal(expression: Expression) -> str:
    if expression.operator == "boolean":
        return "TRUE" if expression.value else "FALSE"
    if expression.operator == "number":
        assert isinstance(expression.value, Decimal)
        return format(expression.value, "f")
    return quoted_text(str(expression.value))


def _written(expression: Expression) -> tuple[str, int]:
    """SQL, and how firmly its parts hold together."""
    operator, operands = expression.operator, expression.operands
    if operator == "not" and operands[0].operator in TESTS:
        return _test_of_one(operands[0], "NOT "), _BINDING["in"]
    if expression.is_literal:
        written = _literal(expression)
        return written, _BINDING["negate"] if written.startswith("-") else _ATOM
    if operator == "field":
        return quoted_name(str(expression.value)), _ATOM
    if operator == "lookup":
        return f"lookup({expression.value}, {', '.join(map(to_sql, operands))})", _ATOM
    if operator in FUNCTIONS:
        return f"{operator}({', '.join(to_sql(operand) for operand in operands)})", _ATOM
    binding = _BINDING[operator]
    return _with_operator(expression, binding), binding


def _with_operator(expression: Expression, binding: int) -> str:
    operator, operands = expression.operator, expression.operands
    if operator in ("and", "or"):
        return f" {operator.upper()} ".join(_inside(operand, binding + 1) for operand in operands)
    if operator == "not":
        return f"NOT {_inside(operands[0], binding)}"
    if operator == "negate":
        return f"-{_inside(operands[0], _ATOM)}"
    if operator in TESTS:
        return _test_of_one(expression, "")
    first = _inside(operands[0], binding + (operator not in ARITHMETIC))
    if operator == "zone":
        return f"{first} AT TIME ZONE {quoted_text(str(expression.value))}"
    return f"{first} {operator} {_inside(operands[1], binding + 1)}"


def _test_of_one(expression: Expression, negation: str) -> str:
    """IN, LIKE or IS NULL, with NOT where it is read best."""
    first, *members = expression.operands
    tested = _inside(first, _BINDING["in"] + 1)
    if expression.operator == "is_null":
        return f"{tested} IS {negation}NULL"
    if expression.operator == "like":
        return f"{tested} {negation}LIKE {quoted_text(str(expression.value))}"
    if expression.operator == "in_list":
        return f"{tested} {negation}IN LIST {expression.value}"
    return f"{tested} {negation}IN ({', '.join(map(to_sql, members))})"


def _inside(expression: Expression, needed: int) -> str:
    """SQL as an operand, in brackets where it would fall apart."""
    written, binding = _written(expression)
    return written if binding >= needed else f"({written})"
