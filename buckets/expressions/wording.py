"""Writes conditions as plain English, for the sentence of a rule and for that of an alert.

    recent > 5 * usual AND payments >= 10
    recent is above 5 times usual and payments is at least 10
    recent (8,120.00) is above 5 times usual (310.25) and payments (12) is at least 10

Conditions that mean different things read differently: brackets stand around all that could be taken apart in another
way, and a text that could be taken for something else stands in quotes.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from buckets.expressions.expression import ARITHMETIC, COMPARISONS, TESTS, Expression, quoted_text
from buckets.printable import in_quotes, one_line, quoted

Words = Callable[[str], str] | Mapping[str, str]
"""What stands for a field: a function of its name, or a mapping from those names that do not stand for themselves."""
_VERBS: Final = {"=": "is", "!=": "is not", ">": "is above", ">=": "is at least", "<": "is below", "<=": "is at most"}
_BETWEEN_VALUES: Final = _VERBS | {"=": "equals", "!=": "differs from"}
"""`is` stands before what is written in the condition; between two fields it would read like a text."""
_TAKEN: Final = ("and", "false", "is", "missing", "none", "not", "of", "one", "or", "true")
"""Words of the sentences themselves: a text or a name that is one of them stands in quotes."""
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_PLAIN_TEXT = re.compile(r"[^\W\d_][\w.+/@:-]*")
_CONDITIONS = ("and", "or", "not", *TESTS, *COMPARISONS)
_OF_ONE = {"array_size": "size of", "hour": "hour of", "length": "length of", "negate": "minus"}


def in_words(expression: Expression, words: Words | None = None) -> str:
    """Return a condition in English, on one line.

    Args:
        expression: a condition that has been parsed; its kinds need not have been checked.
        words: what stands for each field; without it, the field's name, in backticks where that is no plain word.
    """
    if words is None:
        words = {}
    return one_line(_Writer(words if callable(words) else _looked_up(words)).condition(expression))


def value_in_words(expression: Expression) -> str:
    """Return a value in English, on one line."""
    return one_line(_Writer(_name).value(expression))


def _looked_up(words: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: words[name] if name in words else _name(name)


def _name(name: str) -> str:
    """Return the name of a field; of different names, different texts, all on one line."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _TAKEN:
        return name
    return f"`{in_quotes(name.replace('`', '``'))[1:-1]}`"


class _Writer:
    """Writes expressions, with one way of naming fields."""

    def __init__(self, words: Callable[[str], str]) -> None:
        self._words = words

    def condition(self, expression: Expression) -> str:
        """Return a condition as a clause."""
        operator, operands = expression.operator, expression.operands
        if operator in ("and", "or"):
            return f" {operator} ".join(self._part(operand, operator) for operand in operands)
        if operator == "not":
            return self._denied(operands[0])
        if operator == "boolean":
            return "true" if expression.value else "false"
        if operator in TESTS:
            return self._test(expression, is_denied=False)
        if operator in COMPARISONS:
            return self._comparison(expression)
        return f"{self.value(expression)} is true"

    def _part(self, expression: Expression, joined_by: str) -> str:
        """Return a condition among others; what another word joins, in brackets."""
        written = self.condition(expression)
        return f"({written})" if {expression.operator, joined_by} == {"and", "or"} else written

    def _denied(self, expression: Expression) -> str:
        if expression.operator in TESTS:
            return self._test(expression, is_denied=True)
        return f"not ({self.condition(expression)})"

    def _test(self, expression: Expression, is_denied: bool) -> str:
        first, *members = expression.operands
        tested = self._side(first)
        if expression.tests_elements:
            tested, is_denied = f"{'none' if is_denied else 'one'} of {tested}", False
        if expression.operator == "is_null":
            return f"{tested} is {'not ' if is_denied else ''}missing"
        if expression.operator == "like":
            verb = "does not match" if is_denied else "matches"
            return f"{tested} {verb} {one_line(quoted_text(str(expression.value)))}"
        if expression.operator == "in_list":
            return f"{tested} is {'not ' if is_denied else ''}in the list {expression.value}"
        written = ", ".join(map(_written, members))
        if first.is_array and len(members) == 1:
            return f"{tested} is {written}"
        return f"{tested} is {'none' if is_denied else 'one'} of {written}"

    def _comparison(self, expression: Expression) -> str:
        first, second = expression.operands
        if second.is_literal:
            return f"{self._side(first)} {_VERBS[expression.operator]} {_written(second)}"
        return f"{self._side(first)} {_BETWEEN_VALUES[expression.operator]} {self._side(second)}"

    def _side(self, expression: Expression) -> str:
        """Return a value beside a verb; a condition that is taken for a value, in brackets."""
        written = self.value(expression)
        return f"({written})" if expression.operator in _CONDITIONS else written

    def value(self, expression: Expression) -> str:
        """Return a value of any kind."""
        operator, operands = expression.operator, expression.operands
        if operator == "field":
            return self._words(str(expression.value))
        if operator == "text":
            return in_quotes(str(expression.value))
        if expression.is_literal:
            return _written(expression)
        if operator in _CONDITIONS:
            return self.condition(expression)
        if operator in ARITHMETIC or operator == "ratio":
            return self._arithmetic(expression)
        if operator == "zone":
            return f"{self._operand(operands[0])} in {quoted(str(expression.value))}"
        if operator in _OF_ONE and len(operands) == 1:
            return f"{_OF_ONE[operator]} {self._operand(operands[0], allowed=('zone',))}"
        if operator == "lookup":
            return f"{_written(operands[1])} of {self._operand(operands[0])} in the list {expression.value}"
        return f"{operator}({', '.join(map(self._side, operands))})"

    def _arithmetic(self, expression: Expression) -> str:
        operator, (first, second) = expression.operator, expression.operands
        if operator in ("/", "ratio"):
            return f"{self._operand(first)} divided by {self._operand(second)}"
        if operator == "*" and "number" in (first.operator, second.operator):
            factor, other = (first, second) if first.operator == "number" else (second, first)
            return f"{_written(factor)} times {self._operand(other)}"
        chained = {"+": ("+", "-"), "-": ("+", "-"), "*": ("*",)}.get(operator, ())
        return f"{self._operand(first, allowed=chained)} {operator} {self._operand(second)}"

    def _operand(self, expression: Expression, allowed: tuple[str, ...] = ()) -> str:
        """Return a value inside another, in brackets if it has parts of its own and is not of an allowed kind."""
        written = self.value(expression)
        has_parts = expression.operator in (*ARITHMETIC, "ratio", "zone", "lookup", *_OF_ONE, *_CONDITIONS)
        return f"({written})" if has_parts and expression.operator not in allowed else written


def _written(literal: Expression) -> str:
    """Return a literal after a verb: a plain word as it is, and a text that is none in quotes."""
    if literal.operator == "boolean":
        return "true" if literal.value else "false"
    if literal.operator == "number":
        assert isinstance(literal.value, Decimal)
        return f"{literal.value:,f}"
    text = str(literal.value)
    return text if _PLAIN_TEXT.fullmatch(text) and text.lower() not in _TAKEN else in_quotes(text)
