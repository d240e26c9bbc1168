"""The command `buckets rules rollback`: a new version of the rules that equals an old one."""

from typing import Annotated

import typer

from buckets.changes.versions import read_version
from buckets.cli.console import Terminal, echo
from buckets.cli.options import Author, DryRun, Reason, author_and_reason
from buckets.cli.rules.diff import version_number
from buckets.cli.rules.request import Conf, rules_of
from buckets.cli.rules.view import changes_table
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.rules.release import rollback as changes_back

VersionArgument = Annotated[
    str, typer.Argument(metavar="VERSION", help="Of all rules, as `rules history` counts them.")
]


def rollback(
    version: VersionArgument, conf: Conf, author: Author = None, reason: Reason = "", dry_run: DryRun = False
) -> None:
    """Give all rules the definitions that they had in an earlier version.

    It is a new version: numbers go on, nothing of the history is lost, and
    rules that the earlier version did not have are deleted.

    \b
    Examples:
      buckets rules rollback 3 --conf conf/kafka.yaml --dry-run
      buckets rules rollback 3 --conf conf/kafka.yaml --author ann
    """  # noqa: D301 - click needs the backspace itself
    number = version_number(version)
    if number is None:
        message = f"{version!r} is no version of the rules; write its number, as in 3"
        raise BucketsError(message)
    job = load_job(conf)
    then = read_version(job, number)
    signed = author_and_reason(author, reason or f"rollback to version {number}")
    rules = rules_of(job, f"rules-of-version-{number}.yaml")
    asked = changes_back(rules.rules, then.rules, job.event_schema, **signed)
    revision = rules.revise(asked)
    if not revision.made:
        echo(f"no difference: the rules of {rules.name} are those of version {number} already")
        return
    subjects = [change.rule_id or "" for change in revision.made]
    title = f"Rules of version {number} into {rules.name}"
    Terminal().print(changes_table(title, subjects, revision.made, job.event_schema))
    if dry_run:
        echo(f"dry run: {len(revision.made)} rules would change; nothing has been written")
        return
    rules.publish(asked, revision)
    echo(f"{len(revision.made)} rules are changed in {rules.name}; the next batch makes a new version of them")
