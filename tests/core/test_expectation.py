"""Expectations: read, refused in one line, and compared exactly with what was found."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from buckets.cli.result_file import junit_of_expectations
from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.events.bad_rows import BadRows
from buckets.history.backtest.report import (
    BacktestReport,
    Figures,
    FraudFigures,
    Known,
    RuleResult,
    check_expectation,
    parse_expectation,
)
from buckets.outputs.comparison import CaughtEvents, Comparison

EVERYTHING = Known(("r", "a < b"), fraud=True, recorded=True, amount=True)
FRAUD = FraudFigures(
    confirmed=8, alerted=9, caught=3, after=1, caught_amount=Decimal("10.50"), after_amount=Decimal("2")
)
FIGURES = Figures(alerts=30, held=4, events=9, keys=5, amount=Decimal("1234.56"), fraud=FRAUD)
OVERLAP = Comparison(
    {name: CaughtEvents(events, None, None, ()) for name, events in (("only_a", 1), ("only_b", 2), ("both", 3))}, {}
)
QUIET = Figures(0, 0, 0, 0, Decimal(0), FraudFigures(0, 0, 0, 0, Decimal(0), Decimal(0)))
REPORT = BacktestReport(
    begin_ms=0,
    end_ms=3 * DAY_MS,
    days=Fraction(3),
    arrivals=100,
    bad=BadRows(),
    measure="amount",
    rules=(
        RuleResult("r", "ACTIVE", "", replace(FIGURES, alerts=7), (), OVERLAP),
        RuleResult("a < b", "ACTIVE", "", QUIET, (), OVERLAP),
    ),
    total=FIGURES,
    days_with_alerts={},
    overlap=OVERLAP,
    gone={},
    sweeps=(),
    variants=(),
    unknown_fraud=0,
    notes=(),
)


@pytest.mark.parametrize(
    ("text", "value", "is_met"),
    [
        ("alerts < 30", 30, False),
        ("alerts <= 30", 30, True),
        ("alerts = 30", 30, True),
        ("alerts != 30", 30, False),
        ("alerts < 10 per day", 10, False),
        ("  alerts   >= 10  a day ", 10, True),
        ("alerts of r < 10", 7, True),
        ("alerts of a < b < 10", 0, True),
        ("events > 8.5", 9, True),
        ("keys = 5", 5, True),
        ("held < 1,000", 4, True),
        ("amount > 411.51 per day", Fraction(123456, 300), True),
        ("precision >= 33.3%", Fraction(1, 3), True),
        ("precision >= 0.3334", Fraction(1, 3), False),
        ("recall > 0.375", Fraction(3, 8), False),
        ("recall >= 37.5%", Fraction(3, 8), True),
        ("caught = 3", 3, True),
        ("saved = 12.5", Fraction(25, 2), True),
        ("only old = 1", 1, True),
        ("only new < 100", 2, True),
        ("both of r >= 1 per day", 1, True),
        ("precision of a < b > 0", None, False),
        ("recall of a < b < 1", None, False),
    ],
)
def test_an_expectation_is_compared_exactly(text, value, is_met):
    outcome = check_expectation(parse_expectation(text, EVERYTHING), REPORT)
    assert (outcome.value, outcome.is_met) == (value, is_met)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("few alerts", EVERYTHING),
        ("alerts 500", EVERYTHING),
        ("alerts < 500 per week", EVERYTHING),
        ("alerts of nobody < 5", EVERYTHING),
        ("alerts < 5%", EVERYTHING),
        ("precision > 0.5 per day", EVERYTHING),
        ("precision > 0.5", replace(EVERYTHING, fraud=False)),
        ("only new < 1", replace(EVERYTHING, recorded=False)),
        ("amount < 1", replace(EVERYTHING, amount=False)),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(text, known, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as refused:
        parse_expectation(text, known)
    assert "\n" not in refused.value.message


def test_junit_has_a_case_for_each_expectation():
    texts = ["alerts < 500 per day", "alerts of a < b > 3"]
    outcomes = [check_expectation(parse_expectation(text, EVERYTHING), REPORT) for text in texts]
    report = junit_of_expectations(outcomes, "rules & more.yaml", 1.5)
    assert 'tests="2" failures="1"' in report
    assert 'name="rules &amp; more.yaml"' in report
    assert '<testcase classname="backtest" name="alerts &lt; 500 per day" />' in report
    assert "expected alerts of a &lt; b &gt; 3; it is 0" in report
