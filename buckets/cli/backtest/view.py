"""The report of a backtest on the terminal."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from buckets.cli.console import Terminal, TextTable
from buckets.cli.rules.compare import samples_table
from buckets.history.backtest.report import TITLES, BacktestReport, CheckedExpectation, Figures
from buckets.moment import day_text, time_text
from buckets.numbers.fixed_point import decimal_text, money_text, percent_text
from buckets.outputs.comparison import PARTS, Comparison
from buckets.printable import key_words

_MOST_BARS = 31
_BAR = 40
_MOST_VARIANTS = 50


def show_report(console: Terminal, report: BacktestReport, outcomes: Sequence[CheckedExpectation]) -> None:
    """Print a report, and what became of expectations."""
    begin, end = time_text(report.begin_ms), time_text(report.end_ms)
    console.print(f"{report.arrivals:,} events arrived from {begin} to {end} UTC ({decimal_text(report.days, 1)} days)")
    console.print(_rules(report))
    if report.total.fraud is not None:
        console.print(_fraud(report))
    if report.days_with_alerts:
        console.print(_days(report))
    if any(rule.keys for rule in report.rules):
        console.print(_keys(report))
    if report.overlap is not None:
        _show_overlap(console, report, report.overlap)
    if report.variants:
        _show_variants(console, report)
    for note in report.notes:
        console.print(f"note: {note}")
    for outcome in outcomes:
        met = ("met", "green") if outcome.is_met else ("not met", "bold red")
        console.print(Text.assemble(met, f": {outcome.expectation.text} (it {outcome.found})"))


def _rules(report: BacktestReport) -> TextTable:
    every = [*(rule.figures for rule in report.rules), report.total]
    held = ("Held",) if any(figures.held for figures in every) else ()
    numbers = ("Alerts", "A day", *held, "Events", "Keys", report.measure or "Amount")
    table = TextTable("What the rules would have raised", ("Rule", *numbers), numbers)

    def cells(figures: Figures) -> Iterator[str]:
        yield f"{figures.alerts:,}"
        yield decimal_text(report.per_day(figures.alerts), 1)
        if held:
            yield f"{figures.held:,}"
        yield f"{figures.events:,}"
        yield f"{figures.keys:,}"
        yield money_text(figures.amount)

    for rule in report.rules:
        name = rule.rule_id if rule.state == "ACTIVE" else f"{rule.rule_id}\non trial"
        table.add_row(name, *cells(rule.figures))
    table.add_section()
    table.add_row("all ACTIVE", *cells(report.total))
    return table


def _fraud(report: BacktestReport) -> TextTable:
    numbers = ("Precision", "Recall", "Caught", "Caught amount", "Saved")
    table = TextTable("Beside confirmed fraud", ("Rule", *numbers), numbers)
    for name, figures in [*((rule.rule_id, rule.figures) for rule in report.rules), ("all ACTIVE", report.total)]:
        fraud = figures.fraud
        assert fraud is not None
        shares = (percent_text(fraud.fraud_of_alerted), percent_text(fraud.caught_of_confirmed))
        amounts = (money_text(fraud.caught_amount), money_text(fraud.saved_amount))
        table.add_row(name, *shares, f"{fraud.caught:,} of {fraud.confirmed:,}", *amounts)
    return table


def _days(report: BacktestReport) -> TextTable:
    """Return alerts over the whole range, quiet days too, as bars of as many days as make at most so many."""
    totals = {day: sum(of_day.values()) for day, of_day in report.days_with_alerts.items()}
    first, last = report.day_range
    width = -(-(last - first + 1) // _MOST_BARS)
    bars: dict[int, int] = dict.fromkeys(range(first, last + 1, width), 0)
    for day, alerts in totals.items():
        bars[first + (day - first) // width * width] += alerts
    most = max(bars.values())
    title = f"Alerts by {'day' if width == 1 else f'{width} days'} (UTC)"
    table = TextTable(title, ("From", "Alerts", ""), ("Alerts",))
    for day, alerts in bars.items():
        table.add_row(day_text(day), f"{alerts:,}", "█" * round(_BAR * alerts / most))
    return table


def _keys(report: BacktestReport) -> TextTable:
    table = TextTable("Keys with most alerts", ("Rule", "Key", "Alerts"), ("Alerts",))
    for rule in report.rules:
        for counted in rule.keys:
            table.add_row(rule.rule_id, key_words(counted.key), f"{counted.alerts:,}")
    return table


def _show_overlap(console: Terminal, report: BacktestReport, overlap: Comparison) -> None:
    table = TextTable("Events beside the recorded alerts", ("Rule", *TITLES.values()), TITLES.values())
    for rule in report.rules:
        if rule.overlap is not None:
            table.add_row(rule.rule_id, *_parts(rule.overlap))
    for rule_id, alerts in report.gone.items():
        table.add_row(f"{rule_id} (not among the rules)", f"{alerts:,}", "0", "0")
    table.add_section()
    table.add_row("all ACTIVE", *_parts(overlap))
    console.print(table)
    samples = samples_table(overlap, TITLES)
    if samples.row_count:
        console.print(samples)


def _parts(overlap: Comparison) -> tuple[str, ...]:
    return tuple(f"{overlap.parts[name].events:,}" for name in PARTS)


def _show_variants(console: Terminal, report: BacktestReport) -> None:
    has_fraud = report.total.fraud is not None
    rest = ("Precision", "Recall", "Saved") if has_fraud else ("Events", report.measure or "Amount")
    swept = dict.fromkeys(sweep.rule_id for sweep in report.sweeps)
    names = tuple(sweep.parameter if len(swept) == 1 else sweep.name for sweep in report.sweeps)
    numbers = (*names[1:], "Alerts", "A day", *rest)
    table = TextTable(f"With other numbers of {' and '.join(swept)}", (*names[:1], *numbers), numbers)
    for variant in report.variants[:_MOST_VARIANTS]:
        figures, fraud = variant.figures, variant.figures.fraud
        cells = [f"{figures.alerts:,}", decimal_text(report.per_day(figures.alerts), 1)]
        if fraud is not None:
            cells += [percent_text(fraud.fraud_of_alerted), percent_text(fraud.caught_of_confirmed)]
            cells.append(money_text(fraud.saved_amount))
        else:
            cells += [f"{figures.events:,}", money_text(figures.amount)]
        table.add_row(*map(Text, variant.values), *cells, style="bold" if variant.is_as_written else "")
    console.print(table)
    more = len(report.variants) - _MOST_VARIANTS
    if more > 0:
        console.print(f"and {more:,} more, which --json and --html show")
    if any(variant.is_as_written for variant in report.variants):
        console.print("In bold: the numbers of the rules as they are written.")
