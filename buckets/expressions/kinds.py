"""What kinds of values the parts of an expression have, and whether they go together."""

from collections.abc import Mapping
from typing import Final

from buckets.expressions.expression import (
    ARITHMETIC,
    COMPARISONS,
    ELEMENT_KINDS,
    LIST_TESTS,
    NUMBER_FUNCTIONS,
    Expression,
    ExpressionError,
    Kind,
    to_sql,
)
from buckets.time_zone import is_zone

_ARTICLES: dict[Kind, str] = {
    "text": "a text",
    "number": "a number",
    "boolean": "true or false",
    "time": "a time",
    "texts": "an array of texts",
    "numbers": "an array of numbers",
    "booleans": "an array of true and false",
}
_SIGNATURES: Final[dict[str, tuple[Kind, Kind]]] = {
    "abs": ("number", "number"),
    "array_size": ("texts", "number"),
    "dayofweek": ("time", "number"),
    "hour": ("time", "number"),
    "length": ("text", "number"),
    "lower": ("text", "text"),
    "trim": ("text", "text"),
    "upper": ("text", "text"),
}
"""What functions of one operand take and give."""


def check_condition(expression: Expression, fields: Mapping[str, Kind]) -> None:
    """See that an expression is a condition over known fields.

    Args:
        expression: what is checked.
        fields: the kind of each field.

    Raises:
        ExpressionError: a field is not known, kinds do not go together, or it is no condition.
    """
    _need(expression, "boolean", fields, "a condition is true or false, and")


def kind_of(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of an expression's value.

    Raises:
        ExpressionError: a field is not known, or kinds do not go together.
    """
    operator, operands = expression.operator, expression.operands
    if operator in ("text", "number", "boolean"):
        return operator  # type: ignore[return-value]
    if operator == "field":
        return _field(expression, fields)
    if operator in ("and", "or", "not"):
        for operand in operands:
            _need(operand, "boolean", fields, f"{operator.upper()} takes conditions, and")
        return "boolean"
    if operator in COMPARISONS or operator == "in":
        return _comparison(expression, fields)
    if operator in ARITHMETIC or operator in NUMBER_FUNCTIONS or operator == "negate":
        for operand in operands:
            _need(operand, "number", fields, f"{'-' if operator == 'negate' else operator} takes numbers, and")
        return "number"
    if operator == "is_null":
        kind_of(operands[0], fields)
        return "boolean"
    if operator == "like":
        if kind_of(operands[0], fields) != "texts":
            _need(operands[0], "text", fields, "LIKE takes a text, and")
        return "boolean"
    if operator in LIST_TESTS:
        return _list_test(expression, fields)
    if operator == "zone":
        return _zone(expression, fields)
    if operator == "coalesce":
        return _same_kind(expression, fields)
    if operator == "array_size" and len(operands) == 1:
        return _array_size(operands[0], fields)
    takes, gives = _SIGNATURES[operator]
    if len(operands) != 1:
        message = f"{operator} takes one operand"
        raise ExpressionError(message, expression.at)
    _need(operands[0], takes, fields, f"{operator} takes {_ARTICLES[takes]}, and")
    return gives


def _need(expression: Expression, wanted: Kind, fields: Mapping[str, Kind], why: str) -> None:
    kind = kind_of(expression, fields)
    if kind != wanted:
        message = f"{why} {to_sql(expression)} is {_ARTICLES[kind]}"
        raise ExpressionError(message, expression.at)


def _field(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    name = str(expression.value)
    if name not in fields:
        close = [known for known in fields if known.lower() == name.lower()]
        known = f"did you mean {close[0]}?" if close else f"there are {', '.join(fields) or 'none'}"
        message = f"there is no field {name!r}; {known}"
        raise ExpressionError(message, expression.at)
    return fields[name]


def _array_size(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    kind = kind_of(expression, fields)
    if kind not in ELEMENT_KINDS:
        message = f"array_size takes an array, and {to_sql(expression)} is {_ARTICLES[kind]}"
        raise ExpressionError(message, expression.at)
    return "number"


def _comparison(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    first = expression.operands[0]
    of_first = kind = kind_of(first, fields)
    if kind in ELEMENT_KINDS:
        if expression.operator != "in":
            shown = to_sql(first)
            message = f"{shown} is {_ARTICLES[kind]}; write IN, as in {shown} IN ('X'), or array_size(…)"
            raise ExpressionError(message, expression.at)
        kind = ELEMENT_KINDS[kind]
    for other in expression.operands[1:]:
        other_kind = kind_of(other, fields)
        if kind != other_kind:
            message = (
                f"{to_sql(first)} is {_ARTICLES[of_first]}, and {to_sql(other)} is {_ARTICLES[other_kind]}; "
                "they cannot be compared"
            )
            raise ExpressionError(message, expression.at)
    if kind == "time":
        message = "times are not compared here; use hour(…) or dayofweek(…)"
        raise ExpressionError(message, expression.at)
    if kind in ("text", "boolean") and expression.operator not in ("=", "!=", "in"):
        message = f"{expression.operator} needs numbers, and {to_sql(first)} is {_ARTICLES[kind]}"
        raise ExpressionError(message, expression.at)
    return "boolean"


def _list_test(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    key = expression.operands[0]
    kind = kind_of(key, fields)
    if kind in ELEMENT_KINDS and expression.operator == "in_list":
        return "boolean"
    if kind == "time" or kind in ELEMENT_KINDS:
        message = f"the key of a list is a text, a number, or true or false, and {to_sql(key)} is {_ARTICLES[kind]}"
        raise ExpressionError(message, expression.at)
    if kind != "text" and key.operator != "field":
        message = f"the key of a list is a field as it stands, or a text, and {to_sql(key)} is computed"
        raise ExpressionError(message, expression.at)
    return "boolean" if expression.operator == "in_list" else "text"


def _zone(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    operand = expression.operands[0]
    _need(operand, "time", fields, "AT TIME ZONE takes a time, and")
    if operand.operator == "zone":
        message = "the time is in a zone already"
        raise ExpressionError(message, expression.at)
    name = str(expression.value)
    if not is_zone(name):
        message = f"there is no time zone {name!r}; write one such as 'Europe/Berlin' or 'UTC'"
        raise ExpressionError(message, expression.at)
    return "time"


def _same_kind(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    first, *others = [kind_of(operand, fields) for operand in expression.operands]
    if first == "time" or first in ELEMENT_KINDS or any(other != first for other in others):
        message = "coalesce takes texts, numbers or conditions, all of one kind"
        raise ExpressionError(message, expression.at)
    return first
