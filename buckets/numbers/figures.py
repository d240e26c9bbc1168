"""Numbers as people read them: values, shares, amounts."""

from decimal import Decimal
from fractions import Fraction


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
