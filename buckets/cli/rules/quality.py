"""The command `buckets rules quality`: how good each rule is by people's verdicts, as a table, a page or JSON."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.archive.history import archived_events
from buckets.cli.console import Terminal, TextTable, echo, echo_report
from buckets.cli.options import AsJson, From, JobConf, To, range_ms
from buckets.cli.result_file import check_result_files, job_inputs, write_result
from buckets.config.job import load_job
from buckets.duration import spoken_duration
from buckets.errors import BucketsError
from buckets.moment import time_text
from buckets.numbers.fixed_point import readable, short_percent_text
from buckets.pages.page import render
from buckets.printable import one_line
from buckets.rules.rule import WHOLE_SHARE, parse_share
from buckets.verdicts.quality import QualityReport, RuleQuality, Thresholds, quality_report
from buckets.verdicts.verdict import ShareInterval


def quality_page(report: QualityReport) -> str:
    """Return the page of a report: self-contained HTML."""
    return render(
        "quality.html",
        report=report,
        span=_span(report),
        remarks=remarks(report),
        least=report.thresholds.verdicts,
        is_decided=any(rule.decide_ms is not None for rule, _ in report.rules),
        alerts_text=alerts_text,
        interval_text=interval_text,
        percent=short_percent_text,
        readable=readable,
        spoken_duration=spoken_duration,
    )


def _span(report: QualityReport) -> str:
    """Say which event times count."""
    start, end = (None if time is None else time_text(time) for time in report.times)
    if start is None and end is None:
        return "of all time"
    return " ".join([*([f"from {start}"] if start else []), *([f"to before {end}"] if end else [])]) + " (UTC)"


def alerts_text(rule: RuleQuality) -> str:
    """Return the alerts of a rule; those on trial and those that were held back on lines of their own."""
    lines = [f"{rule.alerts:,}"] if rule.alerts or not rule.shadow_alerts else []
    lines += [f"{rule.shadow_alerts:,} on trial"] if rule.shadow_alerts else []
    return "\n".join([*lines, *([f"{rule.held_alerts:,} held"] if rule.held_alerts else [])])


def interval_text(interval: ShareInterval | None) -> str:
    """Say between which bounds a share lies; nothing where there is none."""
    return "" if interval is None else f"{short_percent_text(interval.low)} to {short_percent_text(interval.high)}"


def remarks(report: QualityReport) -> list[str]:
    """Say in sentences what the numbers leave out, and how long decisions took."""
    lines = []
    decided = [(rule.rule_id, rule.decide_ms) for rule, _ in report.rules if rule.decide_ms is not None]
    if decided:
        waits = ", ".join(f"{rule_id} {spoken_duration(wait_ms)}" for rule_id, wait_ms in decided)
        lines.append(one_line(f"from an event's time to its decision (median): {waits}"))
    held = [(rule.rule_id, rule.caught_held) for rule, _ in report.rules if rule.caught_held]
    if held:
        missed = ", ".join(f"{rule_id} {count:,}" for rule_id, count in held)
        lines.append(one_line(f"frauds at which a rule fired and its alert was held back, counted as missed: {missed}"))
    if report.without_time:
        lines.append(f"{report.without_time:,} frauds are left out, for it is not known when they happened")
    if report.without_amount and report.measure:
        lines.append(f"of {report.without_amount:,} frauds no {report.measure} is known")
    return lines


_KEEP, _RETIRE = short_percent_text(Thresholds.keep), short_percent_text(Thresholds.retire)


def rules_quality(
    conf: JobConf,
    begin: From = None,
    end: To = None,
    fraud: Annotated[
        Path | None,
        typer.Option(help="Further confirmed fraud: a Delta table, .csv, .jsonl or .parquet with ids of events."),
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="The field that holds the amount; the first measure by default.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write it as an HTML page.")] = None,
    as_json: AsJson = False,
    verdicts: Annotated[
        int, typer.Option(min=1, help="How many alerts found fraud or legitimate advice needs.")
    ] = Thresholds.verdicts,
    keep: Annotated[
        str, typer.Option(help="Keep a rule whose precision is at least this, with 95 % confidence.")
    ] = _KEEP,
    retire: Annotated[
        str,
        typer.Option(
            help="Retire a rule whose precision is below this, with 95 % confidence, and that caught no fraud alone."
        ),
    ] = _RETIRE,
) -> None:
    """Show how good each rule is, by the verdicts on alerts and by confirmed fraud.

    Precision is the share of fraud among alerts found fraud or legitimate, with
    the interval that holds it with 95 % confidence. Recall is the share of all
    confirmed frauds at whose events the rule fired, those without any alert
    (`buckets verdict --event`) included. An alert without a verdict of its own
    has that of its event. Alerts on trial count like others; those that were
    held back are counted apart. --from and --to are event times.

    Examples:
      buckets rules quality conf/demo.yaml
      buckets rules quality conf/demo.yaml --from 2026-01-01 --to 2026-04-01 --html quality.html
      buckets rules quality conf/demo.yaml --fraud chargebacks.csv --keep 40% --json
    """
    times = range_ms(begin, end)
    thresholds = Thresholds(verdicts, _share("--keep", keep), _share("--retire", retire))
    if thresholds.retire > thresholds.keep:
        message = f"--retire {retire} is above --keep {keep}; a rule would be both kept and retired"
        raise BucketsError(message)
    job = load_job(conf)
    check_result_files({"--html": html}, [*job_inputs(conf, job), fraud])
    with Terminal(stderr=True).status("Reading alerts and verdicts…"):
        report = quality_report(job, thresholds, times, fraud, measure, archived_events(job))
    if html is not None:
        write_result("--html", html, quality_page(report))
    if as_json:
        echo_report(report.as_json())
    elif report.rules:
        _show_quality(Terminal(), report)
    else:
        echo("there are no rules and no alerts in that time")
    if html is not None:
        echo(f"the page is {html}", err=True)


def _share(option: str, text: str) -> float:
    try:
        return parse_share(text) / WHOLE_SHARE
    except ValueError:
        message = f"{option}: {text!r} is not a share; write 0.01% to 100%, as in 30%"
        raise BucketsError(message) from None


def _show_quality(console: Terminal, report: QualityReport) -> None:
    console.print(_precision_table(report))
    console.print(_recall_table(report))
    for line in remarks(report):
        console.print(line)
    for rule, advice in report.rules:
        console.print(one_line(f"{rule.rule_id}: {advice.what}; {advice.reason}"))


def _precision_table(report: QualityReport) -> TextTable:
    table = TextTable("How often rules are right", ("Rule", ">Alerts", ">Fraud", ">Precision", "Advice"))
    for rule, advice in report.rules:
        precision = rule.fraud_of_judged
        shown = "" if precision is None else f"{short_percent_text(precision.share)}\n{interval_text(precision)}"
        fraud = f"{rule.verdicts['fraud']:,} of {rule.judged:,}"
        alerts = alerts_text(rule).replace(" on trial", "\non trial")
        table.add_row(one_line(rule.rule_id), alerts, fraud, shown, advice.what)
    return table


def _recall_table(report: QualityReport) -> TextTable:
    columns = ("Rule", ">Caught", ">Recall", f">{report.measure or 'Amount'}", ">Detected\nafter")
    frauds = "one confirmed fraud" if report.frauds == 1 else f"{report.frauds:,} confirmed frauds"
    table = TextTable(f"What they caught of {frauds}", columns)
    for rule, _ in report.rules:
        recall, caught = rule.caught_of_confirmed, f"{rule.caught:,}\n{rule.caught_alone:,} alone"
        share = "" if recall is None else short_percent_text(recall.share)
        amounts = f"{readable(rule.amount_caught)}\n{readable(rule.amount_missed)} missed" if report.measure else ""
        detected = "" if rule.detect_ms is None else spoken_duration(rule.detect_ms)
        table.add_row(one_line(rule.rule_id), caught, share, amounts, detected)
    return table
