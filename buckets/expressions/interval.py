"""Numbers between two bounds, and exact arithmetic on them.

All is computed in decimals without rounding, but for quotients, whose bounds are rounded as `decimals` rounds them;
since rounding keeps the order of numbers, what lies between two numbers lies between them when all are rounded.
"""

from collections.abc import Iterator
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Final, NamedTuple

from buckets.expressions.decimals import QUOTIENT_DIGITS
from buckets.numbers.fixed_point import half_to_even

ZERO: Final = Decimal(0)
_INFINITY = Decimal("Infinity")
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation])


class Interval(NamedTuple):
    """A number of which bounds are known.

    Attributes:
        lower: the least that it may be; minus infinity where there is no bound.
        upper: the most that it may be; infinity where there is no bound.
        may_be_null: whether it may be NULL instead.
    """

    lower: Decimal
    upper: Decimal
    may_be_null: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether there is one number that it may be."""
        return self.lower == self.upper


def point(number: Decimal | int) -> Interval:
    """Return a number that is known."""
    exact = Decimal(number)
    return Interval(exact, exact)


def scaled_down(number: int, digits: int) -> Decimal:
    """Return an integer with so many of its digits after the point, all of them kept."""
    return _EXACT.scaleb(Decimal(number), -digits)


def negated(number: Interval) -> Interval:
    """Return the number with the other sign."""
    return Interval(number.upper.copy_negate(), number.lower.copy_negate(), number.may_be_null)


def absolute(number: Interval) -> Interval:
    """Return the number without its sign."""
    if number.lower >= 0:
        return number
    opposite = negated(number)
    return opposite if number.upper <= 0 else Interval(ZERO, _furthest(number), number.may_be_null)


def _furthest(number: Interval) -> Decimal:
    """Return how far from zero it may be."""
    return max(number.lower.copy_abs(), number.upper.copy_abs())


def add(first: Interval, second: Interval) -> Interval:
    """Return the sum."""
    lower, upper = _EXACT.add(first.lower, second.lower), _EXACT.add(first.upper, second.upper)
    return Interval(lower, upper, first.may_be_null or second.may_be_null)


def subtract(first: Interval, second: Interval) -> Interval:
    """Return the difference."""
    lower, upper = _EXACT.subtract(first.lower, second.upper), _EXACT.subtract(first.upper, second.lower)
    return Interval(lower, upper, first.may_be_null or second.may_be_null)


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
    """Return the quotient; None where it is surely NULL."""
    if second.lower == second.upper == 0:
        return None
    quotients = [quotient for number in (first.lower, first.upper) for quotient in _quotients(number, second)]
    has_zero = second.lower <= 0 <= second.upper
    return Interval(min(quotients), max(quotients), has_zero or first.may_be_null or second.may_be_null)


def _quotients(number: Decimal, divisor: Interval) -> Iterator[Decimal]:
    """Yield the ends of what a number becomes, divided by the negative part of an interval, and by the positive one."""
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
    """Return what a division towards zero leaves; None where it is surely NULL."""
    may_be_null = first.may_be_null or second.may_be_null
    if second.lower == second.upper == 0:
        return None
    if first.is_exact and second.is_exact:
        rest = _EXACT.remainder(first.lower, second.lower)
        return Interval(rest, rest, may_be_null)
    # It has the sign of what is divided, and is no further from zero than either.
    most = min(_furthest(first), _furthest(second))
    lower, upper = (most.copy_negate() if first.lower < 0 else ZERO), (most if first.upper > 0 else ZERO)
    return Interval(lower, upper, may_be_null or second.lower <= 0 <= second.upper)
