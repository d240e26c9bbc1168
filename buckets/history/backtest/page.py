"""The report of a backtest as a page: its charts as points of a drawing, and the rest as the template shows it.

How many days figures per day are divided by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from buckets.duration import DAY_MS
from buckets.history.backtest.report import TITLES, BacktestReport, CheckedExpectation, VariantResult
from buckets.moment import day_text, time_text
from buckets.numbers.fixed_point import decimal_text, money_text, percent_text
from buckets.outputs.comparison import PARTS, Caught, Comparison
from buckets.pages.page import Mark, render, round_values
from buckets.printable import key_words

WIDTH, HEIGHT = 720, 220  # Of the drawing within the axes, in units of SVG
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
class Curve:
    """A series of points: its name, a class for its colour, its points, and how they are joined, if they are."""

    name: str
    kind: str
    points: Sequence[Point]
    path: str


@dataclass(frozen=True)
class TradeOff:
    """What variants find against how many alerts they raise, as a chart: its curves, and what stands at its axes."""

    curves: Sequence[Curve]
    rate_marks: Sequence[Mark]
    value_marks: Sequence[Mark]
    unit: str


@dataclass(frozen=True)
class OverlapRow:
    """The overlap of a rule, or of all, as a bar in three parts."""

    name: str
    bars: Sequence[Bar]


_MOST_MARKS = 7


def backtest_page(report: BacktestReport, outcomes: Sequence[CheckedExpectation], rules: str) -> str:
    """Return the page."""
    totals = {day: sum(of_day.values()) for day, of_day in report.days_with_alerts.items()}
    return render(
        "backtest.html",
        report=report,
        outcomes=outcomes,
        rules=rules,
        begin=time_text(report.begin_ms),
        end=time_text(report.end_ms),
        days=_day_bars(report, totals) if totals else [],
        day_marks=_day_marks(report),
        alert_marks=_heights(Fraction(max(totals.values(), default=0)), whole=True),
        overlaps=_overlaps(report),
        trade_off=_trade_off(report) if report.variants else None,
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


def _day_bars(report: BacktestReport, totals: Mapping[int, int]) -> list[Bar]:
    """Return a bar for each day with alerts."""
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
    days = last - first + 1
    named = range(first, last + 1, -(-days // _MOST_MARKS))
    return [Mark(round(WIDTH * (day - first) / days, 2), day_text(day)) for day in named]


def _heights(most: Fraction, whole: bool = False) -> list[Mark]:
    """Return round numbers up to the one that is as high as a chart; none where that is 0."""
    marks = round_values(Fraction(0), most, whole=whole) if most else []
    return [Mark(round(float(HEIGHT * (1 - value / most)), 2), text) for value, text in marks]


def _overlaps(report: BacktestReport) -> list[OverlapRow]:
    overlaps = [*((rule.rule_id, rule.overlap) for rule in report.rules), ("all ACTIVE", report.overlap)]
    return [OverlapRow(name, _stacked(overlap)) for name, overlap in overlaps if overlap is not None]


def _stacked(overlap: Comparison) -> list[Bar]:
    whole = sum(part.events for part in overlap.parts.values())
    bars, x = [], 0.0
    for name in PARTS:
        events = overlap.parts[name].events
        width = WIDTH * events / whole if whole else 0.0
        bars.append(Bar(round(x, 2), 0, round(width, 2), 18, _CLASSES[name], f"{TITLES[name]}: {events:,}"))
        x += width
    return bars


def _trade_off(report: BacktestReport) -> TradeOff:
    """Show recall and precision of variants, or amounts where no fraud is known."""
    rates = [report.per_day(variant.figures.alerts) for variant in report.variants]
    most_rate = max(rates) or Fraction(1)
    rate_marks = [
        Mark(round(float(WIDTH * rate / most_rate), 2), text) for rate, text in round_values(Fraction(0), most_rate)
    ]
    if report.total.fraud is None:
        amounts, name = list(map(_amount, report.variants)), report.measure or "events"
        most = max(amounts) or Fraction(1)
        curve = _curve(report, most_rate, name, "new", [amount / most for amount in amounts])
        return TradeOff([curve], rate_marks, _heights(most), name)
    frauds = [variant.figures.fraud for variant in report.variants]
    recalls = [None if fraud is None else fraud.caught_of_confirmed for fraud in frauds]
    precisions = [None if fraud is None else fraud.fraud_of_alerted for fraud in frauds]
    curves = [
        _curve(report, most_rate, "recall", "new", recalls),
        _curve(report, most_rate, "precision", "both", precisions),
    ]
    return TradeOff(curves, rate_marks, _heights(Fraction(100)), "per cent")


def _amount(variant: VariantResult) -> Fraction:
    amount = variant.figures.amount
    return Fraction(variant.figures.events if amount is None else amount)


def _curve(
    report: BacktestReport, most_rate: Fraction, name: str, kind: str, shares: Sequence[Fraction | None]
) -> Curve:
    points = []
    for variant, share in zip(report.variants, shares, strict=True):
        if share is not None:
            rate = report.per_day(variant.figures.alerts)
            swept = zip(report.sweeps, variant.values, strict=True)
            values = ", ".join(f"{sweep.name} {value}" for sweep, value in swept)
            value = percent_text(share) if name in ("recall", "precision") else decimal_text(_amount(variant), 2)
            label = f"{values}: {decimal_text(rate, 1)} alerts a day, {name} {value}"
            x, y = round(float(WIDTH * rate / most_rate), 2), round(float(HEIGHT * (1 - share)), 2)
            points.append(Point(x, y, variant.is_as_written, label))
    path = " ".join(f"{point.x},{point.y}" for point in points) if len(report.sweeps) == 1 else ""
    return Curve(name, kind, points, path)


_LEAST_SHARE = 20  # A day counts with one event of so many of a usual day


class CountedDays:
    """Counts the events of each day."""

    def __init__(self) -> None:
        """Begin without events."""
        self._days: dict[int, tuple[int, int, int]] = {}

    def take(self, times_ms: npt.NDArray[np.int64]) -> None:
        """Take the times of events into account, in ms since the epoch."""
        ordered = np.sort(times_ms)
        days, first = np.unique(ordered // DAY_MS, return_index=True)
        ends = np.append(first, len(ordered))[1:]
        for day, begin, end in zip(days.tolist(), first.tolist(), ends.tolist(), strict=True):
            first_ms, last_ms = int(ordered[begin]), int(ordered[end - 1])
            count, least_ms, most_ms = self._days.get(day, (0, first_ms, last_ms))
            self._days[day] = (count + end - begin, min(least_ms, first_ms), max(most_ms, last_ms))

    def length(self, begin_ms: int | None, end_ms: int | None) -> Fraction:
        """Return how many days count, once all events of the range have been taken; there is at least one event.

        Args:
            begin_ms: where the range begins; None for the first event of a day that counts.
            end_ms: where it ends; None for just after the last one.
        """
        counts = np.sort(np.array([count for count, _, _ in self._days.values()], np.int64))
        middle = np.searchsorted(np.cumsum(counts), counts.sum() / 2)
        least = int(counts[middle]) / _LEAST_SHARE
        counted = {day: taken for day, taken in self._days.items() if taken[0] >= least}
        begin_ms = min(taken[1] for taken in counted.values()) if begin_ms is None else begin_ms
        end_ms = max(taken[2] for taken in counted.values()) + 1 if end_ms is None else end_ms
        spans = ((max(begin_ms, day * DAY_MS), min(end_ms, (day + 1) * DAY_MS)) for day in counted)
        return Fraction(sum(end - begin for begin, end in spans), DAY_MS)
