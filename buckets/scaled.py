"""Exact decimals as scaled 64-bit integers: `12.34` at scale 2 is 1234, and stays an integer from input to output."""

import re
from decimal import Decimal

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
AVERAGE_EXTRA_DIGITS = 6
"""Digits an average has beyond its measure's scale."""
AVERAGE_FACTOR = 10**AVERAGE_EXTRA_DIGITS
DIGIT_BLOCK = 10**9
"""Digits of a limit behind the point are taken nine at a time: times a count of 2**31 that still fits 64 bits."""
DIGIT_BLOCKS = 5
"""So many blocks have room for the 38 digits that a limit may have."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_LONGEST_TEXT = 64


def parse_decimal(text: str) -> Decimal:
    """Read a finite decimal written in ASCII digits, with an optional point and exponent.

    Raises:
        ValueError: not a number, or more than 64 characters.
    """
    if len(text) > _LONGEST_TEXT or _NUMBER.fullmatch(text) is None:
        message = f"{text[:_LONGEST_TEXT]!r} is not a decimal number"
        raise ValueError(message)
    return Decimal(text)


def to_scaled(text: str, scale: int) -> int:
    """Turn decimal text into an integer count of `10**-scale`.

    Raises:
        ValueError: not a number, more digits after the point than `scale`, or beyond 64 bits.
    """
    return scaled_decimal(parse_decimal(text), scale, text)


def scaled_decimal(number: Decimal, scale: int, text: str) -> int:
    """Turn a finite decimal, which stands as `text`, into an integer count of `10**-scale`.

    Raises:
        ValueError: more digits after the point than `scale`, or beyond 64 bits.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number and number.adjusted() + scale > 18:
        message = f"{text} is too large: at scale {scale} a measure holds up to {INT64_MAX}e-{scale}"
        raise ValueError(message)
    shift = exponent + scale
    magnitude = int("".join(map(str, digits)))
    if shift >= 0:
        scaled = magnitude * 10**shift if magnitude else 0
    else:
        scaled, rest = divmod(magnitude, 10**-shift)
        if rest:
            message = f"{text} has more than {scale} digits after the point"
            raise ValueError(message)
    scaled = -scaled if sign else scaled
    if not INT64_MIN <= scaled <= INT64_MAX:
        message = f"{text} is too large: at scale {scale} a measure holds up to {INT64_MAX}e-{scale}"
        raise ValueError(message)
    return scaled


def format_scaled(scaled: int, scale: int) -> str:
    """Write a scaled integer as decimal text with exactly `scale` digits after the point."""
    if scale == 0:
        return str(scaled)
    sign = "-" if scaled < 0 else ""
    digits = str(abs(scaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
