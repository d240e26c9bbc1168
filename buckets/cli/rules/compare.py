"""The commands `buckets rules compare` and `diff`: what two rules caught, and what changed between two versions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.changes.versions import check_known_rules, read_version
from buckets.checkpoint.driver_state import Checkpoint
from buckets.cli.console import Terminal, TextTable, echo, echo_report
from buckets.cli.options import AsJson, From, To, given_rules, range_ms
from buckets.clock import epoch_ms
from buckets.config.job import Job, load_job, results_folder
from buckets.errors import BucketsError
from buckets.feeds.rules.rule_book import NO_RULES
from buckets.moment import day_text, time_text
from buckets.numbers.fixed_point import money_text, percent_text
from buckets.outputs.comparison import PARTS, Caught, Comparison, compare, compared_columns
from buckets.outputs.recorded_outputs import RAISED, Selection, has_alerts, output_rows, rules_with_alerts
from buckets.printable import capitalised, key_words
from buckets.rule_files.differences import RuleDifference, rules_that_differ
from buckets.rules.change import changes_between
from buckets.rules.revision import names, revise
from buckets.rules.rule import policy_sentence
from buckets.rules.rule_set import RuleSet, first_rule_set, group_changes
from buckets.rules.warmth import rules_warmth
from buckets.stores.location import location


def compare_rules(
    a: Annotated[str, typer.Argument(metavar="A", help="A rule, in force or on trial.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    conf: Annotated[Path | None, typer.Option(help="A job's configuration: its output, or its audit's tables.")] = None,
    output: Annotated[Path | None, typer.Option(help="An output folder, instead of a configuration.")] = None,
    begin: From = None,
    end: To = None,
    measure: Annotated[
        str | None, typer.Option(help="The field to sum; the first measure of the job's event schema by default.")
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, max=1000, help="How many of the newest events of each part to show.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Show what two rules caught, from the tables of alerts and shadow alerts.

    Rules over different keys are compared by event. Alerts that a policy held
    back do not count. Memory grows with the alerts of the two rules in that
    time, not with their events.

    Examples:
      buckets rules compare payer-24h payer-48h --conf conf/job.yaml
      buckets rules compare old new --output out/tables --from 2026-01-01 --to 2026-02-01 --json
    """
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
    table = TextTable("What was caught", ("By", ">Events", ">Keys", f">{measure or 'Amount'}"))
    for name in PARTS:
        part = comparison.parts[name]
        keys = "other keys" if part.keys is None else f"{part.keys:,}"
        table.add_row(titles[name], f"{part.events:,}", keys, money_text(part.amount))
    console.print(table)
    shares = (comparison.overlap, comparison.share_of("only_a"), comparison.share_of("only_b"))
    of_all, of_a, of_b = (percent_text(share or 0.0) for share in shares)
    console.print(f"both caught {of_all} of all: {of_a} of what {a} caught, {of_b} of what {b} caught")
    days = ((day_text(day), *(f"{counts[name]:,}" for name in PARTS)) for day, counts in comparison.days.items())
    columns = ("Day", *(f">{title}" for title in titles.values()))
    console.print(TextTable("By day (UTC, event time)", columns, days))
    samples = samples_table(comparison, titles, measure or "Amount")
    if samples.row_count:
        console.print(samples)


def samples_table(comparison: Comparison, titles: Mapping[Caught, str], amount: str | None = None) -> TextTable:
    """Return the latest events of each part of a comparison, with their amounts where these have a name."""
    amounts = () if amount is None else (f">{amount}",)
    table = TextTable("The latest of each", ("By", "Time (UTC)", "Event", "Key", *amounts))
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


def diff(
    one: Annotated[
        str, typer.Argument(metavar="ONE", help="A version of the rules, as in 3, or a rule file or folder.")
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="[OTHER]", help="Another one; by default the newest version in the checkpoint."),
    ] = None,
    conf: Annotated[
        Path | None, typer.Option(help="The job's configuration, whose checkpoint has the versions; not for two files.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how two versions of the rules differ, and what the step from the first to the second does to the state.

    A version is that of all rules, as `buckets rules history` counts them. A
    file is compared as if the job took it now.

    Examples:
      buckets rules diff 3 7 --conf conf/kafka.yaml
      buckets rules diff 7 new-rules.yaml --conf conf/kafka.yaml
      buckets rules diff old-rules.yaml new-rules.yaml
    """
    job = None if conf is None else load_job(conf)
    (name_before, before), (name_after, after) = _side(job, one), _side(job, other)
    rules, groups = rules_that_differ(before.rules, after.rules), group_changes(before, after)
    complete = _warmth(job, after, rules)
    if as_json:
        shown = [
            {
                "rule_id": rule.rule_id,
                "change": rule.change,
                "version_before": None if rule.before is None else rule.before.version,
                "version_after": None if rule.after is None else rule.after.version,
                "fields": [asdict(field) for field in rule.fields],
                "sentence_before": None if rule.before is None else rule.before.sentence(),
                "sentence_after": None if rule.after is None else rule.after.sentence(),
                "completeness": complete.get(rule.rule_id),
            }
            for rule in rules
        ]
        echo_report({"before": name_before, "after": name_after, "rules": shown, "groups": list(map(asdict, groups))})
        return
    console, of = Terminal(), f"{name_before} → {name_after}"
    if not rules:
        console.print(f"{of}: the rules are the same")
    else:
        rows = ((f"{rule.rule_id}\n{rule.change}", _words(rule, complete.get(rule.rule_id))) for rule in rules)
        console.print(TextTable(f"Rules, {of}", ("Rule", "What"), rows, show_lines=True))
    if groups:
        effects = ((group.name, group.words) for group in groups)
        console.print(TextTable("Effect on the state", ("Group", "What"), effects, show_lines=True))
    elif rules:
        console.print("what is kept of events stays as it is")


def _words(rule: RuleDifference, complete: str | None) -> str:
    there = rule.after or rule.before
    assert there is not None
    lines = [str(field) for field in rule.fields] or [there.sentence(), policy_sentence(there)]
    lines += [f"{capitalised(complete)}."] if complete else []
    return "\n".join(line for line in lines if line)


def version_number(text: str) -> int | None:
    """Return the number of a version of the rules; None where the text is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _side(job: Job | None, written: str | None) -> tuple[str, RuleSet]:
    """Return a version of the rules, or a file as if the job took it now, with its name."""
    number = None if written is None else version_number(written)
    if written is None or number is not None:
        if job is None:
            what = "the newest version" if written is None else f"version {written}"
            message = f"{what} of the rules: is in the checkpoint of a job; give its --conf, or two files"
            raise BucketsError(message)
        version = read_version(job, number)
        return f"version {version.version}", version
    rules = given_rules(Path(written), None if job is None else job.event_schema)
    if job is None:
        return written, first_rule_set(rule for rule in rules if rule.state != "DELETE")
    kept = Checkpoint(job.checkpoint)
    latest = kept.versions.latest_rule_set() or NO_RULES
    asked, lateness_ms = changes_between(latest.rules, rules), job.settings.engine.allowed_lateness
    revision = revise(latest, asked, job.event_schema, kept.batches.arrived(), lateness_ms, kept.versions.gone_rules())
    if revision.refused:
        message = f"{written}: {revision.refused[0].reason}"
        raise BucketsError(message)
    return written, revision.rule_set


def _warmth(job: Job | None, after: RuleSet, rules: Sequence[RuleDifference]) -> dict[str, str]:
    """Say since when the rules that differ are complete on the second side; empty where no job has versions."""
    kept = None if job is None else Checkpoint(job.checkpoint)
    if kept is None or kept.versions.latest_rule_set() is None:
        return {}
    warmth = rules_warmth(after, kept.batches.arrived(), epoch_ms())
    return {rule.rule_id: warmth[rule.rule_id].sentence() for rule in rules if rule.after is not None}
