"""The command `buckets rules check`: whether rules are valid, and what is wrong with those that are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.status import Status
from rich.table import Table
from rich.text import Text

from buckets.cli.console import Terminal, TextTable, echo, echo_json
from buckets.cli.options import SchemaOption, event_schema, given_lists, given_rule_files
from buckets.clock import epoch_ms
from buckets.config.engine import EngineSettings
from buckets.config.job import RULES, check_configuration
from buckets.config.lists import list_faults
from buckets.errors import BucketsError, refuse
from buckets.events.event_file import file_arrivals, lacking, open_event_file
from buckets.events.schema import EventSchema
from buckets.exit_codes import DONE, FAILED
from buckets.lint.lint import Report, codes, look
from buckets.lint.subject import EventSummary, Subject
from buckets.lists.index import Lists
from buckets.printable import counted
from buckets.rule_files.yaml_rules import RuleFile
from buckets.rules.group import canonical_group_id
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from buckets.validation import field_name

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_BATCH_ROWS = 20_000


def check(
    file: Annotated[
        Path | None, typer.Argument(help="A rule file, as in conf/demo-rules.yaml, or a folder of them.")
    ] = None,
    schema: SchemaOption = None,
    conf: Annotated[
        Path | None,
        typer.Option(
            help="A configuration: its schema and engine are used, and everything in it but the rules is checked."
        ),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(help="A .jsonl(.gz), .csv(.gz) or .parquet file of events to try the rules on."),
    ] = None,
    lists: Annotated[
        list[str] | None,
        typer.Option("--list", metavar="NAME=FILE", help="A list that rules look into; others count as missing."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON lines, and nothing else.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show silenced findings too.")] = False,
    explain: Annotated[str | None, typer.Option(metavar="CODE", help="Show the page of a code, as in B101.")] = None,
    list_codes: Annotated[bool, typer.Option("--codes", help="List all codes.")] = False,
) -> int:
    """Check that every rule of a file, or of a folder of files, is valid, and look for what is wrong with it.

    Findings have a code and a level: an error ends with exit code 1. A rule
    silences a code with a reason: silence: {B106: shown in alerts}.

    Examples:
      buckets rules check conf/demo-rules.yaml
      buckets rules check my-rules.yaml --schema schemas/transaction.yaml
      buckets rules check conf/rules --schema schemas/card-payment.yaml --strict
      buckets rules check conf/demo-rules.yaml --conf conf/demo.yaml --events day.jsonl
      buckets rules check my-rules.yaml --list payroll=payroll.csv --events day.jsonl
      buckets rules check --explain B101
    """
    if explain is not None or list_codes:
        _tell(explain)
        return DONE
    if file is None:
        message = "Missing argument 'file'."
        raise typer.TyperException(message)
    if conf is not None:
        _, answers = check_configuration(conf)
        faults = [fault for answer in answers if answer.thing != RULES for fault in answer.faults]
        for fault in faults:
            echo(f"error: {fault}", err=True)
        if faults:
            return FAILED
    with event_schema(schema, conf) as (of_events, engine):
        files = given_rule_files(file, of_events)
    rules = tuple(rule for rule_file in files for rule in rule_file.rules)
    live = tuple(rule for rule in rules if rule.state != "DELETE")
    known = given_lists(lists)
    if lists:
        refuse(list_faults("--list", live, known))
    summary = None if events is None else _summary(events, live, of_events, engine, known)
    if not as_json:
        in_force = [rule for rule in rules if rule.is_in_force]
        groupings = ((rule, fields, where) for rule in in_force for fields, where in rule.groupings())
        groups = {canonical_group_id(fields, where, of_events, rule.on) for rule, fields, where in groupings}
        counts = f"{counted(len(rules), 'rule')} in {counted(len(groups), 'group')}"
        echo(f"{file}: {counts} {'is' if len(rules) == 1 else 'are'} valid")
    homes = {rule.rule_id: rule_file for rule_file in files for rule in rule_file.rules}
    written = {rule_id: rule_file.written(rule_id) for rule_id, rule_file in homes.items()}
    report = look(Subject(live, epoch_ms(), of_events, engine if conf else None, summary, written))
    _print_json(report, homes, show_all) if as_json else _print(report, homes, show_all)
    levels = {finding.code.level for finding in report.findings}
    return FAILED if "error" in levels or (strict and "warning" in levels) else DONE


def _tell(explain: str | None) -> None:
    if explain is not None:
        if explain.upper() not in codes():
            message = f"--explain {explain}: there is no such code; `buckets rules check --codes` lists them"
            raise BucketsError(message)
        from rich.markdown import Markdown  # takes long to import

        Terminal().print(Markdown(codes()[explain.upper()].page))
        return
    table = TextTable("Codes", ("Code", "Level", "Finds", "Needs"))
    options = {"schema": "--schema or --conf", "engine": "--conf", "events": "--events", "silence": ""}
    for code in codes().values():
        needs = "--conf" if "engine" in code.needs else ", ".join(options[need] for need in sorted(code.needs))
        table.add_row(code.code, Text(code.level, _COLOURS[code.level]), code.title, needs)
    Terminal().print(table)


def _summary(
    path: Path, rules: tuple[Rule, ...], schema: EventSchema, engine: EngineSettings, lists: Lists
) -> EventSummary:
    from buckets.lint.event_counts import summarise

    # Drafts are tried too.
    tried = [rule.model_copy(update={"state": "ACTIVE"}) for rule in rules if rule.on == "events"]
    file = open_event_file(path, schema)
    console = Terminal(stderr=True)
    with Status(f"Reading {path}…", console=console) as status:

        def on_rows(rows: int) -> None:
            status.update(f"{rows:,} events of {path}")

        arrivals = file_arrivals(file, schema, _BATCH_ROWS, console.say)
        summary = summarise(arrivals, rules, schema, engine, on_rows, lists)
    summary.bad.check(f"--events {path}")
    for line in summary.bad.lines:
        console.say(f"--events {path}: {line}")
    gone = lacking([file], schema, first_rule_set(tried).named_fields)
    if gone:
        console.say(f"--events {path}: {gone}")
    return summary


def _print_json(report: Report, homes: Mapping[str, RuleFile], show_all: bool) -> None:
    for finding, reason in [*((each, None) for each in report.findings), *(report.silenced if show_all else ())]:
        file = homes[finding.rule_id]
        line = {
            "code": finding.code.code,
            "level": finding.code.level,
            "rule_id": finding.rule_id,
            "file": str(file.path),
            "line": file.rule_line(finding.rule_id, finding.path),
            "field": field_name(finding.path),
            "message": finding.message,
            "silenced": reason,
        }
        echo_json(line, indent=None)


def _print(report: Report, homes: Mapping[str, RuleFile], show_all: bool) -> None:
    console, table = Terminal(), Table("Code", show_lines=True)
    table.add_column("Rule", overflow="fold", max_width=console.width // 3)
    table.add_column("Finding", overflow="fold")
    for finding, reason in [*((each, "") for each in report.findings), *(report.silenced if show_all else ())]:
        file, level = homes[finding.rule_id], finding.code.level
        line = file.rule_line(finding.rule_id, finding.path)
        where = f"{finding.rule_id}\n{file.path.name}:{line} {field_name(finding.path)}"
        code = Text.assemble(finding.code.code, "\n", (level, _COLOURS[level]))
        table.add_row(code, Text(where, overflow="fold"), finding.message + (f"\nsilenced: {reason}" if reason else ""))
    if table.row_count:
        console.print(table)
    counts = {level: sum(finding.code.level == level for finding in report.findings) for level in _COLOURS}
    parts = [counted(count, level) for level, count in counts.items() if count]
    if report.silenced:
        parts.append(f"{len(report.silenced):,} silenced{'' if show_all else ' (--all shows them)'}")
    if parts:
        echo(", ".join(parts) + ("; --explain CODE says more" if report.findings else ""))
