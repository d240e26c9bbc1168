"""The average: an exact quotient `whole + rest / count`, with `0 <= rest < count`, in the units of its measure.

It is compared as it is, and rounded only to be shown. Two quotients of one whole differ where `rest * other_count` and
`other_rest * count` do. A limit has digits after the point; the quotient is divided out as far as those go, nine at a
time, and the first nine that differ decide:

    limit   33.333333331      whole 33, digits 333333331, then zeros
    100/3                     whole 33, rest 1: 333333333 is more, so it is above
"""

import numpy as np

from buckets.compiled import inlined, leaf
from buckets.numbers.fixed_point import AVERAGE_FACTOR, DIGIT_BLOCK
from buckets.numbers.wide_sum import divide, join, join_within


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
