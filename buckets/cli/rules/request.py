"""What the commands that change rules share: their options, and the rules as they read them."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from buckets.changes.origin import JobRules
from buckets.cli.console import echo
from buckets.config.job import Job

Conf = Annotated[
    Path, typer.Option(help="The job's configuration: its `rules` say where the rules are, a topic, a file or a table.")
]
RuleId = Annotated[str, typer.Argument(metavar="RULE_ID", help="A rule, as `buckets rules list` names it.")]


def rules_of(job: Job, new_file: str = "") -> JobRules:
    """Return the rules where a job reads them; what is not valid among them is printed as an error."""
    return JobRules(job, new_file, partial(echo, err=True))
