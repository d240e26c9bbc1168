"""The command `buckets backtest`, and its report on the terminal."""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from buckets.archive.delta_source import open_events
from buckets.archive.history import History
from buckets.cli.console import Terminal, TextTable, echo_report, report_text
from buckets.cli.options import (
    From,
    HistoryMaster,
    SchemaOption,
    To,
    event_schema,
    given_lists,
    given_rules,
    list_files,
    range_ms,
    read_option,
    scoring_of,
)
from buckets.cli.result_file import check_result_files, job_inputs, junit_of_expectations, write_result
from buckets.cli.rules.compare import samples_table
from buckets.config.job import kept_results, load_job
from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.history.backtest.backtest import Backtest, archive_pieces, check_needed_lists, event_pieces
from buckets.history.backtest.page import backtest_page
from buckets.history.backtest.report import (
    TITLES,
    BacktestReport,
    CheckedExpectation,
    Figures,
    check_expectation,
    parse_expectation,
    report_json,
)
from buckets.history.backtest.sweep import parse_sweeps, swept_rules
from buckets.moment import day_text, time_text
from buckets.numbers.fixed_point import decimal_text, money_text, percent_text
from buckets.outputs.comparison import PARTS, Comparison
from buckets.outputs.recorded_outputs import has_alerts, with_alerts
from buckets.printable import key_words
from buckets.rule_files.yaml_rules import rule_files
from buckets.rules.rule import WHOLE_SHARE
from buckets.stores.location import location
from buckets.verdicts.confirmed import read_confirmed_fraud

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
    keys = [(rule.rule_id, key_words(top.key), f"{top.alerts:,}") for rule in report.rules for top in rule.keys]
    if keys:
        console.print(TextTable("Keys with most alerts", ("Rule", "Key", ">Alerts"), keys))
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
    held = (">Held",) if any(figures.held for figures in every) else ()
    numbers = (">Alerts", ">A day", *held, ">Events", ">Keys", f">{report.measure or 'Amount'}")
    table = TextTable("What the rules would have raised", ("Rule", *numbers))

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
    columns = ("Rule", ">Precision", ">Recall", ">Caught", ">Caught amount", ">Saved")
    table = TextTable("Beside confirmed fraud", columns)
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
    rows = ((day_text(day), f"{alerts:,}", "█" * round(_BAR * alerts / most)) for day, alerts in bars.items())
    return TextTable(title, ("From", ">Alerts", ""), rows)


def _show_overlap(console: Terminal, report: BacktestReport, overlap: Comparison) -> None:
    columns = ("Rule", *(f">{title}" for title in TITLES.values()))
    table = TextTable("Events beside the recorded alerts", columns)
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
    columns = (*names[:1], *(f">{name}" for name in (*names[1:], "Alerts", "A day", *rest)))
    table = TextTable(f"With other values of {' and '.join(swept)}", columns)
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


_ON_TRIAL = ("DRAFT", "SHADOW", "ACTIVE")
_STANDARD_OUTPUT = "-"


def backtest(
    rules: Annotated[Path, typer.Argument(help="A rule file, or a folder of them.")],
    conf: Annotated[
        Path | None, typer.Option(help="A job's configuration with `archive`; its archived events are scored.")
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(help="Events instead of a job: a .jsonl(.gz), .csv(.gz) or .parquet file, or a Delta table."),
    ] = None,
    schema: SchemaOption = None,
    arrival: Annotated[
        str | None, typer.Option(help="The column that orders a Delta table of --events; by default its event time.")
    ] = None,
    begin: From = None,
    end: To = None,
    history: Annotated[
        str | None, typer.Option(help="How much history to score before --from, as in 60d; everything by default.")
    ] = None,
    active: Annotated[
        bool, typer.Option("--active", help="Treat drafts and rules on trial as ACTIVE, for all keys.")
    ] = False,
    amount: Annotated[
        str | None, typer.Option(help="The field that holds the amount; the first measure by default.")
    ] = None,
    fraud: Annotated[
        Path | None, typer.Option(help="Confirmed fraud: event ids in a CSV, JSON lines, Parquet or Delta table.")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="An output folder whose alerts to compare with, instead of the job's.")
    ] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(metavar="[RULE.]NAME=VALUES", help="Values to try; repeatable.")
    ] = None,
    expect: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="What must hold, else exit code 1; repeatable.")
    ] = None,
    lists: Annotated[
        list[str] | None, typer.Option("--list", metavar="NAME=FILE", help="A list, instead of the recorded one.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, max=1000, help="How many sample keys and events of each kind.")] = 3,
    master: HistoryMaster = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE|-", help="Write the report as JSON; - prints only that.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the expectations as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML page.")] = None,
) -> None:
    """Report what rules would have raised on history, with the engine itself.

    Everything is scored, from the first event on; event times between --from
    and --to are reported. A sweep tries other values in the same pass: limit,
    window and cooldown of a rule, FEATURE.window of a feature, and
    when.FEATURE, the number that a condition compares it with.

    Examples:
      buckets backtest new.yaml --conf conf/job.yaml --from 2026-01-01 --to 2026-04-01
      buckets backtest new.yaml --events day.parquet --schema my-schema.yaml --html report.html
      buckets backtest new.yaml --conf conf/job.yaml --fraud fraud.csv --sweep limit=1000..10000:10
      buckets backtest new.yaml --conf conf/job.yaml --master spark://HOST:7077
      buckets backtest new.yaml --conf conf/job.yaml --sweep a.limit=5,10 --sweep a.window=1h,6h --json -
      buckets backtest new.yaml --conf conf/job.yaml --junit report.xml \\
        --expect "alerts < 500 per day" --expect "precision >= 20%" --expect "only new of a < 100"
    """  # noqa: D301 - click needs the backspace itself
    began_s = time.perf_counter()
    if (conf is None) == (events is None):
        message = "give either --conf, a job with an archive, or --events, a file or table of events"
        raise BucketsError(message)
    superfluous = next((name for name, value in (("--schema", schema), ("--arrival", arrival)) if value), None)
    if conf is not None and superfluous is not None:
        message = f"{superfluous} goes with --events; a job of --conf has its own, so leave it out"
        raise BucketsError(message)
    if conf is None and master is not None:
        message = "--master goes with --conf, the archive of a job; score other events by buckets.spark.backtest"
        raise BucketsError(message)
    job = None if conf is None else load_job(conf)
    of_job = [] if conf is None or job is None else job_inputs(conf, job)
    check_result_files(
        {"--json": json_file, "--junit": junit, "--html": html},
        [*rule_files(rules), events, schema, fraud, recorded, *list_files(lists).values(), *of_job],
    )
    declared = event_schema(schema) if job is None else nullcontext((job.event_schema, job.settings.engine))
    with declared as (of_events, engine):
        written = given_rules(rules, of_events)
    as_active = {"state": "ACTIVE", "rollout": WHOLE_SHARE}
    chosen = written
    if active:  # But for rules that are paused or deleted
        chosen = tuple(rule.model_copy(update=as_active) if rule.state in _ON_TRIAL else rule for rule in written)
    measure = amount or next(iter(of_events.measures), None)
    recorded = None if recorded is None else location(str(recorded))
    if recorded is not None and not has_alerts(recorded):
        message = f"--recorded {recorded}: has no tables or files of alerts; name an output folder of buckets"
        raise BucketsError(message)
    asked = Backtest(
        rules=chosen,
        schema=of_events,
        engine=engine,
        lists=given_lists(lists),
        span=range_ms(begin, end),
        history_ms=None if history is None else read_option("--history", history, parse_duration_ms),
        measure=measure,
        confirmed=None if fraud is None else read_confirmed_fraud(fraud, of_events, measure),
        swept=swept_rules(parse_sweeps(sweep or [], chosen), chosen),
        recorded=recorded or (None if job is None else with_alerts(kept_results(job))),
        samples=samples,
    )
    asked.check()
    expectations = [parse_expectation(text, asked.known) for text in expect or []]
    with Terminal(stderr=True).status("Reading what has arrived…") as status:

        def on_rows(rows: int, alerted: int) -> None:
            status.update(f"{rows:,} rows scored, {alerted:,} of them alerted…")

        say = Terminal(stderr=True).say
        if job is not None:
            past = History.open(job)
            score = scoring_of(job, master, past.archive.end(), say)
            report = asked.report(score(archive_pieces(past, asked), "alerts", asked.found_in), on_rows)
        else:
            assert events is not None
            check_needed_lists(asked.needed_lists, (), f"--events {events}")
            opened = open_events(events, of_events, arrival, say, asked.rule_set.named_fields)
            report = asked.run(event_pieces(opened, asked), on_rows)
    if events is not None:
        report.bad.check(f"--events {events}")
    outcomes = [check_expectation(expectation, report) for expectation in expectations]
    if json_file is None or str(json_file) != _STANDARD_OUTPUT:
        show_report(Terminal(), report, outcomes)
    else:
        echo_report(report_json(report, outcomes))
    if json_file is not None and str(json_file) != _STANDARD_OUTPUT:
        write_result("--json", json_file, report_text(report_json(report, outcomes)) + "\n")
    if junit is not None:
        seconds = time.perf_counter() - began_s
        write_result("--junit", junit, junit_of_expectations(outcomes, str(rules), seconds))
    if html is not None:
        write_result("--html", html, backtest_page(report, outcomes, str(rules)))
    failed = sum(not outcome.is_met for outcome in outcomes)
    if failed:
        message = f"{failed:,} of {len(outcomes):,} expectations {'is' if failed == 1 else 'are'} not met"
        raise BucketsError(message)
