"""Exact decimals as scaled 64-bit integers: `12.34` at scale 2 is 1234, and stays an integer from input to output."""

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
AVERAGE_EXTRA_DIGITS = 6  # Digits an average has beyond its measure's scale
AVERAGE_FACTOR = 10**AVERAGE_EXTRA_DIGITS
DIGIT_BLOCK = 10**9
"""Digits of a limit after the point are taken nine at a time: times a count of 2**31 that still fits 64 bits."""
DIGIT_BLOCKS = 5  # So many blocks have room for the 38 digits that a limit may have
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_PARTS = re.compile(r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE](?P<sign>[+-])?(?P<power>\d+))?", re.ASCII)
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_LONGEST_TEXT = 64
_LONGEST_POWER = 10
_MOST_DIGITS = len(str(INT64_MAX))


def parse_decimal(text: str) -> Decimal:
    """Read a finite decimal written in ASCII digits, with an optional point and exponent.

    Raises:
        ValueError: not a number, or more than 64 characters.
    """
    if len(text) > _LONGEST_TEXT or _NUMBER.fullmatch(text) is None:
        hint = "; write it without commas" if "," in text else ""
        message = f"{text[:_LONGEST_TEXT]!r} is not a decimal number{hint}"
        raise ValueError(message)
    return Decimal(text)


def read_number(text: str) -> Decimal:
    """Read a decimal written in ASCII digits, with an optional point and exponent, of any length.

    An exponent of more than ten digits is cut to ten nines: no text is so long that it would matter.

    Raises:
        ValueError: not a number.
    """
    parts = _PARTS.fullmatch(text)
    if parts is None:
        message = f"{_shown(text)!r} is not a decimal number"
        raise ValueError(message)
    power = (parts["power"] or "").lstrip("0")
    if len(power) > _LONGEST_POWER:
        power = "9" * _LONGEST_POWER
    return Decimal(f"{parts['number']}e{parts['sign'] or ''}{power or 0}")


def whole_digits(number: Decimal) -> int:
    """Return the number of digits before the point; 0 or less for a fraction that begins with zeros."""
    return number.adjusted() + 1 if number else 0


def integer_at(number: Decimal, places: int, rounding: str) -> tuple[int, bool]:
    """Return a number times `10**places` as an integer, in a rounding mode of `decimal`, and whether that is exact.

    Check with `whole_digits` first that the number is small enough.
    """
    scaled = _EXACT.scaleb(number, places)
    integer = scaled.to_integral_value(rounding, _EXACT)
    return int(integer), integer == scaled


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def to_scaled(text: str, scale: int) -> int:
    """Convert decimal text of any length to an integer in units of `10**-scale`.

    Raises:
        ValueError: not a number, more digits after the point than `scale`, or beyond 64 bits.
    """
    return _within(text, scale, rounds=False)[0]


def to_rounded(text: str, scale: int) -> tuple[int, bool]:
    """Convert decimal text as `to_scaled` does, but round half-even if it has more digits after the point than `scale`.

    Returns:
        The integer, and whether it was rounded.

    Raises:
        ValueError: not a number, or beyond 64 bits.
    """
    return _within(text, scale, rounds=True)


def _within(text: str, scale: int, rounds: bool) -> tuple[int, bool]:
    number = read_number(text)
    if whole_digits(number) + scale <= _MOST_DIGITS:
        scaled, is_whole = integer_at(number, scale, ROUND_HALF_EVEN if rounds else ROUND_DOWN)
        if not is_whole and not rounds:
            message = f"{_shown(text)} has more than {scale} digits after the point"
            raise ValueError(message)
        if INT64_MIN <= scaled <= INT64_MAX:
            return scaled, not is_whole
    most = format_scaled(INT64_MAX, scale)
    message = f"{_shown(text)} is too large: at scale {scale} a measure holds up to {most}"
    raise ValueError(message)


def format_scaled(scaled: int, scale: int) -> str:
    """Write a scaled integer as decimal text with exactly `scale` digits after the point."""
    if scale == 0:
        return str(scaled)
    sign = "-" if scaled < 0 else ""
    digits = str(abs(scaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def half_to_even(dividend: int, divisor: int) -> int:
    """Divide integers of any size, rounded half to even."""
    whole, rest = divmod(dividend, divisor)
    twice = 2 * abs(rest) - abs(divisor)
    return whole + (twice > 0 or (twice == 0 and whole % 2 == 1))


def finite_decimal(written: Any) -> Decimal | None:
    """Return a finite number as it was written; None for anything else."""
    if not isinstance(written, str | int | float | Decimal) or isinstance(written, bool):
        return None
    try:
        number = Decimal(str(written))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def readable(value: Decimal | str) -> str:
    """Write a value with separated thousands and without the zeros that pad its column."""
    number = Decimal(value)
    whole, _, digits = format(number, "f").partition(".")
    kept = digits.rstrip("0")
    text = f"{int(whole):,}" if int(whole) else whole
    return f"{text}.{kept.ljust(2, '0')}" if kept else text


def decimal_text(number: Fraction, digits: int) -> str:
    """Write a number with this many digits after the point."""
    return f"{float(number):,.{digits}f}"


def short_decimal_text(number: Fraction) -> str:
    """Write a number with up to four digits after the point."""
    text = decimal_text(number, 4).rstrip("0").rstrip(".")
    return f"{int(number):,}" if number.denominator == 1 else text


def percent_text(share: Fraction | float | None) -> str:
    """Write a share in per cent with a digit after the point; empty for None."""
    return "" if share is None else f"{float(share):.1%}".replace("%", " %")


def short_percent_text(share: float) -> str:
    """Write a share in per cent, with a digit after the point only where it matters, near 0 and near 100."""
    text = f"{share * 100:.{0 if 0.2 <= share <= 0.99 else 1}f}".removesuffix(".0")
    return f"{text} %"


def money_text(amount: Decimal | None) -> str:
    """Write an amount; empty for None."""
    return "" if amount is None else f"{amount:,f}"
