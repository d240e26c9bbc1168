"""Writes conditions in plain English, for the sentences of rules and alerts, and checks their kinds.

    recent > 5 * usual AND payments >= 10
    recent (8,120.00) is above 5 times usual (310.25) and payments (12) is at least 10

Brackets and quotes keep conditions with different meanings distinct.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Final

from buckets.expressions.expression import (
    ARITHMETIC,
    COMPARISONS,
    ELEMENT_KINDS,
    LIST_TESTS,
    NUMBER_FUNCTIONS,
    PATTERN_TESTS,
    TESTS,
    TIME_PARTS,
    WEEKEND,
    Expression,
    ExpressionError,
    Kind,
    fault,
    quoted_text,
    to_sql,
)
from buckets.printable import in_quotes, one_line, quoted
from buckets.time_zone import is_zone

Words = Callable[[str], str] | Mapping[str, str]
"""Substitutes for fields: a function of the name, or a mapping from the names to replace."""
_VERBS: Final = {"=": "is", "!=": "is not", ">": "is above", ">=": "is at least", "<": "is below", "<=": "is at most"}
_BETWEEN_VALUES: Final = _VERBS | {"=": "equals", "!=": "differs from"}
"""`is` precedes literals in a condition; between two fields it would read like a text."""
_TAKEN: Final = ("and", "false", "is", "missing", "none", "not", "of", "one", "or", "true")
"""Words of the sentences themselves: a text or a name equal to one of them gets quotes."""
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_PLAIN_TEXT = re.compile(r"[^\W\d_][\w.+/@:-]*")
_CONDITIONS = ("and", "or", "not", *TESTS, *COMPARISONS)
_OF_ONE = {"array_size": "size of", "length": "length of", "negate": "minus"}
_OF_ONE |= {part: f"{part} of" for part in TIME_PARTS} | {
    "day": "day of the month of",
    "dayofweek": "day of the week of",
}


def in_words(expression: Expression, words: Words | None = None) -> str:
    """Return a parsed condition in English, on one line.

    Without `words` a field appears by its name, in backticks unless it is a plain word.
    """
    return one_line(_Writer(_names(words)).condition(expression))


def value_in_words(expression: Expression, words: Words | None = None) -> str:
    """Return a value in English, on one line; `words` as for `in_words`."""
    return one_line(_Writer(_names(words)).value(expression))


def _names(words: Words | None) -> Callable[[str], str]:
    named = words or {}
    return named if callable(named) else lambda name: named[name] if name in named else _name(name)


def _name(name: str) -> str:
    """Return the name of a field on one line, with different texts for different names."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _TAKEN:
        return name
    return f"`{in_quotes(name.replace('`', '``'))[1:-1]}`"


class _Writer:
    def __init__(self, words: Callable[[str], str]) -> None:
        self._words = words

    def condition(self, expression: Expression) -> str:
        """Return a condition as a clause."""
        operator, operands = expression.operator, expression.operands
        if operator in ("and", "or"):
            return f" {operator} ".join(self._part(operand, operator) for operand in operands)
        if operator == "not":
            is_test = operands[0].operator in TESTS
            return self._test(operands[0], is_denied=True) if is_test else f"not ({self.condition(operands[0])})"
        if operator == "boolean":
            return "true" if expression.value else "false"
        if operator in TESTS:
            return self._test(expression, is_denied=False)
        if operator in COMPARISONS:
            return self._comparison(expression)
        return f"{self.value(expression)} is true"

    def _part(self, expression: Expression, joined_by: str) -> str:
        """Return a condition inside another, in brackets if another operator joins it."""
        written = self.condition(expression)
        return f"({written})" if {expression.operator, joined_by} == {"and", "or"} else written

    def _test(self, expression: Expression, is_denied: bool) -> str:
        first, *members = expression.operands
        tested = self._side(first)
        if expression.tests_elements:
            tested, is_denied = f"{'none' if is_denied else 'one'} of {tested}", False
        if expression.operator == "is_null":
            return f"{tested} is {'not ' if is_denied else ''}missing"
        if expression.operator in PATTERN_TESTS:
            verb = "does not match" if is_denied else "matches"
            pattern, end = one_line(quoted_text(str(expression.value))), ""
            if expression.operator == "regexp":
                verb = "holds nothing like" if is_denied else "holds something like"
            elif expression.operator == "ilike":
                end = " in any case"
            return f"{tested} {verb} {pattern}{end}"
        if expression.operator == "in_list":
            return f"{tested} is {'not ' if is_denied else ''}in the list {expression.value}"
        if first.operator == "dayofweek" and tuple(members) == WEEKEND:
            return f"{self._operand(first.operands[0], ('zone',))} is {'not ' if is_denied else ''}on a weekend"
        written = ", ".join(map(_written, members))
        if first.is_array and len(members) == 1:
            return f"{tested} is {written}"
        return f"{tested} is {'none' if is_denied else 'one'} of {written}"

    def _comparison(self, expression: Expression) -> str:
        first, second = expression.operands
        if second.is_literal and (second.operator != "text" or expression.operator in ("=", "!=")):
            return f"{self._side(first)} {_VERBS[expression.operator]} {_written(second)}"
        return f"{self._side(first)} {_BETWEEN_VALUES[expression.operator]} {self._side(second)}"

    def _side(self, expression: Expression) -> str:
        """Return a value next to a verb; a condition used as a value gets brackets."""
        written = self.value(expression)
        return f"({written})" if expression.operator in _CONDITIONS else written

    def value(self, expression: Expression) -> str:
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
        if operator == "case":
            cases = [f"{self._side(then)} if {self.condition(when)}" for when, then in expression.cases]
            return f"({'; '.join([*cases, *(f'else {self._side(other)}' for other in expression.otherwise)])})"
        if operator == "lookup":
            return f"{_written(operands[1])} of {self._operand(operands[0])} in the list {expression.value}"
        return f"{'' if operator == 'tuple' else operator}({', '.join(map(self._side, operands))})"

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
    """Return a literal after a verb: a plain word unchanged, any other text in quotes."""
    if literal.operator == "boolean":
        return "true" if literal.value else "false"
    if literal.operator == "number":
        assert isinstance(literal.value, Decimal)
        return f"{literal.value:,f}"
    text = str(literal.value)
    return text if _PLAIN_TEXT.fullmatch(text) and text.lower() not in _TAKEN else in_quotes(text)


_ARTICLES: dict[Kind, str] = {
    "text": "a text",
    "number": "a number",
    "boolean": "true or false",
    "time": "a time",
    "texts": "an array of texts",
    "numbers": "an array of numbers",
    "booleans": "an array of true and false",
}
_SIGNATURES: Final[dict[str, tuple[tuple[Kind, ...], int, Kind]]] = {
    **dict.fromkeys(("abs", "ln", "sqrt"), (("number",), 0, "number")),
    **dict.fromkeys(("lower", "trim", "upper"), (("text",), 0, "text")),
    **dict.fromkeys(("jaro_winkler", "levenshtein"), (("text", "text"), 0, "number")),
    **{part: (("time",), 0, "text" if span is None else "number") for part, span in TIME_PARTS.items()},
    "array_size": (("texts",), 0, "number"),
    "length": (("text",), 0, "number"),
    "replace": (("text", "text", "text"), 0, "text"),
    "round": (("number", "number"), 1, "number"),
    "split_part": (("text", "text", "number"), 0, "text"),
    "substring": (("text", "number", "number"), 1, "text"),
}
"""Operand kinds of functions, how many operands are optional, and the kind of the result."""
_WRITTEN_OUT: Final = ("replace", "round", "split_part", "substring")
"""Functions whose operands from the second on are literals."""
_MOST_LETTERS: Final = 1_000_000
_SPANS: Final = {("round", 1): (-38, 38), ("substring", 2): (0, _MOST_LETTERS)}


def check_condition(expression: Expression, fields: Mapping[str, Kind]) -> None:
    """Check that an expression is a condition over known fields; ExpressionError names the fault."""
    _need(expression, "boolean", fields, "a condition is true or false, and")


def check_score(expression: Expression, fields: Mapping[str, Kind]) -> None:
    """Check that an expression is a number over known fields; ExpressionError names the fault."""
    _need(expression, "number", fields, "a score is a number, and")


def kind_of(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of an expression; ExpressionError if a field is unknown, or kinds do not fit."""
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
    if operator in PATTERN_TESTS:
        if kind_of(operands[0], fields) != "texts":
            _need(operands[0], "text", fields, f"{PATTERN_TESTS[operator]} takes a text, and")
        return "boolean"
    if operator in LIST_TESTS:
        return _list_test(expression, fields)
    if operator == "zone":
        return _zone(expression, fields)
    if operator in ("coalesce", "case"):
        return _same_kind(expression, fields)
    if operator in ("concat", "greatest", "least"):
        return _joined(expression, fields)
    if operator == "array_size" and len(operands) == 1:
        return _array_size(operands[0], fields)
    return _function(expression, fields)


def _need(expression: Expression, wanted: Kind, fields: Mapping[str, Kind], why: str) -> None:
    kind = kind_of(expression, fields)
    if kind != wanted:
        raise fault(expression, f"{why} {to_sql(expression)} is {_ARTICLES[kind]}")


def _field(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    name = str(expression.value)
    if name not in fields:
        close = [known for known in fields if known.lower() == name.lower()]
        known = f"did you mean {close[0]}?" if close else f"there are {', '.join(fields) or 'none'}"
        raise fault(expression, f"there is no field {name!r}; {known}")
    return fields[name]


def _array_size(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    kind = kind_of(expression, fields)
    if kind not in ELEMENT_KINDS:
        raise fault(expression, f"array_size takes an array, and {to_sql(expression)} is {_ARTICLES[kind]}")
    return "number"


def _comparison(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    first = expression.operands[0]
    of_first = kind = kind_of(first, fields)
    if kind in ELEMENT_KINDS:
        if expression.operator != "in":
            shown = to_sql(first)
            raise fault(expression, f"{shown} is {_ARTICLES[kind]}; write IN, as in {shown} IN ('X'), or array_size(…)")
        kind = ELEMENT_KINDS[kind]
    for other in expression.operands[1:]:
        other_kind = kind_of(other, fields)
        if kind != other_kind:
            raise fault(
                expression,
                f"{to_sql(first)} is {_ARTICLES[of_first]}, and {to_sql(other)} is {_ARTICLES[other_kind]}; "
                "they cannot be compared",
            )
    if kind == "time":
        raise fault(expression, f"times are not compared here; use {'(…), '.join(TIME_PARTS)}(…) or is_weekend(…)")
    _check_dates(expression)
    if kind == "boolean" and expression.operator not in ("=", "!=", "in"):
        raise fault(
            expression, f"{expression.operator} needs numbers or texts, and {to_sql(first)} is {_ARTICLES[kind]}"
        )
    return "boolean"


def _check_dates(expression: Expression) -> None:
    """Refuse to compare a date with a text that is not a date."""
    if any(operand.operator == "date" for operand in expression.operands):
        for operand in expression.operands:
            text = str(operand.value)
            if operand.operator == "text" and not _is_date(text):
                raise fault(operand, f"a date is a text such as '2026-12-24', and {in_quotes(text)} is none")


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _list_test(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    parts = expression.key_parts
    for part in parts:
        kind, shown = kind_of(part, fields), to_sql(part)
        if kind in ELEMENT_KINDS and expression.operator == "in_list" and len(parts) == 1:
            return "boolean"
        if kind == "time" or kind in ELEMENT_KINDS:
            message = f"the key of a list is a text, a number, or true or false, and {shown} is {_ARTICLES[kind]}"
            raise ExpressionError(message, expression.at)
        if kind != "text" and part.operator not in ("field", *TIME_PARTS):
            raise fault(
                expression, f"the key of a list is a plain field, a text or a part of a time, and {shown} is computed"
            )
    return "boolean" if expression.operator == "in_list" else "text"


def _zone(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    operand = expression.operands[0]
    _need(operand, "time", fields, "AT TIME ZONE takes a time, and")
    if operand.operator == "zone":
        raise fault(expression, "the time is in a zone already")
    name = str(expression.value)
    if not is_zone(name):
        raise fault(expression, f"there is no time zone {name!r}; write one such as 'Europe/Berlin' or 'UTC'")
    return "time"


def _same_kind(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    values = expression.operands
    if expression.operator == "case":
        values = (*(then for _, then in expression.cases), *expression.otherwise)
        for when, _ in expression.cases:
            _need(when, "boolean", fields, "WHEN takes a condition, and")
    first, *others = [kind_of(operand, fields) for operand in values]
    if first == "time" or first in ELEMENT_KINDS or any(other != first for other in others):
        name = "the values of CASE are" if expression.operator == "case" else "coalesce takes"
        raise fault(expression, f"{name} texts, numbers or conditions, all of one kind")
    return first


def _joined(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of a function of any number of texts, or also of numbers."""
    name, kind = expression.operator, kind_of(expression.operands[0], fields)
    others = "" if name == "concat" else ", or numbers"
    if (kind != "text" and (kind != "number" or not others)) or len(expression.operands) < 2:
        raise fault(expression, f"{name} takes two texts or more{others}, not {to_sql(expression)}")
    for operand in expression.operands[1:]:
        _need(operand, kind, fields, f"{name} begins with {_ARTICLES[kind]}, and")
    return kind


def _function(expression: Expression, fields: Mapping[str, Kind]) -> Kind:
    operator, operands = expression.operator, expression.operands
    takes, optional, gives = _SIGNATURES[operator]
    if not len(takes) - optional <= len(operands) <= len(takes):
        fewest = f"{len(takes) - optional} or " if optional else ""
        wanted = "one operand" if len(takes) == 1 else f"{fewest}{len(takes)} operands, not {len(operands)}"
        raise fault(expression, f"{operator} takes {wanted}")
    for at, (operand, kind) in enumerate(zip(operands, takes, strict=False)):
        what = f"{operator} takes" if len(takes) == 1 else f"operand {at + 1} of {operator} is"
        _need(operand, kind, fields, f"{what} {_ARTICLES[kind]}, and")
        if at and operator in _WRITTEN_OUT:
            _check_written(expression, at)
    return gives


def _check_written(expression: Expression, at: int) -> None:
    """Check that an operand of a function is a literal with a valid value."""
    operator, operand = expression.operator, expression.operands[at]
    named = f"operand {at + 1} of {operator}"
    if not operand.is_literal:
        raise fault(operand, f"{named} is a value such as 3 or '-', and {to_sql(operand)} is computed")
    if operand.value == "" and not (operator == "replace" and at == 2):
        raise fault(operand, f"{named} is a text of one letter or more, and '' is empty")
    if isinstance(operand.value, Decimal):
        least, most = _SPANS.get((operator, at), (-_MOST_LETTERS, _MOST_LETTERS))
        is_place = (operator, at) not in _SPANS
        if operand.value % 1 or not least <= operand.value <= most or (is_place and not operand.value):
            other = " other than 0" if is_place else ""
            raise fault(operand, f"{named} is a whole number{other} from {least:,} to {most:,}, not {to_sql(operand)}")
