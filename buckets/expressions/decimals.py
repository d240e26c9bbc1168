"""Columns of decimals, and exact arithmetic on them.

A number is an integer of any size at a number of digits after the point that is known before any row is seen: 64 bits
wide where that is enough for every value that there can be, and otherwise a Python integer. Nothing is rounded but a
quotient, which has 18 digits after the point, the last one rounded half to even. What is divided by zero is NULL.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.expressions.expression import COMPARISONS, Expression, digits_after_point
from buckets.numbers.fixed_point import INT64_MAX, half_to_even

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

    def rows(self, chosen: Any) -> "Numbers":
        """Return some of the rows, chosen as numpy chooses elements of an array."""
        return replace(self, scaled=self.scaled[chosen], valid=self.valid[chosen])


def numbers(column: pa.Array, scale: int) -> Numbers:
    """Return an Arrow int64 column of scaled decimals as numbers."""
    return Numbers(
        column.fill_null(0).to_numpy(), scale, INT64_MAX + 1, column.is_valid().to_numpy(zero_copy_only=False)
    )


def plain_text(number: Decimal) -> str:
    """Return a number as lists have it for a key: no exponent, no zeros at its end."""
    written = format(number, "f")
    written = written.rstrip("0").rstrip(".") if "." in written else written
    return "0" if written == "-0" else written


def texts_of(number: Numbers) -> pa.Array:
    """Return numbers that are not constant as `plain_text`, each different one written once."""
    coded = pa.array(number.scaled, mask=~number.valid).dictionary_encode()
    texts = [plain_text(Decimal(scaled).scaleb(-number.scale)) for scaled in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(coded.indices)


@functools.lru_cache(maxsize=65_536)
def constant(value: Decimal) -> Numbers:
    """Return one finite number for all rows."""
    scale = digits_after_point(value)
    numerator, denominator = value.as_integer_ratio()
    scaled = numerator * (10**scale // denominator)
    return Numbers(sized(scaled, abs(scaled)), scale, abs(scaled), np.asarray(True))


def sized(values: Any, largest: int) -> npt.NDArray[Any]:
    """Return integers as an array with room for `largest`; of one alone numpy makes a Python integer."""
    return np.asarray(values, np.int64 if largest <= INT64_MAX else object)


def as_wide(number: Numbers, largest: int) -> npt.NDArray[Any]:
    """Return scaled numbers in integers with room for `largest`."""
    return number.scaled if largest <= INT64_MAX else number.scaled.astype(object)


def at_scale(number: Numbers, scale: int) -> Numbers:
    """Return the same numbers with at least as many digits after the point."""
    if scale == number.scale:
        return number
    factor = 10 ** (scale - number.scale)
    largest = number.largest * factor
    # Where all is 0 the result has room, and the factor may have none.
    return Numbers(sized(as_wide(number, max(largest, factor)) * factor, largest), scale, largest, number.valid)


def compared(operator: str, first: Numbers, second: Numbers) -> Any:
    """Return the rows for which a comparison is true, whether or not they are NULL."""
    if second.is_constant and second.scale > first.scale:
        return compared_with_limits(operator, first, second)
    scale = max(first.scale, second.scale)
    first, second = at_scale(first, scale), at_scale(second, scale)
    return _COMPARE[operator](first.scaled, second.scaled)


def compared_with_limits(operator: str, numbers: Numbers, limits: Numbers) -> Any:
    """Compare numbers with limits on their own grid: with the number below a limit that lies between two, or above it.

    Args:
        operator: the comparison.
        numbers: `(rows,)`.
        limits: none is NULL; one for all rows, `()`, or several, `(limits, 1)`.

    Returns:
        Bool `(rows,)` or `(limits, rows)`.
    """
    if limits.scale <= numbers.scale:
        return _COMPARE[operator](numbers.scaled, at_scale(limits, numbers.scale).scaled)
    unit = 10 ** (limits.scale - numbers.scale)
    wide = as_wide(limits, unit)
    below = np.asarray(wide // unit, wide.dtype)
    is_between = np.asarray(below * unit != wide, np.bool_)
    if operator in (">=", "<"):
        below = below + is_between.astype(below.dtype)
    found = _COMPARE[operator](numbers.scaled, sized(below, limits.largest // unit + 1))
    if operator == "=":
        return found & ~is_between
    return found | is_between if operator == "!=" else found


def on_grid(members: Sequence[Expression], scale: int) -> list[int]:
    """Return the scaled values of those literals that a number with so many digits after the point can have."""
    wanted = []
    for member in members:
        assert isinstance(member.value, Decimal)
        literal = constant(member.value)
        unit = 10 ** max(literal.scale - scale, 0)
        value, rest = divmod(int(literal.scaled) * 10 ** max(scale - literal.scale, 0), unit)
        if rest == 0:
            wanted.append(value)
    return wanted


def arithmetic(operator: str, first: Numbers, second: Numbers) -> Numbers:
    """Return what an operator of arithmetic makes of two numbers."""
    valid = first.valid & second.valid
    if operator == "*":
        largest = first.largest * second.largest
        product = sized(as_wide(first, largest) * as_wide(second, largest), largest)
        return Numbers(product, first.scale + second.scale, largest, valid)
    if operator == "/":
        return _quotient(first, second, valid)
    scale = max(first.scale, second.scale)
    first, second = at_scale(first, scale), at_scale(second, scale)
    if operator == "%":
        return _remainder(first, second, valid)
    largest = first.largest + second.largest
    left, right = as_wide(first, largest), as_wide(second, largest)
    return Numbers(sized(left + right if operator == "+" else left - right, largest), scale, largest, valid)


def _divided(first: Numbers, second: Numbers, valid: npt.NDArray[np.bool_]) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
    """Return what is divided and what it is divided by, as Python integers; NULL where that is zero."""
    is_zero = np.asarray(second.scaled == 0, np.bool_)
    divisor = np.where(is_zero, 1, second.scaled.astype(object))
    return first.scaled.astype(object), np.asarray(divisor, object), valid & ~is_zero


def _quotient(first: Numbers, second: Numbers, valid: npt.NDArray[np.bool_]) -> Numbers:
    dividend, divisor, valid = _divided(first, second, valid)
    power = QUOTIENT_DIGITS + second.scale - first.scale
    dividend, divisor = dividend * 10 ** max(power, 0), divisor * 10 ** max(-power, 0)
    rounded = np.frompyfunc(half_to_even, 2, 1)(dividend, divisor)
    largest = first.largest * 10 ** max(power, 0) + 1
    return Numbers(np.asarray(rounded, object), QUOTIENT_DIGITS, max(largest, INT64_MAX + 1), valid)


def _remainder(first: Numbers, second: Numbers, valid: npt.NDArray[np.bool_]) -> Numbers:
    """Return what a division towards zero leaves; it has the sign of what is divided."""
    dividend, divisor, valid = _divided(first, second, valid)
    signed = np.frompyfunc(lambda number, by: abs(number) % abs(by) * (1 if number > 0 else -1), 2, 1)(
        dividend, divisor
    )
    return Numbers(np.asarray(signed, object), first.scale, max(second.largest, INT64_MAX + 1), valid)


assert set(_COMPARE) == set(COMPARISONS)
