"""Exact decimals as scaled 64-bit integers: `12.34` at scale 2 is 1234, and stays an integer from input to output."""

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
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
_PARTS = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?:(?P<down>-)|\+)?(?P<power>\d+))?", re.ASCII
)
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


@dataclass(frozen=True)
class Number:
    """A decimal of any size, exactly: `digits * 10**exponent`, negative or not."""

    negative: bool  # whether it is below zero
    digits: str  # without zeros at either end; empty for zero
    exponent: int  # an exponent of more than ten digits is cut to ten nines: no text is so long that it would matter

    @property
    def whole_digits(self) -> int:
        """How many digits stand before the point; 0 or less for a fraction that begins with zeros."""
        return len(self.digits) + self.exponent

    def scaled(self, places: int) -> tuple[int, bool]:
        """Return the number times `10**places`, cut towards zero, and whether nothing was cut off.

        The number has to be small enough to be computed with; see `whole_digits`.
        """
        shift = self.exponent + places
        kept = self.digits if shift >= 0 else self.digits[:shift]
        magnitude = int(kept or "0") * 10 ** max(shift, 0)
        return -magnitude if self.negative else magnitude, shift >= 0 or not self.digits

    def rounded(self, places: int) -> tuple[int, bool]:
        """Return the number times `10**places`, rounded half-even, and whether nothing had to be rounded.

        The number has to be small enough to be computed with; see `whole_digits`.
        """
        towards_zero, is_whole = self.scaled(places)
        cut = -(self.exponent + places)
        if is_whole or cut > len(self.digits):
            return towards_zero, is_whole
        rest = self.digits[-cut:]  # It does not end with 0, so only "5" itself is a half.
        is_away = rest > "5" or (rest == "5" and towards_zero % 2 == 1)
        return towards_zero + (-is_away if self.negative else is_away), False


def read_number(text: str) -> Number:
    """Read a decimal written in ASCII digits, with an optional point and exponent, of any length.

    Raises:
        ValueError: not a number.
    """
    parts = _PARTS.fullmatch(text)
    if parts is None or not (parts["whole"] or parts["fraction"]):
        message = f"{_shown(text)!r} is not a decimal number"
        raise ValueError(message)
    fraction = parts["fraction"] or ""
    digits = (parts["whole"] + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return Number(False, "", 0)
    power = (parts["power"] or "").lstrip("0")
    exponent = int(power or "0") if len(power) <= _LONGEST_POWER else 10**_LONGEST_POWER - 1
    exponent = -exponent if parts["down"] else exponent
    return Number(parts["sign"] == "-", significant, exponent - len(fraction) + len(digits) - len(significant))


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def to_scaled(text: str, scale: int) -> int:
    """Turn decimal text of any length into an integer count of `10**-scale`.

    Raises:
        ValueError: not a number, more digits after the point than `scale`, or beyond 64 bits.
    """
    return _within(text, scale, rounds=False)[0]


def to_rounded(text: str, scale: int) -> tuple[int, bool]:
    """Turn decimal text as `to_scaled` does, rounded half-even where it has more digits after the point than `scale`.

    Returns:
        The integer, and whether it was rounded.

    Raises:
        ValueError: not a number, or beyond 64 bits.
    """
    return _within(text, scale, rounds=True)


def _within(text: str, scale: int, rounds: bool) -> tuple[int, bool]:
    number = read_number(text)
    if number.whole_digits + scale <= _MOST_DIGITS:
        scaled, is_whole = number.rounded(scale) if rounds else number.scaled(scale)
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
    """Divide integers of any size, rounded to an integer."""
    whole, rest = divmod(dividend, divisor)
    twice = 2 * abs(rest) - abs(divisor)
    return whole + (twice > 0 or (twice == 0 and whole % 2 == 1))


def finite_decimal(written: Any) -> Decimal | None:
    """Return a number as somebody has written it; None of what is no finite number."""
    if not isinstance(written, str | int | float | Decimal) or isinstance(written, bool):
        return None
    try:
        number = Decimal(str(written))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def readable(value: Decimal | str) -> str:
    """Write a value without the zeros that pad it in its column, with separated thousands."""
    number = Decimal(value)
    whole, _, digits = format(number, "f").partition(".")
    kept = digits.rstrip("0")
    text = f"{int(whole):,}" if int(whole) else whole
    return f"{text}.{kept.ljust(2, '0')}" if kept else text


def decimal_text(number: Fraction, digits: int) -> str:
    """Write a number with so many digits after the point."""
    return f"{float(number):,.{digits}f}"


def short_decimal_text(number: Fraction) -> str:
    """Write a number with up to four digits after the point."""
    text = decimal_text(number, 4).rstrip("0").rstrip(".")
    return f"{int(number):,}" if number.denominator == 1 else text


def percent_text(share: Fraction | float | None) -> str:
    """Write a share with a digit after the point; nothing where there is none."""
    return "" if share is None else f"{float(share):.1%}".replace("%", " %")


def short_percent_text(share: float) -> str:
    """Write a share with a digit after the point where that may matter, near none and near all."""
    text = f"{share * 100:.{0 if 0.2 <= share <= 0.99 else 1}f}".removesuffix(".0")
    return f"{text} %"


def money_text(amount: Decimal | None) -> str:
    """Write an amount; nothing where there is none."""
    return "" if amount is None else f"{amount:,f}"
