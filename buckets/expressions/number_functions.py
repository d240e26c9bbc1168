"""Exact arithmetic on columns of decimals, and functions of numbers that SQL lacks.

`ratio(a, b)`
    a / b.
`zscore(x, mean, deviation)`
    (x - mean) / deviation: by how many deviations x lies above the mean; NULL where the deviation is 0.
`geo_speed_kmh(latitude, longitude, earlier_latitude, earlier_longitude, seconds)`
    How fast somebody went from one point to the other, over the ground, in km/h with 3 digits after the point. NULL
    where anything is, where a latitude is not in -90 to 90 or a longitude not in -180 to 180, and for less than no
    time. `FASTEST_KMH` is the most that comes out, just short of the speed of light: so fast is who was in two
    places at one time. Whoever stays where they were goes at 0, and in no time too.
`sqrt(x)`
    The root, rounded to 18 digits after the point; NULL of a number below 0.
`ln(x)`
    The natural logarithm, rounded half-even to 18 digits after the point, of one with 60 digits in all; NULL of a
    number that is not above 0.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.arrays import Flags
from buckets.expressions.expression import ARITHMETIC, COMPARISONS, Expression, digits_after_point
from buckets.numbers.fixed_point import INT64_MAX, half_to_even

QUOTIENT_DIGITS: Final = 18  # Digits after the point of a quotient


@dataclass(frozen=True)
class Numbers:
    """Decimals, exactly."""

    # the numbers times `10**scale`, int64 or Python integers, `(rows,)`, or `()` for a constant
    scaled: npt.NDArray[Any]
    scale: int  # digits after the point
    largest: int  # no number, scaled, is further from zero than this
    valid: Flags  # bool, which are not NULL, `(rows,)` or `()`

    @property
    def is_constant(self) -> bool:
        """Whether all rows have the same number."""
        return self.scaled.ndim == 0 and bool(self.valid.all())

    def rows(self, chosen: Any) -> "Numbers":
        """Return some of the rows, selected by a numpy index."""
        return replace(self, scaled=self.scaled[chosen], valid=self.valid[chosen])


def numbers(column: pa.Array, scale: int) -> Numbers:
    """Return an Arrow int64 column of scaled decimals as numbers."""
    return Numbers(
        column.fill_null(0).to_numpy(), scale, INT64_MAX + 1, column.is_valid().to_numpy(zero_copy_only=False)
    )


def plain_text(number: Decimal) -> str:
    """Return a number as text for a list key: no exponent, no trailing zeros."""
    written = format(number, "f")
    written = written.rstrip("0").rstrip(".") if "." in written else written
    return "0" if written == "-0" else written


def texts_of(number: Numbers) -> pa.Array:
    """Return numbers (not a constant) as `plain_text`, converting each distinct one once."""
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
    """Return integers as an array with room for `largest`; numpy turns a single one into a Python integer."""
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
    """Return the rows for which a comparison of the stored values is true, whether or not they are NULL."""
    if second.is_constant and second.scale > first.scale:
        return compared_with_limits(operator, first, second)
    scale = max(first.scale, second.scale)
    first, second = at_scale(first, scale), at_scale(second, scale)
    return COMPARISONS[operator](first.scaled, second.scaled)


def compared_with_limits(operator: str, numbers: Numbers, limits: Numbers) -> Any:
    """Compare numbers with limits at their own scale; a limit between two numbers becomes the lower or upper one.

    Limits are never NULL; with one limit for all numbers, `(rows,)`, the result is bool `(rows,)`, with several,
    `(limits, 1)`, it is `(limits, rows)`.
    """
    if limits.scale <= numbers.scale:
        return COMPARISONS[operator](numbers.scaled, at_scale(limits, numbers.scale).scaled)
    unit = 10 ** (limits.scale - numbers.scale)
    wide = as_wide(limits, unit)
    below = np.asarray(wide // unit, wide.dtype)
    is_between = np.asarray(below * unit != wide, np.bool_)
    if operator in (">=", "<"):
        below = below + is_between.astype(below.dtype)
    found = COMPARISONS[operator](numbers.scaled, sized(below, limits.largest // unit + 1))
    if operator == "=":
        return found & ~is_between
    return found | is_between if operator == "!=" else found


def on_grid(members: Sequence[Expression], scale: int) -> list[int]:
    """Return the scaled values of those literals that a number of this scale can equal."""
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
    """Return the result of an arithmetic operator on two numbers."""
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


def _divided(first: Numbers, second: Numbers, valid: Flags) -> tuple[Any, Any, Flags]:
    """Return dividend and divisor as Python integers; NULL where the divisor is zero."""
    is_zero = np.asarray(second.scaled == 0, np.bool_)
    divisor = np.where(is_zero, 1, second.scaled.astype(object))
    return first.scaled.astype(object), np.asarray(divisor, object), valid & ~is_zero


def _quotient(first: Numbers, second: Numbers, valid: Flags) -> Numbers:
    dividend, divisor, valid = _divided(first, second, valid)
    power = QUOTIENT_DIGITS + second.scale - first.scale
    dividend, divisor = dividend * 10 ** max(power, 0), divisor * 10 ** max(-power, 0)
    rounded = np.frompyfunc(half_to_even, 2, 1)(dividend, divisor)
    largest = first.largest * 10 ** max(power, 0) + 1
    return Numbers(np.asarray(rounded, object), QUOTIENT_DIGITS, max(largest, INT64_MAX + 1), valid)


def _remainder(first: Numbers, second: Numbers, valid: Flags) -> Numbers:
    """Return the remainder of a division towards zero; it has the sign of the dividend."""
    dividend, divisor, valid = _divided(first, second, valid)
    signed = np.frompyfunc(lambda number, by: abs(number) % abs(by) * (1 if number > 0 else -1), 2, 1)(
        dividend, divisor
    )
    return Numbers(np.asarray(signed, object), first.scale, max(second.largest, INT64_MAX + 1), valid)


def first_where(conditions: Sequence[Flags], found: Sequence[Numbers]) -> Numbers:
    """Return the first number whose condition, `(rows,)` or `()`, is true; NULL if none is."""
    scale = max(number.scale for number in found)
    largest = max(number.largest * 10 ** (scale - number.scale) for number in found)
    scaled, valid, is_chosen = sized(0, largest), np.asarray(False), np.asarray(False)
    for condition, number in zip(conditions, found, strict=True):
        chosen = condition & ~is_chosen
        scaled = np.where(chosen, as_wide(at_scale(number, scale), largest), scaled)
        valid, is_chosen = np.where(chosen, number.valid, valid), is_chosen | condition
    return Numbers(scaled, scale, largest, valid)


def greatest(found: Sequence[Numbers], least: bool = False) -> Numbers:
    """Return the greatest, or with `least` the least, of the numbers that are not NULL."""
    best, *others = found
    for other in others:
        is_better = other.valid & (~best.valid | compared("<" if least else ">", other, best))
        best = first_where([is_better, np.asarray(True)], [other, best])
    return best


def rounded(number: Numbers, digits: int = 0) -> Numbers:
    """Round numbers to `digits` after the point, or before it if negative; ties go away from 0."""
    if digits >= number.scale:
        return number
    unit, zeros = 10 ** (number.scale - digits), 10 ** max(-digits, 0)
    wide = as_wide(number, (2 * number.largest + unit) * zeros)
    signs = np.where(wide < 0, -1, 1).astype(wide.dtype)
    largest = (number.largest // unit + 1) * zeros
    nearest = sized((2 * np.abs(wide) + unit) // (2 * unit) * zeros * signs, largest)
    return Numbers(nearest, max(digits, 0), largest, number.valid)


def _of_positive(number: Numbers, least: int, compute: Callable[[int], int], largest: int) -> Numbers:
    """Return a function of scaled numbers from `least` on; NULL for smaller ones."""
    valid = number.valid & np.asarray(number.scaled >= least, np.bool_)
    found = np.frompyfunc(lambda scaled: compute(int(scaled)), 1, 1)(np.where(valid, number.scaled, 1))
    return Numbers(np.asarray(found, object), QUOTIENT_DIGITS, max(largest, INT64_MAX + 1), valid)


def _root(number: Numbers) -> Numbers:
    """Return each square root, rounded: half of the integer root of four times the number."""
    power = 2 * QUOTIENT_DIGITS - number.scale

    def root(scaled: int) -> int:
        return (math.isqrt(4 * scaled * 10 ** max(power, 0) // 10 ** max(-power, 0)) + 1) // 2

    return _of_positive(number, 0, root, root(number.largest))


_LOGARITHM: Final = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _logarithm(number: Numbers) -> Numbers:
    def logarithm(scaled: int) -> int:
        found = _LOGARITHM.ln(scaled_down(scaled, number.scale))
        return int(_LOGARITHM.to_integral_value(_LOGARITHM.scaleb(found, QUOTIENT_DIGITS)))

    largest = (number.largest.bit_length() + 4 * number.scale + 1) * 10**QUOTIENT_DIGITS
    return _of_positive(number, 1, logarithm, largest)


def _with_sign(change: Callable[[npt.NDArray[Any]], Any], number: Numbers) -> Numbers:
    """Change the signs of numbers by a function of numpy, such as negation."""
    return replace(number, scaled=sized(change(as_wide(number, number.largest)), number.largest))


ZERO: Final = Decimal(0)
_INFINITY = Decimal("Infinity")
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation])


class Interval(NamedTuple):
    """A number between known bounds."""

    lower: Decimal  # the least that it may be; minus infinity where there is no bound
    upper: Decimal  # the most that it may be; infinity where there is no bound
    may_be_null: bool = False  # whether it may be NULL instead

    @property
    def is_exact(self) -> bool:
        """Whether it can be only one number."""
        return self.lower == self.upper


def point(number: Decimal | int) -> Interval:
    """Return a known number as an interval."""
    exact = Decimal(number)
    return Interval(exact, exact)


def scaled_down(number: int, digits: int) -> Decimal:
    """Return an integer shifted by `digits` decimal places, keeping all its digits."""
    return _EXACT.scaleb(Decimal(number), -digits)


def negated(number: Interval) -> Interval:
    """Return the number with its sign changed."""
    return Interval(number.upper.copy_negate(), number.lower.copy_negate(), number.may_be_null)


def absolute(number: Interval) -> Interval:
    """Return the absolute value."""
    if number.lower >= 0:
        return number
    opposite = negated(number)
    return opposite if number.upper <= 0 else Interval(ZERO, _furthest(number), number.may_be_null)


def _furthest(number: Interval) -> Decimal:
    return max(number.lower.copy_abs(), number.upper.copy_abs())


def add(first: Interval, second: Interval) -> Interval:
    """Return the sum."""
    lower, upper = _EXACT.add(first.lower, second.lower), _EXACT.add(first.upper, second.upper)
    return Interval(lower, upper, first.may_be_null or second.may_be_null)


def subtract(first: Interval, second: Interval) -> Interval:
    """Return the difference."""
    return add(first, negated(second))


def multiply(first: Interval, second: Interval) -> Interval:
    """Return the product."""
    # Infinity is a bound and no number, so that zero times a number below it is zero.
    products = [
        _EXACT.multiply(one, other) if one and other else ZERO
        for one in (first.lower, first.upper)
        for other in (second.lower, second.upper)
    ]
    return Interval(min(products), max(products), first.may_be_null or second.may_be_null)


def divide(first: Interval, second: Interval) -> Interval | None:
    """Return the quotient; None if it is surely NULL."""
    if second.lower == second.upper == 0:
        return None
    quotients = [quotient for number in (first.lower, first.upper) for quotient in _quotients(number, second)]
    has_zero = second.lower <= 0 <= second.upper
    return Interval(min(quotients), max(quotients), has_zero or first.may_be_null or second.may_be_null)


def _quotients(number: Decimal, divisor: Interval) -> Iterator[Decimal]:
    """Yield the bounds of the quotient by the negative part of an interval, and by the positive part."""
    parts = ((divisor.lower, min(divisor.upper, ZERO), True), (max(divisor.lower, ZERO), divisor.upper, False))
    for lower, upper, is_negative in parts:
        if lower > upper or lower == upper == 0:
            continue
        for end in (lower, upper):
            if end == 0:
                beyond_all = _INFINITY.copy_sign(number) if number else ZERO
                yield beyond_all.copy_negate() if is_negative else beyond_all
            elif not (number.is_infinite() and end.is_infinite()):
                yield _rounded_quotient(number, end)


def _rounded_quotient(number: Decimal, divisor: Decimal) -> Decimal:
    if number.is_infinite():
        return number if divisor > 0 else number.copy_negate()
    if divisor.is_infinite():
        return ZERO
    (above, below), (by, of) = number.as_integer_ratio(), divisor.as_integer_ratio()
    return scaled_down(half_to_even(above * of * 10**QUOTIENT_DIGITS, below * by), QUOTIENT_DIGITS)


def remainder(first: Interval, second: Interval) -> Interval | None:
    """Return the remainder of a division towards zero; None if it is surely NULL."""
    may_be_null = first.may_be_null or second.may_be_null
    if second.lower == second.upper == 0:
        return None
    if first.is_exact and second.is_exact:
        rest = _EXACT.remainder(first.lower, second.lower)
        return Interval(rest, rest, may_be_null)
    # It has the dividend's sign, and is no further from zero than either operand.
    most = min(_furthest(first), _furthest(second))
    lower, upper = (most.copy_negate() if first.lower < 0 else ZERO), (most if first.upper > 0 else ZERO)
    return Interval(lower, upper, may_be_null or second.lower <= 0 <= second.upper)


def rising(function: Callable[[Numbers], Numbers], number: Interval, least: Decimal | None = None) -> Interval | None:
    """Apply a function that never falls; None if the result is surely NULL.

    A function that is NULL for small numbers is defined from `least` on.
    """
    lower, upper = (_exactly(function, end) for end in (number.lower, number.upper))
    if upper is None:
        return None
    may_be_null = number.may_be_null or (lower is None and least is not None)
    return Interval((-_INFINITY if least is None else least) if lower is None else lower, upper, may_be_null)


def _exactly(function: Callable[[Numbers], Numbers], number: Decimal) -> Decimal | None:
    if number == _INFINITY:
        return number
    if number.is_infinite():
        return None
    found = function(constant(number))
    return scaled_down(int(found.scaled), found.scale) if found.valid else None


EARTH_RADIUS_KM: Final = 6371.0088  # The mean radius of the Earth, (2a + b) / 3 of WGS 84
_HALVINGS = 3


Degrees = npt.NDArray[np.float64]


def distance_km(
    latitude_difference: Degrees,
    latitude_sum: Degrees,
    from_pole: Degrees,
    other_from_pole: Degrees,
    longitude_difference: Degrees,
    longitude_supplement: Degrees,
) -> npt.NDArray[np.float64]:
    """Return the shortest way between two points over the ground; float64, of any one shape; 0 for one point only.

    Args:
        latitude_difference: in degrees, -180 to 180.
        latitude_sum: in degrees, -180 to 180.
        from_pole: degrees of latitude from the first point to the nearest pole, 0 to 90.
        other_from_pole: those of the second point.
        longitude_difference: in degrees, the shorter way round, 0 to 180.
        longitude_supplement: what it lacks of 180 degrees.
    """
    cosines = _sine(from_pole) * _sine(other_from_pole)
    near = _sine(latitude_difference / 2) ** 2 + cosines * _sine(longitude_difference / 2) ** 2
    far = _sine(latitude_sum / 2) ** 2 + cosines * _sine(longitude_supplement / 2) ** 2
    return np.asarray(2 * EARTH_RADIUS_KM * _angle(np.sqrt(near), np.sqrt(far)))


def _sine(degrees: Any) -> Any:
    """Return the sine of angles from -90 to 90 degrees, by its series."""
    angle = degrees * (math.pi / 180)
    square, found = angle * angle, np.zeros_like(angle)
    for power in range(21, 0, -2):
        found = 1 / math.factorial(power) - square * found
    return angle * found


def _angle(opposite: Any, adjacent: Any) -> Any:
    """Return the angle, in radians, between the hypotenuse of a right triangle and the adjacent side."""
    tangent = np.minimum(opposite, adjacent) / np.maximum(opposite, adjacent)
    for _ in range(_HALVINGS):
        tangent = tangent / (1 + np.sqrt(1 + tangent * tangent))
    square, found = tangent * tangent, np.zeros_like(tangent)
    for power in range(17, 0, -2):
        found = 1 / power - square * found
    angle = 2**_HALVINGS * tangent * found
    return np.where(opposite > adjacent, math.pi / 2 - angle, angle)


SPEED_DIGITS: Final = 3
FASTEST_KMH: Final = Decimal("999999999.999")
_FASTEST = int(FASTEST_KMH.scaleb(SPEED_DIGITS))
_SECONDS_PER_HOUR = 3600
_EXACT_INTEGERS = 2**53  # Up to here each integer is a double
_EXACT_POWERS = 22  # Up to here each power of ten is a double


def _geo_speed_kmh(
    latitude: Numbers, longitude: Numbers, earlier_latitude: Numbers, earlier_longitude: Numbers, seconds: Numbers
) -> Numbers:
    latitudes = _within(latitude, 90), _within(earlier_latitude, 90)
    longitudes = _within(longitude, 180), _within(earlier_longitude, 180)
    apart = arithmetic("-", *longitudes)
    full = 360 * 10**apart.scale
    one_way = sized(np.abs(as_wide(apart, full)), full)
    other_way = sized(full - one_way, full)
    shorter = Numbers(np.where(one_way < other_way, one_way, other_way), apart.scale, full, apart.valid)
    distance = distance_km(
        _doubles(arithmetic("-", *latitudes)),
        _doubles(arithmetic("+", *latitudes)),
        _doubles(_up_to(90, latitudes[0])),
        _doubles(_up_to(90, latitudes[1])),
        _doubles(shorter),
        _doubles(_up_to(180, shorter)),
    )
    valid = seconds.valid & np.asarray(seconds.scaled >= 0, np.bool_)
    for number in (*latitudes, *longitudes):
        valid = valid & number.valid
    time = np.where(valid, _doubles(seconds), 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        speed = distance * (_SECONDS_PER_HOUR * 10**SPEED_DIGITS) / time
    speed = np.where(distance == 0, 0, np.minimum(speed, _FASTEST))
    return Numbers(np.rint(speed).astype(np.int64), SPEED_DIGITS, _FASTEST, valid)


def _within(number: Numbers, most: int) -> Numbers:
    """Return numbers from `-most` to `most`; NULL for others."""
    largest = most * 10**number.scale
    is_within = np.asarray((number.scaled >= -largest) & (number.scaled <= largest), np.bool_)
    return Numbers(np.where(is_within, number.scaled, 0), number.scale, largest, number.valid & is_within)


def _up_to(degrees: int, angle: Numbers) -> Numbers:
    """Return the supplement of an angle's absolute value to `degrees`."""
    most = degrees * 10**angle.scale
    return Numbers(sized(most - np.abs(as_wide(angle, most)), most), angle.scale, most, angle.valid)


def _doubles(number: Numbers) -> npt.NDArray[np.float64]:
    """Return the double nearest to each number; infinity if out of range."""
    scaled, scale = number.scaled, number.scale
    is_small = scaled.dtype != object and bool(np.all((scaled <= _EXACT_INTEGERS) & (scaled >= -_EXACT_INTEGERS)))
    if is_small and scale <= _EXACT_POWERS:
        return np.asarray(scaled / 10.0**scale)
    return np.asarray(np.frompyfunc(lambda each: _double(int(each), 10**scale), 1, 1)(scaled), np.float64)


def _double(dividend: int, divisor: int) -> float:
    try:
        return dividend / divisor
    except OverflowError:
        return float("inf") if dividend > 0 else float("-inf")


OF_NUMBERS: Final[dict[str, Callable[..., Numbers]]] = {
    **{operator: functools.partial(arithmetic, operator) for operator in ARITHMETIC},
    "abs": functools.partial(_with_sign, np.abs),
    "geo_speed_kmh": _geo_speed_kmh,
    "ln": _logarithm,
    "negate": functools.partial(_with_sign, np.negative),
    "ratio": functools.partial(arithmetic, "/"),
    "sqrt": _root,
    "zscore": lambda x, mean, deviation: arithmetic("/", arithmetic("-", x, mean), deviation),
}
"""By operator or function of numbers, its result on columns of `Numbers` of any size."""
