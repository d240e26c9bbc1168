"""The results of a backtest, as plain values and as JSON, and expectations about them."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.events.bad_rows import BadRows
from buckets.expressions.expression import COMPARISONS
from buckets.history.backtest.sweep import Sweep
from buckets.moment import day_text, iso_text
from buckets.numbers.fixed_point import short_decimal_text
from buckets.outputs.comparison import Caught, Comparison
from buckets.printable import in_quotes
from buckets.rules.revision import names
from buckets.rules.rule import State

TITLES: dict[Caught, str] = {"only_a": "only old", "only_b": "only new", "both": "both"}
"""The parts of an overlap: recorded alerts are old, those of the backtest are new."""


@dataclass(frozen=True)
class FraudFigures:
    """Alerts compared with the confirmed fraud of the range.

    Money counts as *saved* if a fraudulent payment alerted itself, or arrived after an alert of the range for the same
    values of the alerting rule's `group_by`; a rule without `group_by` saves only payments that alert themselves.
    """

    confirmed: int  # how many events of the range are confirmed fraud
    alerted: int  # how many different events alerted
    caught: int  # how many of these are confirmed fraud
    after: int  # how many others of the confirmed ones arrived after an alert of their key
    caught_amount: Decimal  # what was caught
    after_amount: Decimal  # what arrived after an alert

    @property
    def fraud_of_alerted(self) -> Fraction | None:
        """Return the share of alerted events that are confirmed fraud; None if none alerted."""
        return Fraction(self.caught, self.alerted) if self.alerted else None

    @property
    def caught_of_confirmed(self) -> Fraction | None:
        """Return the share of the confirmed fraud that alerted; None without any."""
        return Fraction(self.caught, self.confirmed) if self.confirmed else None

    @property
    def saved_amount(self) -> Decimal:
        """The amount that was caught, or that arrived after an alert."""
        return self.caught_amount + self.after_amount


@dataclass(frozen=True)
class Figures:
    """The joint results of some rules."""

    alerts: int  # how many alerts
    held: int  # how many alerts policies have held back
    events: int  # how many different events alerted
    keys: int  # how many different keys
    amount: Decimal | None  # the sum of the amounts of these events; None where events have no amount
    fraud: FraudFigures | None  # alerts beside confirmed fraud; None where that is not known


@dataclass(frozen=True)
class KeyCount:
    """A key with many alerts: the key as JSON, and how many."""

    key: str
    alerts: int


@dataclass(frozen=True)
class RuleResult:
    """The results of a rule."""

    rule_id: str  # the rule
    state: State  # ACTIVE, or SHADOW of one on trial
    sentence: str  # the rule in English
    figures: Figures  # what it raised; of a rule on trial its shadow alerts
    keys: tuple[KeyCount, ...]  # those with most alerts
    overlap: Comparison | None  # with its recorded alerts; None where none are known


@dataclass(frozen=True)
class VariantResult:
    """The joint results of the swept rules with one value of each sweep, in the order of the sweeps."""

    values: tuple[str, ...]
    is_as_written: bool
    figures: Figures


@dataclass(frozen=True)
class BacktestReport:
    """The results of a set of rules."""

    begin_ms: int  # the first event time that counts
    end_ms: int  # the first one after them
    days: Fraction  # by how many days figures per day are divided; see `counted_days`
    arrivals: int  # how many events of this range have arrived
    bad: BadRows  # the rows of all that was read that are not events, or could not be evaluated by some rule
    measure: str | None  # the field that is the amount of an event; None for none
    rules: tuple[RuleResult, ...]  # each rule that is evaluated, in the order in which they are written
    total: Figures  # the ACTIVE rules together
    days_with_alerts: Mapping[int, Mapping[str, int]]  # by day (UTC, days since 1970) the alerts of each ACTIVE rule
    overlap: Comparison | None  # the ACTIVE rules with the alerts that were recorded; None where none are known
    gone: Mapping[str, int]  # rules with recorded alerts in the range that are not among the rules, and how many
    sweeps: tuple[Sweep, ...]  # what was swept
    variants: tuple[VariantResult, ...]  # of each combination of values what came out
    unknown_fraud: int  # how many events of confirmed fraud are not in what was read
    notes: tuple[str, ...]  # what a reader should know

    @property
    def day_range(self) -> tuple[int, int]:
        """The first and the last day to show, in days since 1970 in UTC: those of the range, including quiet days.

        If a wild date makes the range twice as long as the days that count, those with alerts instead.
        """
        first, last = self.begin_ms // DAY_MS, (self.end_ms - 1) // DAY_MS
        ends = [] if last - first > 2 * self.days + 2 else [first, last]
        return min([*ends, *self.days_with_alerts]), max([*ends, *self.days_with_alerts])

    def per_day(self, number: int) -> Fraction:
        """Return a number divided by the days that count."""
        return number / self.days


_OVERLAP: dict[str, Caught] = {title: part for part, title in TITLES.items()}
_OF_FRAUD = ("precision", "recall", "caught", "saved")
_SHARES = ("precision", "recall")
FIGURES = ("alerts", "events", "keys", "held", "amount", *_OF_FRAUD, *_OVERLAP)  # What can be asked for
_FORM = re.compile(
    rf"({'|'.join(FIGURES)})(?: of (.+?))?\s*(<=|>=|!=|<|>|=)\s*(-?\d[\d,]*(?:\.\d+)?)(%?)( (?:per|a) day)?", re.ASCII
)
_LIKE = "write it as in `alerts < 500 per day`, `precision >= 0.2`, `alerts of RULE < 10` or `only new < 100`"


@dataclass(frozen=True)
class Expectation:
    """A comparison that should hold."""

    text: str  # as it was written
    figure: str  # one of `FIGURES`
    rule_id: str | None  # of which rule; None for all ACTIVE rules together
    operator: str  # how it is compared
    number: Fraction  # with what
    is_per_day: bool  # whether the figure is divided by the days that count, see `counted_days`


@dataclass(frozen=True)
class CheckedExpectation:
    """The result of an expectation, with the value found; None (unknown) never meets it."""

    expectation: Expectation
    value: Fraction | None
    is_met: bool

    @property
    def found(self) -> str:
        """The value found, in words."""
        if self.value is None:
            return "is not known: there is nothing to divide by"
        return f"is {short_decimal_text(self.value)}"


@dataclass(frozen=True)
class Known:
    """The figures available to expectations: rules, and whether fraud, recorded alerts and amounts are known."""

    rules: Collection[str]
    fraud: bool
    recorded: bool
    amount: bool


def parse_expectation(text: str, known: Known) -> Expectation:
    """Parse an expectation about known figures, such as `alerts < 500 per day`."""
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
        fault = f"{figure} is not a share; leave out the %"
    elif per_day and figure in (*_SHARES, "keys"):
        fault = f"{figure} is not counted by day; leave out `per day`"
    if fault is not None:
        message = f"expect {in_quotes(text)}: {fault}"
        raise BucketsError(message)
    value = Fraction(Decimal(number.replace(",", ""))) / (100 if percent else 1)
    return Expectation(text, figure, rule_id, sign, value, bool(per_day))


def check_expectation(expectation: Expectation, report: BacktestReport) -> CheckedExpectation:
    """Check whether an expectation holds."""
    value = _value(expectation, report)
    if value is not None and expectation.is_per_day:
        value /= report.days
    is_met = value is not None and COMPARISONS[expectation.operator](value, expectation.number)
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
        shares = {"precision": fraud.fraud_of_alerted, "recall": fraud.caught_of_confirmed}
        value = {**shares, "caught": fraud.caught, "saved": fraud.saved_amount}[name]
    else:
        value = getattr(figures, name)
    return None if value is None else Fraction(value)


def report_json(report: BacktestReport, outcomes: Iterable[CheckedExpectation] = ()) -> dict[str, Any]:
    """Return a report as values for JSON."""
    return {
        "from": iso_text(report.begin_ms),
        "to": iso_text(report.end_ms),
        "days": float(report.days),
        "arrivals": report.arrivals,
        "dead_letters": report.bad.bad,
        "bad_rows": report.bad.as_json(),
        "rounded": dict(report.bad.rounded),
        "measure": report.measure,
        "total": _figures(report, report.total),
        "rules": [
            {
                "rule_id": rule.rule_id,
                "state": rule.state,
                "rule": rule.sentence,
                **_figures(report, rule.figures),
                "top_keys": [{"key": json.loads(top.key), "alerts": top.alerts} for top in rule.keys],
                "overlap": _overlap(rule.overlap),
            }
            for rule in report.rules
        ],
        "by_day": [
            {"day": day_text(day), "alerts": sum(of_day.values()), "rules": dict(of_day)}
            for day, of_day in report.days_with_alerts.items()
        ],
        "overlap": _overlap(report.overlap),
        "rules_gone": dict(report.gone),
        "sweeps": [asdict(sweep) for sweep in report.sweeps],
        "variants": [
            {
                "values": dict(zip((sweep.name for sweep in report.sweeps), variant.values, strict=True)),
                "as_written": variant.is_as_written,
                **_figures(report, variant.figures),
            }
            for variant in report.variants
        ],
        "unknown_fraud": report.unknown_fraud,
        "expectations": [
            {"expect": outcome.expectation.text, "value": _number(outcome.value), "met": outcome.is_met}
            for outcome in outcomes
        ],
        "notes": list(report.notes),
    }


def _figures(report: BacktestReport, figures: Figures) -> dict[str, Any]:
    values: dict[str, Any] = {
        "alerts": figures.alerts,
        "alerts_per_day": float(report.per_day(figures.alerts)),
        "held": figures.held,
        "events": figures.events,
        "keys": figures.keys,
        "amount": None if figures.amount is None else format(figures.amount, "f"),
    }
    fraud = figures.fraud
    if fraud is not None:
        values |= {
            "confirmed_fraud": fraud.confirmed,
            "caught": fraud.caught,
            "precision": _number(fraud.fraud_of_alerted),
            "recall": _number(fraud.caught_of_confirmed),
            "after_an_alert": fraud.after,
            "caught_amount": format(fraud.caught_amount, "f"),
            "after_an_alert_amount": format(fraud.after_amount, "f"),
            "saved_amount": format(fraud.saved_amount, "f"),
        }
    return values


def _overlap(overlap: Comparison | None) -> dict[str, Any] | None:
    if overlap is None:
        return None
    return {title.replace(" ", "_"): overlap.parts[name].to_json() for name, title in TITLES.items()}


def _number(value: Fraction | None) -> float | int | None:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)
