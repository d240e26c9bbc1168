"""The option `--backfill` of `buckets rules apply`: asks the running job to fill in what rules have missed."""

from collections.abc import Sequence

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import BackfillRequest, BackfillRequests
from buckets.cli.console import echo
from buckets.clock import epoch_ms
from buckets.config.job import Job
from buckets.errors import BucketsError
from buckets.rules.change import RuleChange
from buckets.rules.revision import names
from buckets.rules.rule_set import RuleSet


def check_backfill(job: Job) -> None:
    """See that a job has something to fill in from.

    Raises:
        BucketsError: it has no archive, or has never run.
    """
    if job.settings.archive is None:
        message = (
            "--backfill: the configuration has no `archive` from which history could come; "
            "add `archive: {path: archive}`, start the job again, and apply the rules then"
        )
        raise BucketsError(message)
    if Checkpoint(job.checkpoint).versions.latest_rule_set() is None:
        message = (
            f"--backfill: checkpoint {job.checkpoint} holds no batch yet, so there is no history to fill in; "
            "apply the rules without it"
        )
        raise BucketsError(message)


def ask_for_backfill(job: Job, rule_set: RuleSet, asked: Sequence[RuleChange]) -> None:
    """Ask for the history of rules that are evaluated; says of the others why not."""
    subjects = {change.subject for change in asked}
    rules = [rule for rule in rule_set.rules if rule.rule_id in subjects]
    wanted = [rule for rule in rules if rule.is_evaluated and rule.on == "events"]
    others = [rule.rule_id for rule in rules if rule not in wanted]
    if others:
        echo(f"no history for {names(others)}: over alerts, or not evaluated", err=True)
    for rule in wanted:
        request = BackfillRequest(rule, asked[0].author, asked[0].reason, epoch_ms())
        BackfillRequests(job.checkpoint).ask(request)
    echo(f"the job is asked to fill in the history of {names(rule.rule_id for rule in wanted)}")
