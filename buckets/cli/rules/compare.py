"""The command `buckets rules compare`: what only one, only the other, and both of two rules caught."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.changes.versions import check_known_rules
from buckets.cli.console import Terminal, TextTable, echo, echo_report
from buckets.cli.options import AsJson, From, To, range_ms
from buckets.config.job import load_job, results_folder
from buckets.errors import BucketsError
from buckets.moment import day_text, time_text
from buckets.numbers.fixed_point import money_text, percent_text
from buckets.outputs.comparison import PARTS, Caught, Comparison, compare, compared_columns
from buckets.outputs.recorded_outputs import RAISED, Selection, has_alerts, output_rows, rules_with_alerts
from buckets.printable import key_words
from buckets.rules.revision import names
from buckets.stores.location import location

RuleA = Annotated[str, typer.Argument(metavar="A", help="A rule, in force or on trial.")]
RuleB = Annotated[str, typer.Argument(metavar="B", help="Another one.")]
OfJob = Annotated[Path | None, typer.Option("--conf", help="A job's configuration: its output, or its audit's tables.")]
Output = Annotated[Path | None, typer.Option("--output", help="An output folder, instead of a configuration.")]
Measure = Annotated[
    str | None, typer.Option(help="The field whose amounts are added up; the first measure of the job's event schema.")
]
Samples = Annotated[int, typer.Option(min=0, max=1000, help="How many events of each part are shown, the newest.")]


def compare_rules(
    a: RuleA,
    b: RuleB,
    conf: OfJob = None,
    output: Output = None,
    begin: From = None,
    end: To = None,
    measure: Measure = None,
    samples: Samples = 3,
    as_json: AsJson = False,
) -> None:
    """Show what two rules caught, from the tables of alerts and shadow alerts.

    Two rules over different keys are compared by event. Alerts that a policy
    held back are not among them. Memory is used for the alerts of the two rules
    in that time, without their events.

    \b
    Examples:
      buckets rules compare payer-24h payer-48h --conf conf/job.yaml
      buckets rules compare old new --output out/tables --from 2026-01-01 --to 2026-02-01 --json
    """  # noqa: D301 - click needs the backspace itself
    if a == b:
        message = f"{a!r} is given twice; name two different rules"
        raise BucketsError(message)
    times = range_ms(begin, end)
    if (conf is None) == (output is None):
        message = "give either --conf, a job's configuration, or --output, an output folder"
        raise BucketsError(message)
    job = None if conf is None else load_job(conf)
    folder = results_folder(job) if job is not None else location(str(output))
    if not has_alerts(folder):
        message = f"results {folder}: there are no tables of alerts; name the output folder of a job that has run"
        raise BucketsError(message)
    check_known_rules((a, b), job, folder)
    measure = measure or (next(iter(job.event_schema.measures), None) if job is not None else None)
    wanted = Selection({"rule_id": (a, b)}, times)
    rows = (row for output in RAISED for row in output_rows(folder, output, compared_columns(measure), wanted))
    comparison = compare(rows, a, b, measure, samples)
    if as_json:
        echo_report(_as_json(comparison, a, b, measure))
        return
    if comparison.overlap is None:
        echo(f"neither {a} nor {b} has an alert there in that time; with alerts: {names(rules_with_alerts(folder))}")
        return
    _show(Terminal(), comparison, a, b, measure)


def _show(console: Terminal, comparison: Comparison, a: str, b: str, measure: str | None) -> None:
    titles: dict[Caught, str] = {"only_a": f"only {a}", "only_b": f"only {b}", "both": "both"}
    numbers = ("Events", "Keys", measure or "Amount")
    table = TextTable("What was caught", ("By", *numbers), numbers)
    for name in PARTS:
        part = comparison.parts[name]
        keys = "other keys" if part.keys is None else f"{part.keys:,}"
        table.add_row(titles[name], f"{part.events:,}", keys, money_text(part.amount))
    console.print(table)
    shares = (comparison.overlap, comparison.share_of("only_a"), comparison.share_of("only_b"))
    of_all, of_a, of_b = (percent_text(share or 0.0) for share in shares)
    console.print(f"both caught {of_all} of all: {of_a} of what {a} caught, {of_b} of what {b} caught")
    days = TextTable("By day (UTC, event time)", ("Day", *titles.values()), titles.values())
    for day, counts in comparison.days.items():
        days.add_row(day_text(day), *(f"{counts[name]:,}" for name in PARTS))
    console.print(days)
    samples = samples_table(comparison, titles, measure or "Amount")
    if samples.row_count:
        console.print(samples)


def samples_table(comparison: Comparison, titles: Mapping[Caught, str], amount: str | None = None) -> TextTable:
    """Return the latest events of each part of a comparison, with their amounts where these have a name."""
    amounts = () if amount is None else (amount,)
    table = TextTable("The latest of each", ("By", "Time (UTC)", "Event", "Key", *amounts), amounts)
    for name in PARTS:
        for sample in comparison.parts[name].samples:
            cells = [titles[name], time_text(sample.event_time_ms), sample.event_id, key_words(sample.key)]
            table.add_row(*cells, *(money_text(sample.amount) for _ in amounts))
    return table


def _as_json(comparison: Comparison, a: str, b: str, measure: str | None) -> dict[str, Any]:
    return {
        "a": a,
        "b": b,
        "measure": measure,
        "overlap": comparison.overlap,
        "share_of_a": comparison.share_of("only_a"),
        "share_of_b": comparison.share_of("only_b"),
        **{name: comparison.parts[name].to_json() for name in PARTS},
        "days": [{"day": day_text(day), **counts} for day, counts in comparison.days.items()],
    }
