"""The report of a backtest as a page: prepares its charts as points of a drawing; the template shows the rest."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from buckets.history.backtest.report import TITLES, BacktestReport, CheckedExpectation
from buckets.moment import day_text, time_text
from buckets.numbers.fixed_point import decimal_text, money_text, percent_text
from buckets.outputs.comparison import Caught, Comparison
from buckets.pages.page import Mark, render, round_values
from buckets.printable import key_words

WIDTH, HEIGHT = 720, 220  # The drawing inside the axes, in SVG units
_CLASSES: dict[Caught, str] = {"only_a": "old", "only_b": "new", "both": "both"}
_MOST_MARKS = 7


def backtest_page(report: BacktestReport, outcomes: Sequence[CheckedExpectation], rules: str) -> str:
    """Return the page."""
    totals = {day: sum(of_day.values()) for day, of_day in report.days_with_alerts.items()}
    overlaps = [*((rule.rule_id, rule.overlap) for rule in report.rules), ("all ACTIVE", report.overlap)]
    return render(
        "backtest.html",
        report=report,
        outcomes=outcomes,
        rules=rules,
        days=_day_bars(report, totals) if totals else [],
        day_marks=_day_marks(report),
        alert_marks=_heights(Fraction(max(totals.values(), default=0)), whole=True),
        overlaps=[{"name": name, "bars": _stacked(part)} for name, part in overlaps if part is not None],
        trade_off=_trade_off(report) if report.variants else None,
        width=WIDTH,
        height=HEIGHT,
        titles=TITLES,
        decimal=decimal_text,
        percent=percent_text,
        money=money_text,
        key_words=key_words,
        time_text=time_text,
    )


def _day_bars(report: BacktestReport, totals: Mapping[int, int]) -> list[dict[str, Any]]:
    (first, last), most = report.day_range, max(totals.values())
    step = WIDTH / (last - first + 1)
    return [
        {
            "x": round((day - first) * step, 2),
            "y": round(HEIGHT * (1 - alerts / most), 2),
            "width": round(step * 0.85, 2),
            "height": round(HEIGHT * alerts / most, 2),
            "kind": "new",
            "label": f"{day_text(day)}: {alerts:,} alerts",
        }
        for day, alerts in totals.items()
    ]


def _day_marks(report: BacktestReport) -> list[Mark]:
    """Return the days to label below the chart: the first of the range, and as many more as fit."""
    first, last = report.day_range
    days = last - first + 1
    named = range(first, last + 1, -(-days // _MOST_MARKS))
    return [Mark(round(WIDTH * (day - first) / days, 2), day_text(day)) for day in named]


def _heights(most: Fraction, whole: bool = False) -> list[Mark]:
    """Return round numbers up to the top of a chart; empty if that is 0."""
    marks = round_values(Fraction(0), most, whole=whole) if most else []
    return [Mark(round(float(HEIGHT * (1 - value / most)), 2), text) for value, text in marks]


def _stacked(overlap: Comparison) -> list[dict[str, Any]]:
    whole = sum(part.events for part in overlap.parts.values())
    bars: list[dict[str, Any]] = []
    x = 0.0
    for name, title in TITLES.items():
        events = overlap.parts[name].events
        width = WIDTH * events / whole if whole else 0.0
        label = f"{title}: {events:,}"
        bars.append({"x": round(x, 2), "width": round(width, 2), "kind": _CLASSES[name], "label": label})
        x += width
    return bars


def _trade_off(report: BacktestReport) -> dict[str, Any]:
    """Plot recall and precision of variants against alerts a day, or amounts if no fraud is known."""
    figures = [variant.figures for variant in report.variants]
    rates = [report.per_day(found.alerts) for found in figures]
    most_rate, unit, most = max(rates) or Fraction(1), "per cent", Fraction(100)
    series: list[tuple[str, str, list[tuple[Fraction | None, str]]]]
    if report.total.fraud is None:
        amounts = [Fraction(found.events if found.amount is None else found.amount) for found in figures]
        unit, most = report.measure or "events", max(amounts) or Fraction(1)
        series = [(unit, "new", [(amount / most, decimal_text(amount, 2)) for amount in amounts])]
    else:
        frauds = [found.fraud for found in figures if found.fraud is not None]
        recalls = [fraud.caught_of_confirmed for fraud in frauds]
        precisions = [fraud.fraud_of_alerted for fraud in frauds]
        series = [
            ("recall", "new", [(share, percent_text(share)) for share in recalls]),
            ("precision", "both", [(share, percent_text(share)) for share in precisions]),
        ]
    curves = []
    for name, kind, shares in series:
        points = []
        for variant, rate, (share, value) in zip(report.variants, rates, shares, strict=True):
            if share is not None:
                swept = zip(report.sweeps, variant.values, strict=True)
                values = ", ".join(f"{sweep.name} {number}" for sweep, number in swept)
                label = f"{values}: {decimal_text(rate, 1)} alerts a day, {name} {value}"
                x, y = round(float(WIDTH * rate / most_rate), 2), round(float(HEIGHT * (1 - share)), 2)
                points.append({"x": x, "y": y, "is_as_written": variant.is_as_written, "label": label})
        # With a single sweep the points are joined.
        path = " ".join(f"{point['x']},{point['y']}" for point in points) if len(report.sweeps) == 1 else ""
        curves.append({"name": name, "kind": kind, "points": points, "path": path})
    round_rates = round_values(Fraction(0), most_rate)
    rate_marks = [Mark(round(float(WIDTH * rate / most_rate), 2), text) for rate, text in round_rates]
    return {"curves": curves, "rate_marks": rate_marks, "value_marks": _heights(most), "unit": unit}
