"""Sums beyond 64 bits: pairs `(high, low)` that mean `high * 2**32 + low`; their averages, and Arrow decimals.

A pair is *normal* if `0 <= low < 2**32`. Adding pairs member by member stays exact for at least 2**31 summands; a sum
that does not fit 64 bits is detected, and never wraps.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.arrays import Flags, Int32s, Int64s
from buckets.compiled import compiled, inlined, leaf
from buckets.numbers.fixed_point import AVERAGE_FACTOR, DIGIT_BLOCK, INT64_MAX, INT64_MIN

LOW_BITS: Final = 32
LOW_MASK: Final = 2**32 - 1


@inlined
def join(high, low):
    """Return the number of a pair, and whether it fits 64 bits; the number is 0 if it does not."""
    high += low >> LOW_BITS
    if high < -(2**31) or high >= 2**31:
        return np.int64(0), False
    return (high << LOW_BITS) | (low & LOW_MASK), True


@leaf
def join_within(high, low):
    """Return the number of a pair, or the nearest one that fits 64 bits."""
    number, fits = join(high, low)
    if fits:
        return number
    return np.int64(INT64_MIN) if is_negative(high, low) else np.int64(INT64_MAX)


@leaf
def is_negative(high, low):
    """Return whether the number of a pair is below 0."""
    return high + (low >> LOW_BITS) < 0


@leaf
def divide(high, low, divisor):
    """Return a pair divided by 1 to 2**31 - 1, rounded down, as a pair, and the rest, 0 to divisor - 1."""
    high += low >> LOW_BITS
    low &= LOW_MASK
    quotient_high = high // divisor
    rest = ((high - quotient_high * divisor) << LOW_BITS) | low
    quotient_low = rest // divisor
    return quotient_high, quotient_low, rest - quotient_low * divisor


@leaf
def share(high, low, numerator, denominator):
    """Return the part `numerator / denominator` of a pair, 0 to 1, rounded half-even, as a pair.

    The denominator is 1 to 2**31 - 1.
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
    """Divide a pair by a count of 1 to 2**31 - 1; return the whole, rounded down, and the rest.

    If the quotient does not fit 64 bits, return the nearest whole that does, and rest 0.
    """
    quotient_high, quotient_low, rest = divide(high, low, count)
    whole, fits = join(quotient_high, quotient_low)
    if fits:
        return whole, rest
    return join_within(quotient_high, quotient_low), np.int64(0)


@inlined
def rounded(whole, rest, count):
    """Round a quotient half-even to millionths; return its whole, rounded down, and millionths, 0 to 999,999."""
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
    """Compare a quotient with a limit that has the same whole: -1 below, 0 equal, 1 above.

    `digits` are all limits' digits after the point, int64 `(rules, DIGIT_BLOCKS)`.
    """
    for block in range(digits.shape[1]):
        scaled_rest = rest * DIGIT_BLOCK
        block_digits = scaled_rest // count
        rest = scaled_rest - block_digits * count
        if block_digits != digits[rule, block]:
            return 1 if block_digits > digits[rule, block] else -1
    return 1 if rest > 0 else 0


MOST_DIGITS = 38  # The number of digits that always fit into a decimal of 128 bits
_HALF = np.uint64(0xFFFFFFFF)
_BITS = np.uint64(32)


@compiled
def _multiply(whole, micro, factor):
    """Return `whole * factor + micro * (factor / 1,000,000)` as pairs of words, low first: int64 `(rows, 2)`."""
    words = np.empty((whole.shape[0], 2), np.int64)
    for row in range(whole.shape[0]):
        negative = whole[row] < 0
        left = np.uint64(-whole[row]) if negative else np.uint64(whole[row])
        right = np.uint64(factor[row])
        low_low = (left & _HALF) * (right & _HALF)
        low_high = (left & _HALF) * (right >> _BITS)
        high_low = (left >> _BITS) * (right & _HALF)
        middle = (low_low >> _BITS) + (low_high & _HALF) + (high_low & _HALF)
        low = (middle << _BITS) | (low_low & _HALF)
        high = (left >> _BITS) * (right >> _BITS) + (low_high >> _BITS) + (high_low >> _BITS) + (middle >> _BITS)
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == np.uint64(0))
        added = low + np.uint64(micro[row] * (factor[row] // AVERAGE_FACTOR))
        high += np.uint64(added < low)
        words[row, 0] = np.int64(added)
        words[row, 1] = np.int64(high)
    return words


def decimals(
    whole: Int64s,
    micro: Int32s,
    factor: Int64s,
    kind: pa.Decimal128Type,
) -> pa.Array:
    """Build an Arrow decimal array from wholes and millionths.

    Args:
        whole: int64 `(rows,)`, scaled units.
        micro: int32 `(rows,)`, millionths of a unit, 0 to 999,999.
        factor: int64 `(rows,)`, how many of the type's last digits make one unit: a power of ten, 10**6 to 10**18.
        kind: the decimal type.
    """
    words = _multiply(whole, micro, factor)
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(words)])


def decimals_of(scaled: npt.NDArray[Any], valid: Flags | None, kind: pa.Decimal128Type) -> pa.Array:
    """Build an Arrow decimal array from scaled integers.

    Args:
        scaled: `(rows,)`, int64, or Python integers.
        valid: bool `(rows,)`, which are not NULL; None if no row is NULL.
        kind: the decimal type, with the scale of the integers.

    Raises:
        OverflowError: an integer has more digits than the type can hold.
    """
    mask = None if valid is None or valid.all() else valid
    bits = None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))
    if scaled.dtype != object:
        return pa.Array.from_buffers(kind, len(scaled), [bits, pa.py_buffer(np.stack([scaled, scaled >> 63], axis=1))])
    numbers = scaled if mask is None else np.where(mask, scaled, 0)
    if len(numbers) and max(abs(numbers.min()), abs(numbers.max())) >= 10**MOST_DIGITS:
        message = f"a number has more than {MOST_DIGITS} digits"
        raise OverflowError(message)
    data = b"".join(int(number).to_bytes(16, "little", signed=True) for number in numbers)
    return pa.Array.from_buffers(kind, len(scaled), [bits, pa.py_buffer(data)])
