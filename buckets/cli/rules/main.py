"""The commands `buckets rules apply`, `history` and `export`: rules as a job reads them."""

from pathlib import Path
from typing import Annotated

import typer

from buckets.changes.versions import changes_of
from buckets.cli.console import Listing, Terminal, echo
from buckets.cli.options import Author, DryRun, Reason, author_and_reason
from buckets.cli.result_file import check_new_file, write_or_print
from buckets.cli.rules.backfill import ask_for_backfill, check_backfill
from buckets.cli.rules.request import Conf, rules_of
from buckets.cli.rules.view import changes_table, history_table
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_files.yaml_rules import load_changes

RulesFile = Annotated[Path, typer.Argument(help="A rule file, as in conf/demo-rules.yaml.")]


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
