"""Sums beyond 64 bits: pairs `(high, low)` that mean `high * 2**32 + low`.

A pair is *normal* when `0 <= low < 2**32`. Sums of pairs, member by member, stay exact for 2**31 summands and more; a
sum that does not fit 64 bits is noticed, never wrapped.
"""

from typing import Final

import numpy as np

from buckets.compiled import inlined, leaf
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN

LOW_BITS: Final = 32
LOW_MASK: Final = 2**32 - 1


@inlined
def join(high, low):
    """Return the number that a pair means.

    Returns:
        The number, and whether it fits 64 bits; where it does not, the number is 0.
    """
    high += low >> LOW_BITS
    if high < -(2**31) or high >= 2**31:
        return np.int64(0), False
    return (high << LOW_BITS) | (low & LOW_MASK), True


@leaf
def join_within(high, low):
    """Return the number that a pair means, or the nearest one that fits 64 bits."""
    number, fits = join(high, low)
    if fits:
        return number
    return np.int64(INT64_MIN) if is_negative(high, low) else np.int64(INT64_MAX)


@leaf
def is_negative(high, low):
    """Return whether the number that a pair means is below 0."""
    return high + (low >> LOW_BITS) < 0


@leaf
def divide(high, low, divisor):
    """Return a pair divided by 1 to 2**31 - 1, rounded down.

    Returns:
        The quotient, as a pair, and the rest, 0 to divisor - 1.
    """
    high += low >> LOW_BITS
    low &= LOW_MASK
    quotient_high = high // divisor
    rest = ((high - quotient_high * divisor) << LOW_BITS) | low
    quotient_low = rest // divisor
    return quotient_high, quotient_low, rest - quotient_low * divisor


@leaf
def share(high, low, numerator, denominator):
    """Return the part `numerator / denominator` of a pair, rounded half-even.

    Args:
        high: upper member.
        low: lower member.
        numerator: 0 to denominator.
        denominator: 1 to 2**31 - 1.

    Returns:
        The part, as a pair.
    """
    quotient_high, quotient_low, rest = divide(high, low, denominator)
    part = rest * numerator
    whole = part // denominator
    twice = 2 * (part - whole * denominator)
    part_high, part_low = quotient_high * numerator, quotient_low * numerator + whole
    if twice > denominator or (twice == denominator and part_low & 1):
        part_low += 1
    return part_high, part_low


@leaf
def times(number, factor):
    """Return a 64-bit number times a factor of 0 to 2**31 - 1, as a pair."""
    return (number >> LOW_BITS) * factor, (number & LOW_MASK) * factor
