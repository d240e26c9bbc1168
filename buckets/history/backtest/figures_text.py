"""Figures of a backtest as people read them."""

from decimal import Decimal
from fractions import Fraction

from buckets.outputs.comparison import Caught

TITLES: dict[Caught, str] = {"only_a": "only old", "only_b": "only new", "both": "both"}
"""The parts of an overlap: what was recorded is old, what the backtest raised is new."""


def decimal_text(number: Fraction, digits: int) -> str:
    """A number with so many digits after the point."""
    return f"{float(number):,.{digits}f}"


def percent_text(share: Fraction | float | None) -> str:
    """A share; nothing where there is none."""
    return "" if share is None else f"{float(share):.1%}".replace("%", " %")


def money_text(amount: Decimal | None) -> str:
    """An amount; nothing where there is none."""
    return "" if amount is None else f"{amount:,f}"
