"""Expectations: what is asked of the figures of a backtest, as in `alerts < 500 per day`."""

import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from buckets.errors import BucketsError
from buckets.history.backtest.report import TITLES, BacktestReport
from buckets.numbers.figures import short_decimal_text
from buckets.outputs.comparison import Caught
from buckets.printable import in_quotes
from buckets.rules.revision import names

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_OVERLAP: dict[str, Caught] = {title: part for part, title in TITLES.items()}
_OF_FRAUD = ("precision", "recall", "caught", "saved")
_SHARES = ("precision", "recall")
FIGURES = ("alerts", "events", "keys", "held", "amount", *_OF_FRAUD, *_OVERLAP)
"""What can be asked for."""
_FORM = re.compile(
    rf"({'|'.join(FIGURES)})(?: of (.+?))?\s*(<=|>=|!=|<|>|=)\s*(-?\d[\d,]*(?:\.\d+)?)(%?)( (?:per|a) day)?", re.ASCII
)
_LIKE = "write it as in `alerts < 500 per day`, `precision >= 0.2`, `alerts of RULE < 10` or `only new < 100`"


@dataclass(frozen=True)
class Expectation:
    """A comparison that is to hold.

    Attributes:
        text: as it was written.
        figure: one of `FIGURES`.
        rule_id: of which rule; None for all ACTIVE rules together.
        operator: how it is compared.
        number: with what.
        is_per_day: whether the figure is divided by the days that count, see `CountedDays`.
    """

    text: str
    figure: str
    rule_id: str | None
    operator: str
    number: Fraction
    is_per_day: bool


@dataclass(frozen=True)
class CheckedExpectation:
    """What became of an expectation, with the value that was found; None is not known, and meets none."""

    expectation: Expectation
    value: Fraction | None
    is_met: bool

    @property
    def found(self) -> str:
        """What was found, in words."""
        if self.value is None:
            return "is not known: there is nothing to divide by"
        return f"is {short_decimal_text(self.value)}"


@dataclass(frozen=True)
class Known:
    """What a backtest can tell: of which rules, and whether fraud, recorded alerts and amounts of events are known."""

    rules: Collection[str]
    fraud: bool
    recorded: bool
    amount: bool


def parse_expectation(text: str, known: Known) -> Expectation:
    """Read an expectation, as at the top of this module, of what is known.

    Raises:
        BucketsError: it cannot be read, names no rule, or asks for what is not known.
    """
    written = _FORM.fullmatch(" ".join(text.split()))
    if written is None:
        message = f"expect {in_quotes(text)}: cannot be read; {_LIKE}; figures: {', '.join(FIGURES)}"
        raise BucketsError(message)
    figure, rule_id, sign, number, percent, per_day = written.groups()
    fault = None
    if rule_id is not None and rule_id not in known.rules:
        fault = f"there is no rule {in_quotes(rule_id)}; rules: {names(known.rules)}"
    elif figure in _OF_FRAUD and not known.fraud:
        fault = f"{figure} needs confirmed fraud; give --fraud"
    elif figure in _OVERLAP and not known.recorded:
        fault = f"{figure} needs recorded alerts; give --conf of a job that has run, or --recorded"
    elif figure in ("amount", "saved") and not known.amount:
        fault = f"{figure} needs a measure; give --amount"
    elif percent and figure not in _SHARES:
        fault = f"{figure} is no share; leave out the %"
    elif per_day and figure in (*_SHARES, "keys"):
        fault = f"{figure} is not counted by day; leave out `per day`"
    if fault is not None:
        message = f"expect {in_quotes(text)}: {fault}"
        raise BucketsError(message)
    value = Fraction(Decimal(number.replace(",", ""))) / (100 if percent else 1)
    return Expectation(text, figure, rule_id, sign, value, bool(per_day))


def check_expectation(expectation: Expectation, report: BacktestReport) -> CheckedExpectation:
    """See whether an expectation holds."""
    value = _value(expectation, report)
    if value is not None and expectation.is_per_day:
        value /= report.days
    is_met = value is not None and _OPERATORS[expectation.operator](value, expectation.number)
    return CheckedExpectation(expectation, value, is_met)


def _value(expectation: Expectation, report: BacktestReport) -> Fraction | None:
    of_rule = next((rule for rule in report.rules if rule.rule_id == expectation.rule_id), None)
    overlap, figures = (report.overlap, report.total) if of_rule is None else (of_rule.overlap, of_rule.figures)
    name, fraud = expectation.figure, figures.fraud
    if name in _OVERLAP:
        assert overlap is not None
        return Fraction(overlap.parts[_OVERLAP[name]].events)
    if name in _OF_FRAUD:
        assert fraud is not None
        if name in _SHARES:
            return fraud.fraud_of_alerted if name == "precision" else fraud.caught_of_confirmed
        return Fraction(fraud.caught if name == "caught" else fraud.saved_amount)
    value = getattr(figures, name)
    return None if value is None else Fraction(value)
