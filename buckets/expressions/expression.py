"""An expression as a tree; its SQL, which parses back to the same tree; and a normal form of equivalent expressions."""

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

from buckets.printable import short_line

Kind = Literal["text", "number", "boolean", "time", "texts", "numbers", "booleans"]
"""The kind of a value: `time` is an instant, or an instant in a time zone; the last three are arrays."""
ELEMENT_KINDS: Final[Mapping[Kind, Kind]] = {"texts": "text", "numbers": "number", "booleans": "boolean"}
"""By the kind of an array, the kind of its elements."""
ELEMENTS: Final = "[]"  # Stands in the name of an array, and of nothing else, behind that of the list
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: Final = ("+", "-", "*", "/", "%")
NUMBER_FUNCTIONS: Final = {
    "geo_speed_kmh": ("latitude", "longitude", "earlier_latitude", "earlier_longitude", "seconds"),
    "ratio": ("a", "b"),
    "zscore": ("x", "mean", "deviation"),
}
"""Functions that Spark lacks, from numbers to a number."""
TIME_PARTS: Final[Mapping[str, tuple[int, int] | None]] = {
    "date": None,
    "day": (1, 31),
    "dayofweek": (1, 7),
    "hour": (0, 23),
    "minute": (0, 59),
    "month": (1, 12),
    "year": (0, 10_000),
}
"""By function of a time, its least and greatest result; `date` returns a text."""
FUNCTIONS: Final = (
    *("abs", "array_size", "coalesce", "concat", *TIME_PARTS, "geo_speed_kmh", "greatest", "jaro_winkler", "least"),
    *("length", "levenshtein", "ln", "lower", "ratio", "replace", "round", "split_part", "sqrt", "substring", "trim"),
    *("upper", "zscore"),
)


LIST_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)  # How a list may be called
RULES_LIST: Final = "rules."
"""Prefix of the name of a list that rules write, as in `payerId IN LIST rules.blocked`."""
PATTERN_TESTS: Final = {"like": "LIKE", "ilike": "ILIKE", "regexp": "REGEXP"}  # Of a text, each with its word in SQL
TESTS: Final = ("in", *PATTERN_TESTS, "is_null", "in_list")
"""Conditions on one value, where SQL and English put NOT before the last word."""
ELEMENT_TESTS: Final = ("in", *PATTERN_TESTS, "in_list")
"""Tests that an array passes if one of its elements does: the OR of the tests of its elements."""
LIST_TESTS: Final = ("in_list", "lookup")  # List tests: whether a list has a key, and its value for a key


class ExpressionError(ValueError):
    """A fault of an expression, and its place in the text.

    Attributes:
        reason: in one line.
        at: the letter, from 0.
    """

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason, self.at = reason, at

    def located(self, text: str) -> str:
        """Return the reason after its column, and after its line if the text has several."""
        before = text[: self.at]
        line, column = before.count("\n") + 1, self.at - (before.rfind("\n") + 1) + 1
        location = f"line {line}, column {column}" if "\n" in text.strip() else f"column {column}"
        return short_line(f"{location}: {self.reason}")


@dataclass(frozen=True)
class Expression:
    """A literal, a field, or an operator with operands."""

    # `text`, `number`, `boolean`, `field`; a comparison, `and`, `or`, `not`, `in` (whose first operand is looked for
    # among the others), `like`, `ilike`, `regexp`, `is_null`; arithmetic, `negate`; `zone` (an instant as it is in a
    # time zone); `in_list` (whose operand is a key), `lookup` (a key, and the name of a value as a text); `tuple`, the
    # parts of a key; `case` (conditions, each followed by its value, and what there is otherwise, which may lack); or a
    # function's name
    operator: str
    operands: tuple["Expression", ...] = ()  # in the order in which they are written
    # of a literal; the name of a field, a zone or a list; a pattern
    value: str | bool | Decimal | None = None
    # the letter at which it begins in its text; two expressions that differ in that alone are equal
    at: int = field(default=0, compare=False)

    @property
    def is_array(self) -> bool:
        """Whether it is a field that is an array."""
        return self.operator == "field" and is_array(str(self.value))

    @property
    def tests_elements(self) -> bool:
        """Whether it is a test of the elements of an array."""
        return self.operator in ELEMENT_TESTS and self.operands[0].is_array

    @property
    def cases(self) -> list[tuple["Expression", "Expression"]]:
        """The conditions of a `case`, each with its value."""
        return list(zip(self.operands[:-1:2], self.operands[1::2], strict=True))

    @property
    def otherwise(self) -> tuple["Expression", ...]:
        """The value of a `case` if none of its conditions is true; empty if that is NULL."""
        return self.operands[2 * len(self.cases) :]

    @property
    def key_parts(self) -> tuple["Expression", ...]:
        """The parts of the key of a list test."""
        key = self.operands[0]
        return key.operands if key.operator == "tuple" else (key,)

    @property
    def is_literal(self) -> bool:
        """Whether it is a literal value."""
        return self.operator in ("text", "number", "boolean")

    def parts(self) -> Iterator["Expression"]:
        """Yield the expression and all its descendants, parents first."""
        yield self
        for operand in self.operands:
            yield from operand.parts()

    def fields(self) -> Iterator[str]:
        """Return the fields in it, with repetitions."""
        return (str(part.value) for part in self.parts() if part.operator == "field")

    def list_tests(self) -> Iterator["Expression"]:
        """Return its subexpressions that look into a list."""
        return (part for part in self.parts() if part.operator in LIST_TESTS)


WEEKEND: Final = tuple(Expression("number", value=Decimal(day)) for day in (1, 7))  # By `dayofweek`


def conjuncts(condition: Expression) -> list[Expression]:
    """Return the parts that AND joins."""
    return _chain(condition, "and")


def fault(of: Expression, reason: str) -> ExpressionError:
    """Return an error at the place where an expression begins in its text."""
    return ExpressionError(reason, of.at)


def is_array(name: str) -> bool:
    """Return whether a name is that of an array."""
    return ELEMENTS in name


def digits_after_point(number: Decimal) -> int:
    """Return the number of digits after the point of a finite number as written."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(-exponent, 0)


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
    """Return an expression as SQL, the same text for equal expressions."""
    return _written(expression)[0]


@functools.cache
def _keywords() -> frozenset[str]:
    """Return SQL keywords, which need backticks as names of fields."""
    import sqlglot  # slow to import, and few texts have names

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


_ESCAPES = str.maketrans({"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def quoted_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return f"'{text.translate(_ESCAPES)}'"


THIS: Final = "this."
"""Prefix of a field of the event itself in the filter of a feature; other fields belong to events in its window."""


def quoted_name(name: str) -> str:
    """Return the name of a field in SQL, in backticks unless it is a plain word."""
    if name.startswith(THIS):
        return THIS + quoted_name(name.removeprefix(THIS))
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
    """Return the SQL of an expression, and its precedence."""
    operator, operands = expression.operator, expression.operands
    if operator == "not" and operands[0].operator in TESTS:
        return _test_of_one(operands[0], "NOT "), _BINDING["in"]
    if expression.is_literal:
        written = _literal(expression)
        return written, _BINDING["negate"] if written.startswith("-") else _ATOM
    if operator == "field":
        return quoted_name(str(expression.value)), _ATOM
    if operator == "tuple":
        return f"({', '.join(map(to_sql, operands))})", _ATOM
    if operator == "lookup":
        return f"lookup({expression.value}, {', '.join(map(to_sql, operands))})", _ATOM
    if operator == "case":
        cases = "".join(f" WHEN {to_sql(when)} THEN {to_sql(then)}" for when, then in expression.cases)
        return f"CASE{cases}{''.join(f' ELSE {to_sql(other)}' for other in expression.otherwise)} END", _ATOM
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
    """Return the SQL of IN, LIKE or IS NULL, with NOT where it reads best."""
    first, *members = expression.operands
    tested = _inside(first, _BINDING["in"] + 1)
    if expression.operator == "is_null":
        return f"{tested} IS {negation}NULL"
    if expression.operator in PATTERN_TESTS:
        return f"{tested} {negation}{PATTERN_TESTS[expression.operator]} {quoted_text(str(expression.value))}"
    if expression.operator == "in_list":
        return f"{tested} {negation}IN LIST {expression.value}"
    return f"{tested} {negation}IN ({', '.join(map(to_sql, members))})"


def _inside(expression: Expression, needed: int) -> str:
    written, binding = _written(expression)
    return written if binding >= needed else f"({written})"


_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def normalise(expression: Expression, is_negated: bool = False) -> Expression:
    """Return the normal form of a condition, or of its negation."""
    operator, operands = expression.operator, expression.operands
    if operator == "not":
        return normalise(operands[0], not is_negated)
    if operator in ("and", "or"):
        joined = {"and": "or", "or": "and"}[operator] if is_negated else operator
        return _joined(joined, [normalise(operand, is_negated) for operand in operands], expression.at)
    if operator in COMPARISONS:
        return _comparison(expression, is_negated)
    if operator == "in":
        return _membership(expression, is_negated)
    if operator == "boolean":
        return Expression("boolean", value=bool(expression.value) != is_negated, at=expression.at)
    if operator in ("field", "coalesce", "case"):
        return Expression("=", (_value(expression), Expression("boolean", value=not is_negated)), at=expression.at)
    found = _value(expression)
    return Expression("not", (found,), at=expression.at) if is_negated else found


def _value(expression: Expression) -> Expression:
    operator = expression.operator
    if operator in ("and", "or", "not", "in", *COMPARISONS):
        return normalise(expression)
    operands = tuple(map(_value, expression.operands))
    if operator in ("concat", "greatest", "least"):
        operands = tuple(_chain(Expression(operator, operands), operator))
    if operator in ("greatest", "least"):
        operands = tuple(sorted(set(operands), key=_order))
        if len(operands) == 1:
            return operands[0]
    if operator in ("+", "*"):
        first, *others = sorted(_chain(Expression(operator, operands), operator), key=_order)
        for other in others[:-1]:
            first = Expression(operator, (first, other), at=expression.at)
        operands = (first, others[-1])
    # A ratio is a quotient under another name.
    return Expression("/" if operator == "ratio" else operator, operands, expression.value, expression.at)


def _chain(expression: Expression, operator: str) -> list[Expression]:
    """Return the operands of a chain of one operator, however bracketed; sums and products are exact."""
    if expression.operator != operator:
        return [expression]
    return [each for operand in expression.operands for each in _chain(operand, operator)]


def _order(expression: Expression) -> tuple[bool, str]:
    """Return a sort key: literals last, otherwise by text."""
    return expression.is_literal, to_sql(expression)


def _comparison(expression: Expression, is_negated: bool) -> Expression:
    first, second = map(_value, expression.operands)
    operator = _OPPOSITE[expression.operator] if is_negated else expression.operator
    if operator == "!=" and "boolean" in (first.operator, second.operator):
        # Anything but true is false.
        operator, first, second = "=", *_one_opposite(first, second)
    if _order(second) < _order(first):
        first, second, operator = second, first, _MIRRORED[operator]
    return Expression(operator, (first, second), at=expression.at)


def _one_opposite(first: Expression, second: Expression) -> tuple[Expression, Expression]:
    """Return two conditions, one of them a literal, with the literal negated."""
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
    """Merge equalities of one operand with literals into one IN; under AND, `!=` into one NOT IN."""
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
