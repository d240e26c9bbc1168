"""Sums beyond 64 bits: pairs `(high, low)` that mean `high * 2**32 + low`.

A pair is *normal* when `0 <= low < 2**32`. Sums of pairs, member by member, stay exact for 2**31 summands and more; a
sum that does not fit 64 bits is noticed, never wrapped.

The average.
"""

from typing import Final

import numpy as np

from buckets.compiled import inlined, leaf
from buckets.numbers.fixed_point import AVERAGE_FACTOR, DIGIT_BLOCK, INT64_MAX, INT64_MIN

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


@leaf
def quotient(high, low, count):
    """Return a sum, as a pair, divided by a count of 1 to 2**31 - 1.

    Returns:
        Whole, rounded down, and rest; the nearest whole that fits 64 bits and no rest where it does not fit.
    """
    quotient_high, quotient_low, rest = divide(high, low, count)
    whole, fits = join(quotient_high, quotient_low)
    if fits:
        return whole, rest
    return join_within(quotient_high, quotient_low), np.int64(0)


@inlined
def rounded(whole, rest, count):
    """Return a quotient, rounded half-even to millionths.

    Returns:
        Whole, rounded down, and millionths, 0 to 999,999.
    """
    scaled_rest = rest * AVERAGE_FACTOR
    micro = scaled_rest // count
    twice = 2 * (scaled_rest - micro * count)
    if twice > count or (twice == count and micro % 2 == 1):
        micro += 1
    if micro == AVERAGE_FACTOR:
        return whole + 1, np.int64(0)
    return whole, micro


@inlined
def is_less(whole, rest, count, other_whole, other_rest, other_count):
    """Return whether one quotient is smaller than another."""
    return whole < other_whole or (whole == other_whole and rest * other_count < other_rest * count)


@leaf
def side_of_digits(rest, count, digits, rule):
    """Return on which side of a limit of the same whole a quotient lies.

    Args:
        rest: the quotient's.
        count: the quotient's.
        digits: int64 `(rules, DIGIT_BLOCKS)`, the limits' digits after the point.
        rule: whose limit.

    Returns:
        -1 where it is below, 0 where it is the limit, 1 where it is above.
    """
    for block in range(digits.shape[1]):
        scaled_rest = rest * DIGIT_BLOCK
        block_digits = scaled_rest // count
        rest = scaled_rest - block_digits * count
        if block_digits != digits[rule, block]:
            return 1 if block_digits > digits[rule, block] else -1
    return 1 if rest > 0 else 0
