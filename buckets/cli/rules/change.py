"""The commands of `buckets rules` that change the rules of a job, and the options that they share."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from buckets.changes.origin import JobRules, job_rules
from buckets.changes.versions import changes_of, expected_completion, read_completions, read_version, trial_words
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import BackfillRequest, BackfillRequests
from buckets.cli.console import Terminal, echo, newest_of, print_table
from buckets.cli.options import Author, DryRun, Reason, author_and_reason, read_option
from buckets.cli.result_file import check_new_file, write_or_print
from buckets.cli.rules.compare import version_number
from buckets.cli.rules.show import changes_table, history_table
from buckets.clock import epoch_ms
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_files.yaml_rules import load_changes
from buckets.rules.change import Kind, RuleChange
from buckets.rules.revision import STEPS, names, promoted, stage, stage_meaning
from buckets.rules.revision import rollback as changes_back
from buckets.rules.rule import State, parse_share
from buckets.rules.rule_set import RuleSet

Conf = Annotated[
    Path, typer.Option(help="The job's configuration: its `rules` say where the rules are, a topic, a file or a table.")
]
RuleId = Annotated[str, typer.Argument(metavar="RULE_ID", help="A rule, as `buckets rules list` names it.")]


def rules_of(job: Job, new_file: str = "") -> JobRules:
    """Return the rules where a job reads them; what is not valid among them is printed as an error."""
    return job_rules(job, new_file, partial(echo, err=True))


_STEPS = ", ".join(STEPS)
To = Annotated[str | None, typer.Option(help=f"A state further on, of {_STEPS}; without it, the next one.")]
Rollout = Annotated[str | None, typer.Option(help="Alert for this share of keys only, as in 10%; with ACTIVE.")]
RequireWarm = Annotated[bool, typer.Option("--require-warm", help="Refuse while the rule is not complete.")]


def promote(
    rule_id: RuleId,
    conf: Conf,
    to: To = None,
    rollout: Rollout = None,
    require_warm: RequireWarm = False,
    author: Author = None,
    reason: Reason = "",
) -> None:
    """Take a rule to the next step of its release, and say what is known of it.

    The steps are DRAFT (known, not in force), SHADOW (on trial), ACTIVE with a
    rollout (alerts for a share of keys) and ACTIVE for all keys.

    \b
    Examples:
      buckets rules promote payer-24h --conf conf/kafka.yaml
      buckets rules promote payer-24h --conf conf/kafka.yaml --rollout 10% --require-warm
      buckets rules promote payer-24h --conf conf/kafka.yaml --to ACTIVE --reason "tried elsewhere"
    """  # noqa: D301 - click needs the backspace itself
    wanted, share = _state(to), None if rollout is None else read_option("--rollout", rollout, parse_share)
    signed = author_and_reason(author, reason)
    job = load_job(conf)
    rules = rules_of(job)
    before = rules.rule(rule_id)
    try:
        after = promoted(before, wanted, share)
    except ValueError as error:
        message = f"rule {rule_id!r} of {rules.name} {error}"
        raise BucketsError(message) from None
    completion = read_completions(job, [before])[rule_id]
    if require_warm and not completion.is_complete:
        remedy = "wait, or leave out --require-warm"
        message = f"rule {rule_id!r} of {rules.name} is not complete: {completion.words}; {remedy}"
        raise BucketsError(message)
    rules.change([RuleChange(change="put", rule=after, **signed)])
    echo(f"{rule_id}: {stage(before)} until now, {stage(after)} from the next batch on; written to {rules.name}")
    echo(f"what it means: {stage_meaning(after)}")
    shown = completion if completion.warmth is not None else expected_completion(job, after)
    echo(f"its windows: {shown.words}")
    if before.state == "SHADOW":
        echo(f"its trial: {trial_words(job, before)}")


def _state(text: str | None) -> State | None:
    state = next((state for state in STEPS if text is not None and state == text.upper()), None)
    if text is not None and state is None:
        message = f"--to: {text!r} is no step of a release; write one of {_STEPS}"
        raise BucketsError(message)
    return state


Yes = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]


def _state_command(state: State, does: str, example: str) -> Callable[..., None]:
    """Return a command that gives a rule another state, or deletes it."""

    def change_state(rule_id: RuleId, conf: Conf, author: Author = None, reason: Reason = "") -> None:
        rules = rules_of(load_job(conf))
        signed = author_and_reason(author, reason)
        before = rules.rule(rule_id)
        change = RuleChange(change="delete", rule_id=rule_id, **signed)
        if state != "DELETE":
            change = RuleChange(change="state", rule_id=rule_id, state=state, **signed)
        if not rules.change([change]).made:
            echo(f"{rule_id} is {state} already in {rules.name}")
            return
        after = "deleted" if state == "DELETE" else state
        echo(f"{rule_id}: {before.state} until now, {after} from the next batch on; written to {rules.name}")

    change_state.__doc__ = f"{does}\n\n\b\nExamples:\n  buckets rules {example}\n"
    return change_state


pause = _state_command(
    "PAUSE",
    "Pause a rule: its events are still kept, so that it can resume at once, but it is not evaluated.",
    'pause payer-24h --conf conf/kafka.yaml --reason "too many alerts"',
)
resume = _state_command(
    "ACTIVE", "Resume a rule: it is evaluated again, and alerts.", "resume payer-24h --conf conf/kafka.yaml"
)
shadow = _state_command(
    "SHADOW",
    "Put a rule on trial: it is evaluated, and its alerts go to `shadow_alerts` only.",
    'shadow payer-24h --conf conf/kafka.yaml --reason "new limit on trial"',
)
delete = _state_command(
    "DELETE",
    "Delete a rule; what it alone has kept of past events is evicted.",
    'delete payer-24h --conf conf/kafka.yaml --reason "replaced by payer-48h"',
)


def clear_state(rule_id: RuleId, conf: Conf, author: Author = None, reason: Reason = "", yes: Yes = False) -> None:
    """Clear the timelines of a rule's group, which all rules of the group share.

    For rules in a topic.

    \b
    Examples:
      buckets rules clear-state payer-24h --conf conf/kafka.yaml --reason "test data"
    """  # noqa: D301 - click needs the backspace itself
    kept = rules_of(load_job(conf))
    change = RuleChange(change="clear_state", rule_id=rule_id, **author_and_reason(author, reason))
    what = ""
    if kept.takes_control:
        rule = kept.rule(rule_id)
        if not rule.is_in_force:
            message = f"rule {rule_id!r} of {kept.name} is a DRAFT, which keeps nothing that could be cleared"
            raise BucketsError(message)
        groups = [
            {rule.rule_id for rule in group.rules} for group in (*kept.rule_set.groups, *kept.rule_set.alert_groups)
        ]
        shared = names(set().union(*(group for group in groups if rule_id in group)))
        what = f"the timelines of {shared} are cleared"
    _send(kept, change, what, yes)


def clear_all_state(conf: Conf, author: Author = None, reason: Reason = "", yes: Yes = False) -> None:
    """Clear the timelines of all rules.

    For rules in a topic.

    \b
    Examples:
      buckets rules clear-all-state --conf conf/kafka.yaml --reason "test data"
    """  # noqa: D301 - click needs the backspace itself
    _control("clear_all_state", "the timelines of all rules are cleared", conf, author, reason, yes)


def delete_all(conf: Conf, author: Author = None, reason: Reason = "", yes: Yes = False) -> None:
    """Delete all rules.

    For rules in a topic.

    \b
    Examples:
      buckets rules delete-all --conf conf/kafka.yaml --reason "end of the pilot"
    """  # noqa: D301 - click needs the backspace itself
    _control("delete_all", "all rules are deleted, and what they have kept of past events", conf, author, reason, yes)


def _control(kind: Kind, what: str, conf: Path, author: str | None, reason: str, yes: bool) -> None:
    """Send a message about all rules."""
    rules = rules_of(load_job(conf))
    _send(rules, RuleChange(change=kind, **author_and_reason(author, reason)), what, yes)


def _send(rules: JobRules, change: RuleChange, what: str, yes: bool) -> None:
    """Ask before something that cannot be taken back, and send it."""
    if rules.takes_control and not yes and not typer.confirm(f"{what}; this cannot be taken back. Go on?"):
        message = "not confirmed; nothing has been sent"
        raise BucketsError(message)
    rules.send(change)
    echo(f"the job is told: {what}; sent to {rules.name}")


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
    table = history_table(newest_of(wanted, limit, f"changes{of}"), wanted[:limit])
    print_table(table, f"no changes{of} yet in checkpoint {job.checkpoint}")


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
