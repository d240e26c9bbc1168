"""The command `buckets rules test`: runs the tests that stand beside rules, in this process."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from buckets.cli.console import Terminal, TextTable, echo
from buckets.cli.options import SchemaOption, event_schema, given_rule_files
from buckets.cli.result_file import junit_report, write_result
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.printable import counted
from buckets.rule_files.yaml_rules import RuleFile
from buckets.rule_tests.tester import RuleTester, RuleTestOutcome, untested

_STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


def run_tests(
    file: Annotated[Path, typer.Argument(help="A rule file with `tests`, or a folder of them.")],
    schema: SchemaOption = None,
    conf: Annotated[
        Path | None, typer.Option(help="A job's configuration, of which `schema` and `engine` are used.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit XML.")] = None,
    rule: Annotated[str | None, typer.Option(help="Only tests of this rule.")] = None,
    text: Annotated[str | None, typer.Option("-k", metavar="TEXT", help="Only tests with this in their name.")] = None,
    require: Annotated[bool, typer.Option("--require", help="Fail if a rule has no test.")] = False,
) -> None:
    """Run the tests that stand beside rules, without Spark.

    A rule is tested as if it were ACTIVE for all keys, whatever its state.
    Each difference is reported with its line in the rule file, and the exit
    code is 1.

    Examples:
      buckets rules test conf/demo-rules.yaml
      buckets rules test conf/rules --schema schemas/card-payment.yaml --junit report.xml
      buckets rules test my-rules.yaml --conf conf/kafka.yaml --rule payer-24h --require
    """
    with event_schema(schema, conf) as (of_events, engine):
        files = given_rule_files(file, of_events)
    if rule is not None and not any(known.rule_id == rule for rule_file in files for known in rule_file.rules):
        message = f"--rule {rule}: no such rule in {file}; `buckets rules show {file}` names them"
        raise BucketsError(message)
    begin = time.perf_counter()
    outcomes = list(_run(files, of_events, engine, rule, text))
    seconds = time.perf_counter() - begin
    chosen = [f"{option} {value}" for option, value in (("--rule", rule), ("-k", text)) if value is not None]
    if not outcomes and chosen:
        message = f"{file}: no test fits {' and '.join(chosen)}; leave the option out to run all tests"
        raise BucketsError(message)
    if junit is not None:
        write_result("--junit", junit, junit_report(outcomes, seconds))
    if outcomes:
        _show(file, outcomes, seconds)
    else:
        echo(f"{file}: has no tests; write some under `tests`")
    lacking = [rule_id for rule_file in files for rule_id in untested(rule_file) if rule in (None, rule_id)]
    if lacking:
        echo(f"{len(lacking):,} {'rules have' if len(lacking) > 1 else 'rule has'} no test: {', '.join(lacking)}")
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    if failed:
        message = f"{file}: {failed:,} of {len(outcomes):,} tests failed"
        raise BucketsError(message)
    if require and lacking:
        message = f"{file}: {len(lacking):,} of the rules have no test, and --require asks for one of each; write them"
        raise BucketsError(message)


def _run(
    files: Iterable[RuleFile], schema: EventSchema, engine: EngineSettings, rule: str | None, text: str | None
) -> Iterable[RuleTestOutcome]:
    for file in files:
        tester = RuleTester(file, schema, engine)
        for index, test in enumerate(file.tests):
            if (rule is None or rule in tester.rules_of(test)) and (text is None or text in test.name):
                yield tester.run(index)


def _show(path: Path, outcomes: Sequence[RuleTestOutcome], seconds: float) -> None:
    console = Terminal()
    table = TextTable(f"Tests of {path}", ("Test", "=Where", "Result"))
    for outcome in outcomes:
        where = f"{Path(outcome.file).name}:{outcome.line}"
        table.add_row(outcome.name, where, Text(outcome.status, _STYLES[outcome.status]))
    console.print(table)
    for outcome in outcomes:
        if outcome.failures:
            echo(f"\nfailed: {outcome.name}")
            for failure in outcome.failures:
                echo(f"  {outcome.file}:{failure.line}: {failure.text}")
    statuses = [outcome.status for outcome in outcomes]
    counts = ", ".join(f"{statuses.count(status):,} {status}" for status in _STYLES if status in statuses)
    echo(f"{counted(len(outcomes), 'test')} in {seconds:.1f} s: {counts}")
