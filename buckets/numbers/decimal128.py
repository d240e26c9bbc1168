"""Values of rules as Arrow decimals, exactly: 64-bit integers times powers of ten need 128 bits."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.compiled import compiled
from buckets.numbers.fixed_point import AVERAGE_FACTOR

MOST_DIGITS = 38  # The digits that a decimal of 128 bits has room for, whatever they are
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
    whole: npt.NDArray[np.int64],
    micro: npt.NDArray[np.int32],
    factor: npt.NDArray[np.int64],
    kind: pa.Decimal128Type,
) -> pa.Array:
    """Make decimals of one type of values.

    Args:
        whole: int64 `(rows,)`, scaled units.
        micro: int32 `(rows,)`, millionths of a unit, 0 to 999,999.
        factor: int64 `(rows,)`, how many of the type's last digits make one unit: a power of ten, 10**6 to 10**18.
        kind: the decimal type.
    """
    words = _multiply(whole, micro, factor)
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(words)])


def decimals_of(scaled: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None, kind: pa.Decimal128Type) -> pa.Array:
    """Make decimals of one type of scaled integers.

    Args:
        scaled: `(rows,)`, int64, or Python integers.
        valid: bool `(rows,)`, which are not NULL; None where none is.
        kind: the decimal type, with the scale of the integers.

    Raises:
        OverflowError: an integer has more digits than the type has room for.
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
