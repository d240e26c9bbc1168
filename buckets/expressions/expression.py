"""An expression as a tree."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal

from buckets.printable import short_line

Kind = Literal["text", "number", "boolean", "time", "texts", "numbers", "booleans"]
"""What a value is: `time` is an instant, or an instant as it is in a time zone; the last three are arrays."""
ELEMENT_KINDS: Final[Mapping[Kind, Kind]] = {"texts": "text", "numbers": "number", "booleans": "boolean"}
"""By the kind of an array, that of its elements."""
ELEMENTS: Final = "[]"
"""Stands in the name of an array, and of nothing else, behind that of the list."""
COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
ARITHMETIC: Final = ("+", "-", "*", "/", "%")
NUMBER_FUNCTIONS: Final = {
    "geo_speed_kmh": ("latitude", "longitude", "earlier_latitude", "earlier_longitude", "seconds"),
    "ratio": ("a", "b"),
    "zscore": ("x", "mean", "deviation"),
}
"""What functions that Spark does not have are given: numbers, of which they make a number."""
FUNCTIONS: Final = (
    *("abs", "array_size", "coalesce", "dayofweek", "geo_speed_kmh", "hour", "length", "lower", "ratio", "trim"),
    *("upper", "zscore"),
)


LIST_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
"""How a list may be called."""
TESTS: Final = ("in", "like", "is_null", "in_list")
"""Conditions on one value, in which SQL and English have the NOT before their last word."""
ELEMENT_TESTS: Final = ("in", "like", "in_list")
"""What an array passes if one of its elements does; such a test is the OR of the tests of its elements."""
LIST_TESTS: Final = ("in_list", "lookup")
"""What looks into a list: whether it has a key, and which value it has of one."""


class ExpressionError(ValueError):
    """What is wrong with an expression, and at which letter of its text that begins.

    Attributes:
        reason: in one line.
        at: the letter, from 0.
    """

    def __init__(self, reason: str, at: int) -> None:
        """Keep reason and letter."""
        super().__init__(reason)
        self.reason, self.at = reason, at

    def located(self, text: str) -> str:
        """Return the reason, preceded by column, and line where the text has several."""
        before = text[: self.at]
        line, column = before.count("\n") + 1, self.at - (before.rfind("\n") + 1) + 1
        location = f"line {line}, column {column}" if "\n" in text.strip() else f"column {column}"
        return short_line(f"{location}: {self.reason}")


@dataclass(frozen=True)
class Expression:
    """A literal, a field, or an operator with operands.

    Attributes:
        operator: `text`, `number`, `boolean`, `field`; a comparison, `and`, `or`, `not`, `in` (whose first
            operand is looked for among the others), `like`, `is_null`; arithmetic, `negate`; `zone` (an instant as it
            is in a time zone); `in_list` (whose operand is a key), `lookup` (a key, and the name of a value as a text);
            or a function's name.
        operands: in the order in which they are written.
        value: of a literal; the name of a field, a zone or a list; the pattern of `like`.
        at: the letter at which it begins in its text; two expressions that differ in that alone are equal.
    """

    operator: str
    operands: tuple["Expression", ...] = ()
    value: str | bool | Decimal | None = None
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
    def is_literal(self) -> bool:
        """Whether it is a value as it is written."""
        return self.operator in ("text", "number", "boolean")

    def fields(self) -> Iterator[str]:
        """Yield the fields in it, as often as they stand there."""
        if self.operator == "field":
            yield str(self.value)
        for operand in self.operands:
            yield from operand.fields()

    def lists(self) -> Iterator[str]:
        """Return the lists that it looks into, as often as they stand there."""
        return (str(test.value) for test in self.list_tests())

    def list_tests(self) -> Iterator["Expression"]:
        """Yield its parts that look into a list."""
        if self.operator in LIST_TESTS:
            yield self
        for operand in self.operands:
            yield from operand.list_tests()


def is_array(name: str) -> bool:
    """Return whether a name is that of an array."""
    return ELEMENTS in name


def digits_after_point(number: Decimal) -> int:
    """Return how many digits a finite number has after its point, as it is written."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(-exponent, 0)
