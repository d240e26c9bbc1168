"""Evaluates expressions on columns, exactly, with SQL's three values.

A number is an integer of any size at a number of digits after the point that is known before any row is seen: 64 bits
wide where that is enough for every value that there can be, and otherwise a Python integer. Nothing is rounded but a
quotient, which has 18 digits after the point, the last one rounded half to even. What is divided by zero is NULL.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.expressions.expression import ARITHMETIC, COMPARISONS, Expression, digits_after_point
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN

QUOTIENT_DIGITS: Final = 18
"""Digits after the point of a quotient."""
_COMPARE = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_TEXT_FUNCTIONS: Final[dict[str, Callable[[str], str]]] = {
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda text: text.strip(" "),
}
"""Python's, which knows letters that become two, as Spark does; Arrow does not."""


@dataclass(frozen=True)
class Numbers:
    """Decimals, exactly.

    Attributes:
        scaled: the numbers times `10**scale`, int64 or Python integers, `(rows,)`, or `()` for a constant.
        scale: digits after the point.
        largest: no number, scaled, is further from zero than this.
        valid: bool, which are not NULL, `(rows,)` or `()`.
    """

    scaled: npt.NDArray[Any]
    scale: int
    largest: int
    valid: npt.NDArray[np.bool_]

    @property
    def is_constant(self) -> bool:
        """Whether all rows have the same number."""
        return self.scaled.ndim == 0 and bool(self.valid.all())


def matching(expression: Expression, columns: Mapping[str, Any], rows: int) -> pa.BooleanArray:
    """Of which rows a condition is true; not of those of which it is false or unknown.

    Args:
        expression: a condition, whose kinds have been checked.
        columns: by field, Arrow arrays of texts, booleans or timestamps, or `Numbers`.
        rows: how many rows there are.
    """
    found = _Evaluation(columns, rows).condition(expression)
    if isinstance(found, pa.Scalar):
        return pa.array(np.full(rows, found.as_py() is True))
    return found.fill_null(False)


def numbers(column: pa.Array, scale: int) -> Numbers:
    """An Arrow int64 column of scaled decimals as numbers."""
    return Numbers(
        column.fill_null(0).to_numpy(), scale, INT64_MAX + 1, column.is_valid().to_numpy(zero_copy_only=False)
    )


class _Evaluation:
    """One evaluation over one set of columns."""

    def __init__(self, columns: Mapping[str, Any], rows: int) -> None:
        self._columns, self._rows = columns, rows

    def condition(self, expression: Expression) -> Any:
        """A condition as an Arrow boolean array or scalar; NULL is unknown."""
        operator, operands = expression.operator, expression.operands
        if operator == "boolean":
            return pa.scalar(expression.value, pa.bool_())
        if operator == "field":
            return self._columns[str(expression.value)]
        if operator in ("and", "or"):
            joins = pc.and_kleene if operator == "and" else pc.or_kleene
            found = self.condition(operands[0])
            for operand in operands[1:]:
                found = joins(found, self.condition(operand))
            return found
        if operator == "not":
            return pc.invert(self.condition(operands[0]))
        if operator == "is_null":
            return self._is_null(operands[0])
        if operator == "like":
            return pc.match_like(self._value(operands[0]), str(expression.value))
        if operator == "in":
            return self._membership(expression)
        if operator == "coalesce":
            return pc.coalesce(*map(self.condition, operands))
        return self._comparison(expression)

    def _value(self, expression: Expression) -> Any:
        """A value of any kind."""
        operator, operands = expression.operator, expression.operands
        if operator == "number":
            return _constant(expression.value)
        if operator == "text":
            return pa.scalar(expression.value, pa.string())
        if operator == "field":
            return self._columns[str(expression.value)]
        if operator in _TEXT_FUNCTIONS:
            return _changed(self._value(operands[0]), _TEXT_FUNCTIONS[operator])
        if operator == "length":
            return _from_arrow(pc.utf8_length(self._value(operands[0])))
        if operator == "zone":
            return self._value(operands[0]).cast(pa.timestamp("ms", str(expression.value)))
        if operator in ("hour", "dayofweek"):
            return self._part_of_time(expression)
        if operator in ARITHMETIC:
            return _arithmetic(operator, self._number(operands[0]), self._number(operands[1]))
        if operator in ("negate", "abs"):
            number = self._number(operands[0])
            wide = _as_wide(number, number.largest)
            changed = -wide if operator == "negate" else np.abs(wide)
            return Numbers(_sized(changed, number.largest), number.scale, number.largest, number.valid)
        if operator == "coalesce":
            return self._coalesce(operands)
        return self.condition(expression)

    def _number(self, expression: Expression) -> Numbers:
        """A number."""
        found = self._value(expression)
        assert isinstance(found, Numbers)
        return found

    def _part_of_time(self, expression: Expression) -> Numbers:
        time = self._value(expression.operands[0])
        if expression.operator == "hour":
            return _from_arrow(pc.hour(time))
        # As Spark counts: 1 is Sunday, 7 is Saturday.
        return _from_arrow(pc.add(pc.day_of_week(time, count_from_zero=True, week_start=7), 1))

    def _is_null(self, operand: Expression) -> Any:
        found = self._value(operand)
        if isinstance(found, Numbers):
            return pa.array(np.broadcast_to(~found.valid, (self._rows,)))
        return pa.scalar(not found.is_valid) if isinstance(found, pa.Scalar) else found.is_null()

    def _comparison(self, expression: Expression) -> Any:
        first, second = map(self._value, expression.operands)
        if isinstance(first, Numbers):
            return self._nullable(_compared(expression.operator, first, second), first.valid & second.valid)
        return pc.equal(first, second) if expression.operator == "=" else pc.not_equal(first, second)

    def _membership(self, expression: Expression) -> Any:
        first, members = self._value(expression.operands[0]), expression.operands[1:]
        if isinstance(first, Numbers):
            wanted = _on_grid(members, first.scale)
            if first.scaled.dtype == np.int64:
                found = np.isin(
                    first.scaled, np.array([each for each in wanted if INT64_MIN <= each <= INT64_MAX], np.int64)
                )
            else:
                members_of = set(wanted)
                found = np.array([number in members_of for number in first.scaled.ravel()]).reshape(first.scaled.shape)
            return self._nullable(found, first.valid)
        if isinstance(first, pa.Scalar):
            first = pa.array([first.as_py()] * self._rows, first.type)
        found = pc.is_in(first, value_set=pa.array([member.value for member in members], first.type))
        return pc.if_else(first.is_valid(), found, pa.scalar(None, pa.bool_()))

    def _nullable(self, values: Any, valid: npt.NDArray[np.bool_]) -> pa.BooleanArray:
        """Booleans, NULL where they are not valid."""
        spread = np.broadcast_to(np.asarray(values, np.bool_), (self._rows,))
        return pa.array(spread, mask=~np.broadcast_to(valid, (self._rows,)))

    def _coalesce(self, operands: Sequence[Expression]) -> Any:
        found = [self._value(operand) for operand in operands]
        if not isinstance(found[0], Numbers):
            return pc.coalesce(*found)
        scale = max(number.scale for number in found)
        largest = max(number.largest * 10 ** (scale - number.scale) for number in found)
        scaled, valid = _as_wide(_at_scale(found[0], scale), largest), found[0].valid
        for number in found[1:]:
            scaled = np.where(valid, scaled, _as_wide(_at_scale(number, scale), largest))
            valid = valid | number.valid
        return Numbers(scaled, scale, largest, valid)


def _changed(texts: Any, change: Callable[[str], str]) -> Any:
    """Texts, each different one changed once."""
    if isinstance(texts, pa.Scalar):
        return pa.scalar(change(texts.as_py()) if texts.is_valid else None, pa.string())
    coded = texts.dictionary_encode()
    return pa.array([change(text) for text in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _constant(value: Any) -> Numbers:
    assert isinstance(value, Decimal)
    scale = digits_after_point(value)
    scaled = int(format(value, "f").replace(".", ""))
    return Numbers(_sized(scaled, abs(scaled)), scale, abs(scaled), np.asarray(True))


def _sized(values: Any, largest: int) -> npt.NDArray[Any]:
    """Integers as an array with room for `largest`; of one alone numpy makes a Python integer."""
    return np.asarray(values, np.int64 if largest <= INT64_MAX else object)


def _from_arrow(column: Any) -> Numbers:
    """Arrow integers as numbers."""
    if isinstance(column, pa.Scalar):
        return Numbers(np.asarray(column.as_py() or 0), 0, INT64_MAX, np.asarray(column.is_valid))
    return numbers(column.cast(pa.int64()), 0)


def _as_wide(number: Numbers, largest: int) -> npt.NDArray[Any]:
    """Scaled numbers in integers with room for `largest`."""
    return number.scaled if largest <= INT64_MAX else number.scaled.astype(object)


def _at_scale(number: Numbers, scale: int) -> Numbers:
    """The same numbers with at least as many digits after the point."""
    if scale == number.scale:
        return number
    factor = 10 ** (scale - number.scale)
    largest = number.largest * factor
    # Where all is 0 the result has room, and the factor may have none.
    return Numbers(_sized(_as_wide(number, max(largest, factor)) * factor, largest), scale, largest, number.valid)


def _compared(operator: str, first: Numbers, second: Numbers) -> Any:
    if second.is_constant and second.scale > first.scale:
        return _against_limit(operator, first, int(second.scaled), 10 ** (second.scale - first.scale))
    scale = max(first.scale, second.scale)
    first, second = _at_scale(first, scale), _at_scale(second, scale)
    return _COMPARE[operator](first.scaled, second.scaled)


def _against_limit(operator: str, number: Numbers, limit: int, unit: int) -> Any:
    """A comparison with a limit between two numbers that there can be: with the one below it, or the one above."""
    below, rest = divmod(limit, unit)
    if operator in ("=", "!=") and rest:
        return np.full(number.scaled.shape, operator == "!=")
    above = below + (rest != 0)
    return _COMPARE[operator](number.scaled, above if operator in (">=", "<") else below)


def _on_grid(members: Sequence[Expression], scale: int) -> list[int]:
    """The scaled values of those literals that a number with so many digits after the point can have."""
    wanted = []
    for member in members:
        constant = _constant(member.value)
        unit = 10 ** max(constant.scale - scale, 0)
        value, rest = divmod(int(constant.scaled) * 10 ** max(scale - constant.scale, 0), unit)
        if rest == 0:
            wanted.append(value)
    return wanted


def _arithmetic(operator: str, first: Numbers, second: Numbers) -> Numbers:
    valid = first.valid & second.valid
    if operator == "*":
        largest = first.largest * second.largest
        product = _sized(_as_wide(first, largest) * _as_wide(second, largest), largest)
        return Numbers(product, first.scale + second.scale, largest, valid)
    if operator == "/":
        return _quotient(first, second, valid)
    scale = max(first.scale, second.scale)
    first, second = _at_scale(first, scale), _at_scale(second, scale)
    if operator == "%":
        return _remainder(first, second, valid)
    largest = first.largest + second.largest
    left, right = _as_wide(first, largest), _as_wide(second, largest)
    return Numbers(_sized(left + right if operator == "+" else left - right, largest), scale, largest, valid)


def _divided(first: Numbers, second: Numbers, valid: npt.NDArray[np.bool_]) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
    """What is divided and what it is divided by, as Python integers; NULL where that is zero."""
    is_zero = np.asarray(second.scaled == 0, np.bool_)
    divisor = np.where(is_zero, 1, second.scaled.astype(object))
    return first.scaled.astype(object), np.asarray(divisor, object), valid & ~is_zero


def _quotient(first: Numbers, second: Numbers, valid: npt.NDArray[np.bool_]) -> Numbers:
    dividend, divisor, valid = _divided(first, second, valid)
    power = QUOTIENT_DIGITS + second.scale - first.scale
    dividend, divisor = dividend * 10 ** max(power, 0), divisor * 10 ** max(-power, 0)
    rounded = np.frompyfunc(_half_to_even, 2, 1)(dividend, divisor)
    largest = first.largest * 10 ** max(power, 0) + 1
    return Numbers(np.asarray(rounded, object), QUOTIENT_DIGITS, max(largest, INT64_MAX + 1), valid)


def _half_to_even(dividend: int, divisor: int) -> int:
    whole, rest = divmod(dividend, divisor)
    twice = 2 * abs(rest) - abs(divisor)
    return whole + (twice > 0 or (twice == 0 and whole % 2 == 1))


def _remainder(first: Numbers, second: Numbers, valid: npt.NDArray[np.bool_]) -> Numbers:
    """What a division towards zero leaves; it has the sign of what is divided."""
    dividend, divisor, valid = _divided(first, second, valid)
    signed = np.frompyfunc(lambda number, by: abs(number) % abs(by) * (1 if number > 0 else -1), 2, 1)(
        dividend, divisor
    )
    return Numbers(np.asarray(signed, object), first.scale, max(second.largest, INT64_MAX + 1), valid)


assert set(_COMPARE) == set(COMPARISONS)
