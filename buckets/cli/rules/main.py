"""The commands `buckets rules`: check and read rule files, and change the rules of a job while it runs."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.changes.versions import changes_of
from buckets.cli.console import Listing, Terminal, TextTable, echo, echo_json
from buckets.cli.options import Author, DryRun, Reason, SchemaFile, author_and_reason
from buckets.cli.result_file import check_new_file, write_or_print
from buckets.cli.rules.backfill import ask_for_backfill, check_backfill
from buckets.cli.rules.check import check
from buckets.cli.rules.compare import compare_rules
from buckets.cli.rules.diff import diff
from buckets.cli.rules.draft import new
from buckets.cli.rules.import_rules import import_rules
from buckets.cli.rules.list_rules import list_rules
from buckets.cli.rules.promote import promote
from buckets.cli.rules.quality import rules_quality
from buckets.cli.rules.request import Conf, rules_of
from buckets.cli.rules.rollback import rollback
from buckets.cli.rules.state import clear_all_state, clear_state, delete, delete_all, pause, resume, shadow
from buckets.cli.rules.tests import run_tests
from buckets.cli.rules.view import changes_table, history_table, rule_words
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.events.schema import load_event_schema
from buckets.resources import DEMO_RULES
from buckets.rule_files.json_schema import rule_file_schema
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_files.yaml_rules import load_changes, load_rule_files

rules_app = typer.Typer(help="Check, read and change rules.", rich_markup_mode=None)

RulesFile = Annotated[Path, typer.Argument(help="A rule file, as in conf/demo-rules.yaml.")]


@rules_app.command(name="schema")
def file_schema(schema: SchemaFile = None) -> None:
    """Print the JSON schema of a rule file, for editors that complete and check what is written.

    With an event schema, it knows the fields. The first line of a rule file
    tells an editor where it is:

      # yaml-language-server: $schema=rules.schema.json

    \b
    Examples:
      buckets rules schema --schema schemas/transaction.yaml > rules.schema.json
    """  # noqa: D301 - click needs the backspace itself
    echo_json(rule_file_schema(load_event_schema(schema) if schema else None))


@rules_app.command()
def show(
    file: Annotated[
        Path, typer.Argument(help="A rule file, or a folder of them; without it, the rules of the demo.")
    ] = DEMO_RULES,
    schema: SchemaFile = None,
) -> None:
    """Show the rules of a file as English sentences.

    \b
    Examples:
      buckets rules show
      buckets rules show my-rules.yaml
      buckets rules show conf/rules
    """  # noqa: D301 - click needs the backspace itself
    rules = load_rule_files(file, load_event_schema(schema) if schema else None)
    table = TextTable(f"Rules of {file}", ("Rule", "Version", "State", "Alerts when"))
    for rule in rules:
        table.add_row(rule.rule_id, str(rule.version), rule.state, rule_words(rule))
    Terminal().print(table)


@rules_app.command()
def apply(
    file: RulesFile,
    conf: Conf,
    author: Author = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Have the running job fill in their history from its archive.")
    ] = False,
) -> None:
    """Put the rules of a file where a job reads them; it takes them with its next batch.

    All rules are checked before one is written. Rules that the file does not
    name stay as they are; one with `state: DELETE` goes. The file may also hold
    messages of the Flink demo.

    With --backfill the job goes on as before, and fills in what the rules of
    the file have missed, beside its events and only while some arrive.
    `buckets rules list` shows how far it is; from then on the rules are as if
    they had been there from the start.

    \b
    Examples:
      buckets rules apply new-rules.yaml --conf conf/kafka.yaml --dry-run
      buckets rules apply new-rules.yaml --conf conf/kafka.yaml --backfill
      buckets rules apply new-rules.yaml --conf conf/kafka.yaml --reason "limits of 2027"
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    if backfill:
        check_backfill(job)
    rules = rules_of(job, file.name)
    asked = load_changes(file, job.event_schema, rules.rules, **author_and_reason(author, reason))
    revision = rules.revise(asked)
    subjects = [str(change.subject) for change in asked]
    table = changes_table(f"Rules of {file} into {rules.name}", subjects, revision.made, job.event_schema)
    Terminal().print(table)
    changed = f"{len(revision.made)} of {len(asked)} rules"
    if dry_run:
        echo(f"dry run: {changed} would change; nothing has been written")
        return
    rules.publish(asked, revision)
    echo(f"{changed} are changed in {rules.name}")
    if backfill:
        ask_for_backfill(job, revision.rule_set, asked)


@rules_app.command()
def history(
    conf: Conf,
    rule_id: Annotated[str | None, typer.Argument(metavar="[RULE_ID]", help="A rule; without it, all rules.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many changes to show, the newest.")] = 50,
) -> None:
    """Show what has changed in the rules of a job, newest first: by whom, why, and from which batch on.

    \b
    Examples:
      buckets rules history --conf conf/kafka.yaml
      buckets rules history payer-24h --conf conf/kafka.yaml
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    wanted = changes_of(job, rule_id)
    of = f" of rule {rule_id}" if rule_id is not None else ""
    none = f"no changes{of} yet in checkpoint {job.checkpoint}"
    title = f"{min(limit, len(wanted))} of {len(wanted)} changes{of}, newest first"
    Listing(wanted, none, title, history_table, limit).show()


@rules_app.command()
def export(
    conf: Conf,
    out: Annotated[Path | None, typer.Option(help="A new file; without it, the rules are printed.")] = None,
) -> None:
    """Write the rules, as a job reads them, as a rule file that can be applied elsewhere.

    \b
    Examples:
      buckets rules export --conf conf/kafka.yaml
      buckets rules export --conf conf/kafka.yaml --out rules-of-today.yaml
    """  # noqa: D301 - click needs the backspace itself
    check_new_file(out)
    kept = rules_of(load_job(conf))
    if not kept.rules:
        message = f"there are no rules in {kept.name}; put some there with `buckets rules apply FILE --conf {conf}`"
        raise BucketsError(message)
    write_or_print(out, rules_text(kept.rules), f"{len(kept.rules)} rules of {kept.name} are in {out}")


for _name, _command in (
    ("import", import_rules),
    ("list", list_rules),
    ("compare", compare_rules),
    ("quality", rules_quality),
    ("check", check),
    ("new", new),
    ("pause", pause),
    ("resume", resume),
    ("shadow", shadow),
    ("promote", promote),
    ("diff", diff),
    ("rollback", rollback),
    ("delete", delete),
    ("clear-state", clear_state),
    ("clear-all-state", clear_all_state),
    ("delete-all", delete_all),
    ("test", run_tests),
):
    rules_app.command(name=_name)(_command)
