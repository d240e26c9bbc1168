"""The report of a backtest on the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from buckets.cli.console import Terminal
from buckets.history.backtest_report import BacktestReport, Figures
from buckets.history.expectation import Outcome
from buckets.history.figures_text import TITLES, decimal_text, money_text, percent_text
from buckets.moment import day_text, time_text
from buckets.outputs.comparison import PARTS, Comparison
from buckets.printable import key_words

_MOST_BARS = 31
_BAR = 40
_MOST_VARIANTS = 50


def show_report(console: Terminal, report: BacktestReport, outcomes: Sequence[Outcome]) -> None:
    """Print a report, and what became of expectations."""
    begin, end = time_text(report.begin_ms), time_text(report.end_ms)
    console.print(
        f"{report.arrivals:,} events arrived from {begin} to {end} UTC ({decimal_text(report.days, 1)} days)",
        highlight=False,
    )
    console.print(_rules(report))
    if report.total.fraud is not None:
        console.print(_fraud(report))
    if report.days_with_alerts:
        console.print(_days(report))
    keys = _keys(report)
    if keys.row_count:
        console.print(keys)
    if report.overlap is not None:
        _show_overlap(console, report, report.overlap)
    if report.variants:
        _show_variants(console, report)
    for note in report.notes:
        console.print(f"note: {note}")
    show_outcomes(console, outcomes)


def show_outcomes(console: Terminal, outcomes: Sequence[Outcome]) -> None:
    """Print what became of expectations, a line each."""
    for each in outcomes:
        said = ("met", "green") if each.is_met else ("not met", "bold red")
        console.print(Text.assemble(said, f": {each.expectation.text} (it {each.found})"))


def _rules(report: BacktestReport) -> Table:
    amount = "Amount" if report.measure is None else report.measure
    table = _table("What the rules would have raised", ("Rule", "Alerts", "A day", "Held", "Events", "Keys", amount))
    for rule in report.rules:
        name = rule.rule_id if rule.state == "ACTIVE" else f"{rule.rule_id} (on trial)"
        table.add_row(name, *_counts(report, rule.figures))
    table.add_section()
    table.add_row("all ACTIVE", *_counts(report, report.total))
    return table


def _counts(report: BacktestReport, figures: Figures) -> tuple[str, ...]:
    per_day = decimal_text(report.per_day(figures.alerts), 1)
    numbers = (figures.held, figures.events, figures.keys)
    return f"{figures.alerts:,}", per_day, *(f"{number:,}" for number in numbers), money_text(figures.amount)


def _fraud(report: BacktestReport) -> Table:
    names = ("Rule", "Precision", "Recall", "Caught", "Caught amount", "Saved")
    table = _table("Beside confirmed fraud", names)
    for name, figures in [*((rule.rule_id, rule.figures) for rule in report.rules), ("all ACTIVE", report.total)]:
        fraud = figures.fraud
        assert fraud is not None
        table.add_row(
            name,
            percent_text(fraud.precision),
            percent_text(fraud.recall),
            f"{fraud.caught:,} of {fraud.confirmed:,}",
            money_text(fraud.caught_amount),
            money_text(fraud.saved_amount),
        )
    return table


def _days(report: BacktestReport) -> Table:
    """Return alerts over the whole range, quiet days too, as bars of as many days as make at most so many."""
    totals = {day: sum(of_day.values()) for day, of_day in report.days_with_alerts.items()}
    first, last = report.day_range
    width = -(-(last - first + 1) // _MOST_BARS)
    bars: dict[int, int] = dict.fromkeys(range(first, last + 1, width), 0)
    for day, alerts in totals.items():
        bars[first + (day - first) // width * width] += alerts
    most = max(bars.values())
    table = _table(f"Alerts by {'day' if width == 1 else f'{width} days'} (UTC)", ("From", "Alerts"))
    table.add_column("", justify="left")
    for day, alerts in bars.items():
        table.add_row(day_text(day), f"{alerts:,}", "█" * round(_BAR * alerts / most))
    return table


def _keys(report: BacktestReport) -> Table:
    table = _table("Keys with most alerts", ("Rule", "Key", "Alerts"))
    for rule in report.rules:
        for each in rule.keys:
            table.add_row(rule.rule_id, key_words(each.key), f"{each.alerts:,}")
    return table


def _show_overlap(console: Terminal, report: BacktestReport, overlap: Comparison) -> None:
    table = _table("Events beside the recorded alerts", ("Rule", *TITLES.values()))
    for rule in report.rules:
        if rule.overlap is not None:
            table.add_row(rule.rule_id, *_parts(rule.overlap))
    for rule_id, alerts in report.gone.items():
        table.add_row(f"{rule_id} (not among the rules)", f"{alerts:,}", "0", "0")
    table.add_section()
    table.add_row("all ACTIVE", *_parts(overlap))
    console.print(table)
    shown = _table("The latest of each", ("By", "Time (UTC)", "Event", "Key"))
    for name in PARTS:
        for each in overlap.parts[name].samples:
            key = key_words(each.key)
            shown.add_row(TITLES[name], time_text(each.event_time_ms), each.event_id, key)
    if shown.row_count:
        console.print(shown)


def _parts(overlap: Comparison) -> tuple[str, ...]:
    return tuple(f"{overlap.parts[name].events:,}" for name in PARTS)


def _show_variants(console: Terminal, report: BacktestReport) -> None:
    has_fraud = report.total.fraud is not None
    rest = ("Precision", "Recall", "Saved") if has_fraud else ("Events", report.measure or "Amount")
    swept = dict.fromkeys(sweep.rule_id for sweep in report.sweeps)
    names = tuple(sweep.parameter if len(swept) == 1 else sweep.name for sweep in report.sweeps)
    table = _table(f"With other numbers of {' and '.join(swept)}", (*names, "Alerts", "A day", *rest))
    for each in report.variants[:_MOST_VARIANTS]:
        figures, fraud = each.figures, each.figures.fraud
        columns = [f"{figures.alerts:,}", decimal_text(report.per_day(figures.alerts), 1)]
        if fraud is not None:
            columns += [percent_text(fraud.precision), percent_text(fraud.recall), money_text(fraud.saved_amount)]
        else:
            columns += [f"{figures.events:,}", money_text(figures.amount)]
        style = "bold" if each.is_as_written else ""
        table.add_row(*map(Text, each.values), *columns, style=style)
    console.print(table)
    more = len(report.variants) - _MOST_VARIANTS
    if more > 0:
        console.print(f"and {more:,} more, which --json and --html show")
    if any(each.is_as_written for each in report.variants):
        console.print("In bold: the numbers of the rules as they are written.")


def _table(title: str, columns: Sequence[str]) -> Table:
    """A table whose first column, and those of texts, stand left."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        is_text = not index or name in ("Key", "Event", "Time (UTC)")
        table.add_column(name, overflow="fold", justify="left" if is_text else "right")
    return table
