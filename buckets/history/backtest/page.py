"""The report of a backtest as a page: its charts as points of a drawing, and the rest as the template shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from buckets.history.backtest.expectation import CheckedExpectation
from buckets.history.backtest.figures_text import TITLES, decimal_text, money_text, percent_text
from buckets.history.backtest.report import BacktestReport, VariantResult
from buckets.moment import day_text, time_text
from buckets.outputs.comparison import PARTS, Caught, Comparison
from buckets.pages.axis import Mark, round_values
from buckets.pages.page import render
from buckets.printable import key_words

WIDTH, HEIGHT = 720, 220
"""Of the drawing within the axes, in units of SVG."""
_CLASSES: dict[Caught, str] = {"only_a": "old", "only_b": "new", "both": "both"}


@dataclass(frozen=True)
class Bar:
    """A bar of a chart: its corner, its size, a class for its colour, and what it says."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str


@dataclass(frozen=True)
class Point:
    """A point of a chart, and what it says."""

    x: float
    y: float
    is_as_written: bool
    label: str


@dataclass(frozen=True)
class Line:
    """A series of points: its name, a class for its colour, its points, and how they are joined, if they are."""

    name: str
    kind: str
    points: Sequence[Point]
    path: str


_MOST_MARKS = 7


def backtest_page(report: BacktestReport, outcomes: Sequence[CheckedExpectation], rules: str) -> str:
    """The page."""
    lines = _trade_off(report)
    return render(
        "backtest.html",
        report=report,
        outcomes=outcomes,
        rules=rules,
        begin=time_text(report.begin_ms),
        end=time_text(report.end_ms),
        days=_day_bars(report),
        day_marks=_day_marks(report),
        alert_marks=_alert_marks(report),
        overlaps=_overlaps(report),
        lines=lines,
        rate_marks=_rate_marks(report) if lines else [],
        value_marks=_value_marks(report) if lines else [],
        value_unit=_value_unit(report),
        width=WIDTH,
        height=HEIGHT,
        parts=PARTS,
        titles=TITLES,
        decimal=decimal_text,
        percent=percent_text,
        money=money_text,
        key_words=key_words,
        time_text=time_text,
    )


def _totals(report: BacktestReport) -> dict[int, int]:
    return {day: sum(of_day.values()) for day, of_day in report.days_with_alerts.items()}


def _day_bars(report: BacktestReport) -> list[Bar]:
    """A bar for each day with alerts."""
    totals = _totals(report)
    if not totals:
        return []
    (first, last), most = report.day_range, max(totals.values())
    step = WIDTH / (last - first + 1)
    return [
        Bar(
            x=round((day - first) * step, 2),
            y=round(HEIGHT * (1 - alerts / most), 2),
            width=round(step * 0.85, 2),
            height=round(HEIGHT * alerts / most, 2),
            kind="new",
            label=f"{day_text(day)}: {alerts:,} alerts",
        )
        for day, alerts in totals.items()
    ]


def _day_marks(report: BacktestReport) -> list[Mark]:
    """Return the days that are named below the chart: the first of the range, and as many more as there is room for."""
    first, last = report.day_range
    apart = -(-(last - first + 1) // _MOST_MARKS)
    return [
        Mark(round(WIDTH * (day - first) / (last - first + 1), 2), day_text(day))
        for day in range(first, last + 1, apart)
    ]


def _alert_marks(report: BacktestReport) -> list[Mark]:
    """Return the numbers of alerts that are named beside the chart, each with its height."""
    return _heights(Fraction(max(_totals(report).values(), default=0)), whole=True)


def _heights(most: Fraction, whole: bool = False) -> list[Mark]:
    """Round numbers up to the one that is as high as a chart; none where that is 0."""
    marks = round_values(Fraction(0), most, whole=whole) if most else []
    return [Mark(round(float(HEIGHT * (1 - value / most)), 2), text) for value, text in marks]


@dataclass(frozen=True)
class OverlapRow:
    """The overlap of a rule, or of all, as a bar in three parts."""

    name: str
    bars: Sequence[Bar]


def _overlaps(report: BacktestReport) -> list[OverlapRow]:
    found = [(rule.rule_id, rule.overlap) for rule in report.rules if rule.overlap is not None]
    if report.overlap is not None:
        found.append(("all ACTIVE", report.overlap))
    return [OverlapRow(name, _stacked(overlap)) for name, overlap in found]


def _stacked(overlap: Comparison) -> list[Bar]:
    whole = sum(part.events for part in overlap.parts.values())
    bars, x = [], 0.0
    for name in PARTS:
        events = overlap.parts[name].events
        width = WIDTH * events / whole if whole else 0.0
        bars.append(Bar(round(x, 2), 0, round(width, 2), 18, _CLASSES[name], f"{TITLES[name]}: {events:,}"))
        x += width
    return bars


def _most_per_day(report: BacktestReport) -> Fraction:
    """The most alerts a day of a variant, by which the axis ends; 1 where there is none."""
    return max((report.per_day(each.figures.alerts) for each in report.variants), default=Fraction(0)) or Fraction(1)


def _amount(variant: VariantResult) -> Fraction:
    amount = variant.figures.amount
    return Fraction(variant.figures.events if amount is None else amount)


def _most_amount(report: BacktestReport) -> Fraction:
    """The largest amount of a variant, by which the axis ends; 1 where there is none."""
    return max(map(_amount, report.variants), default=Fraction(0)) or Fraction(1)


def _rate_marks(report: BacktestReport) -> list[Mark]:
    most = _most_per_day(report)
    return [Mark(round(float(WIDTH * each / most), 2), text) for each, text in round_values(Fraction(0), most)]


def _value_marks(report: BacktestReport) -> list[Mark]:
    return _heights(Fraction(100) if report.total.fraud is not None else _most_amount(report))


def _value_unit(report: BacktestReport) -> str:
    return "per cent" if report.total.fraud is not None else report.measure or "events"


def _trade_off(report: BacktestReport) -> list[Line]:
    """What variants find against how many alerts they raise: recall and precision, or amounts."""
    if not report.variants:
        return []
    if report.total.fraud is None:
        most = _most_amount(report)
        return [_line(report, report.measure or "events", "new", [_amount(each) / most for each in report.variants])]
    frauds = [each.figures.fraud for each in report.variants]
    return [
        _line(report, "recall", "new", [None if each is None else each.caught_of_confirmed for each in frauds]),
        _line(report, "precision", "both", [None if each is None else each.fraud_of_alerted for each in frauds]),
    ]


def _line(report: BacktestReport, name: str, kind: str, shares: Sequence[Fraction | None]) -> Line:
    most = _most_per_day(report)
    points = []
    for variant, share in zip(report.variants, shares, strict=True):
        if share is not None:
            per_day = report.per_day(variant.figures.alerts)
            values = ", ".join(
                f"{sweep.name} {value}" for sweep, value in zip(report.sweeps, variant.values, strict=True)
            )
            label = f"{values}: {decimal_text(per_day, 1)} alerts a day, {name} {_value_text(name, share, variant)}"
            x, y = round(float(WIDTH * per_day / most), 2), round(float(HEIGHT * (1 - share)), 2)
            points.append(Point(x, y, variant.is_as_written, label))
    path = " ".join(f"{point.x},{point.y}" for point in points) if len(report.sweeps) == 1 else ""
    return Line(name, kind, points, path)


def _value_text(name: str, share: Fraction, variant: VariantResult) -> str:
    return percent_text(share) if name in ("recall", "precision") else decimal_text(_amount(variant), 2)
