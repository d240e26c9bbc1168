"""The commands that list and change the rules of a job, `buckets snooze` among them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from buckets.changes.origin import JobRules, job_rules, listed_rule
from buckets.changes.snoozing import (
    ChangeOf,
    Key,
    new_snooze,
    read_moment,
    rules_with_snoozes,
    same_key,
    with_ended,
    with_snooze,
)
from buckets.changes.versions import changes_of, expected_completion, read_completions, read_version, trial_words
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import BackfillRequest, BackfillRequests
from buckets.cli.console import Terminal, TextTable, echo, echo_json, newest_of, print_table
from buckets.cli.options import AsJson, Author, DryRun, Reason, author_and_reason, key_of, read_option
from buckets.cli.result_file import check_new_file, write_or_print
from buckets.cli.rules.compare import version_number
from buckets.cli.rules.show import changes_table, history_table, rules_table
from buckets.clock import epoch_ms
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.json_text import write_json
from buckets.moment import moment_ms, time_text
from buckets.printable import one_line
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_files.yaml_rules import load_changes
from buckets.rules.change import Kind, RuleChange
from buckets.rules.revision import STEPS, names, promoted, stage, stage_meaning
from buckets.rules.revision import rollback as changes_back
from buckets.rules.rule import Rule, State, parse_share

Conf = Annotated[Path, typer.Option(help="The job's configuration, whose `rules` say where the rules are.")]
RuleId = Annotated[str, typer.Argument(metavar="RULE_ID", help="A rule, as `buckets rules list` names it.")]


def rules_of(job: Job, new_file: str = "") -> JobRules:
    """Return the rules where a job reads them; what is not valid among them is printed as an error."""
    return job_rules(job, new_file, partial(echo, err=True))


_STEPS = ", ".join(STEPS)


def promote(
    rule_id: RuleId,
    conf: Conf,
    to: Annotated[str | None, typer.Option(help=f"A state further on, of {_STEPS}; without it, the next one.")] = None,
    rollout: Annotated[
        str | None, typer.Option(help="Alert for this share of keys only, as in 10%; with ACTIVE.")
    ] = None,
    require_warm: Annotated[
        bool, typer.Option("--require-warm", help="Refuse while the rule is not complete.")
    ] = False,
    author: Author = None,
    reason: Reason = "",
) -> None:
    """Take a rule to the next step of its release, and say what is known of it.

    The steps are DRAFT (saved, not in force), SHADOW (on trial), ACTIVE with a
    rollout (alerts for a share of keys) and ACTIVE for all keys.

    Examples:
      buckets rules promote payer-24h --conf conf/kafka.yaml
      buckets rules promote payer-24h --conf conf/kafka.yaml --rollout 10% --require-warm
      buckets rules promote payer-24h --conf conf/kafka.yaml --to ACTIVE --reason "tried elsewhere"
    """
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
        message = f"--to: {text!r} is not a step of a release; write one of {_STEPS}"
        raise BucketsError(message)
    return state


Yes = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]


def _state_command(state: State, does: str, example: str) -> Callable[..., None]:
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

    change_state.__doc__ = f"{does}\n\nExamples:\n  buckets rules {example}\n"
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

    Examples:
      buckets rules clear-state payer-24h --conf conf/kafka.yaml --reason "test data"
    """
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


def _control_command(kind: Kind, what: str, does: str, example: str) -> Callable[..., None]:
    def control(conf: Conf, author: Author = None, reason: Reason = "", yes: Yes = False) -> None:
        rules = rules_of(load_job(conf))
        _send(rules, RuleChange(change=kind, **author_and_reason(author, reason)), what, yes)

    control.__doc__ = f"{does}\n\nFor rules in a topic.\n\nExamples:\n  buckets rules {example}\n"
    return control


clear_all_state = _control_command(
    "clear_all_state",
    "the timelines of all rules are cleared",
    "Clear the timelines of all rules.",
    'clear-all-state --conf conf/kafka.yaml --reason "test data"',
)
delete_all = _control_command(
    "delete_all",
    "all rules are deleted, and what they have kept of past events",
    "Delete all rules.",
    'delete-all --conf conf/kafka.yaml --reason "end of the pilot"',
)


def _send(rules: JobRules, change: RuleChange, what: str, yes: bool) -> None:
    if rules.takes_control and not yes and not typer.confirm(f"{what}; this cannot be taken back. Go on?"):
        message = "not confirmed; nothing has been sent"
        raise BucketsError(message)
    rules.send(change)
    echo(f"the job is told: {what}; sent to {rules.name}")


def apply(
    file: Annotated[Path, typer.Argument(help="A rule file, as in conf/demo-rules.yaml.")],
    conf: Conf,
    author: Author = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Let the running job fill in their history from its archive.")
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

    Examples:
      buckets rules apply new-rules.yaml --conf conf/kafka.yaml --dry-run
      buckets rules apply new-rules.yaml --conf conf/kafka.yaml --backfill
      buckets rules apply new-rules.yaml --conf conf/kafka.yaml --reason "limits of 2027"
    """
    job = load_job(conf)
    if backfill and job.settings.archive is None:
        message = (
            "--backfill: the configuration has no `archive` from which history could come; "
            "add `archive: {path: archive}`, start the job again, and apply the rules then"
        )
        raise BucketsError(message)
    if backfill and Checkpoint(job.checkpoint).versions.latest_rule_set() is None:
        message = (
            f"--backfill: checkpoint {job.checkpoint} holds no batch yet, so there is no history to fill in; "
            "apply the rules without it"
        )
        raise BucketsError(message)
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
    rules.publish(asked, revision.made)
    echo(f"{changed} are changed in {rules.name}")
    if backfill:
        _ask_for_backfill(job, [rule for rule in revision.rule_set.rules if rule.rule_id in subjects], asked[0])


def _ask_for_backfill(job: Job, rules: list[Rule], signed: RuleChange) -> None:
    """Ask for the history of rules that are evaluated; says of the others why not."""
    wanted = [rule for rule in rules if rule.is_evaluated and rule.on == "events"]
    others = [rule.rule_id for rule in rules if rule not in wanted]
    if others:
        echo(f"no history for {names(others)}: over alerts, or not evaluated", err=True)
    for rule in wanted:
        request = BackfillRequest(rule, signed.author, signed.reason, epoch_ms())
        BackfillRequests(job.checkpoint).ask(request)
    echo(f"the job is asked to fill in the history of {names(rule.rule_id for rule in wanted)}")


def list_rules(conf: Conf, as_json: AsJson = False) -> None:
    """Show the rules where a job reads them, and since when each is complete.

    A rule is complete for events whose windows reach no further back than what
    is kept for it; "complete" alone means since the first event. Times are
    event times in UTC.

    Examples:
      buckets rules list --conf conf/kafka.yaml
      buckets rules list --conf conf/kafka.yaml --json
    """
    job = load_job(conf)
    rules = rules_of(job)
    completions = read_completions(job, rules.rules)
    if as_json:
        echo_json([listed_rule(kept, completions[kept.rule.rule_id]) for kept in rules.kept])
        return
    title = one_line(f"{len(rules.kept)} rules of {rules.name}")
    print_table(rules_table(title, rules.kept, completions), f"no rules in {rules.name}")


def history(
    conf: Conf,
    rule_id: Annotated[str | None, typer.Argument(metavar="[RULE_ID]", help="A rule; all rules by default.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest changes to show.")] = 50,
) -> None:
    """Show what has changed in the rules of a job, newest first: by whom, why, and from which batch on.

    Examples:
      buckets rules history --conf conf/kafka.yaml
      buckets rules history payer-24h --conf conf/kafka.yaml
    """
    job = load_job(conf)
    wanted = changes_of(job, rule_id)
    of = f" of rule {rule_id}" if rule_id is not None else ""
    table = history_table(newest_of(wanted, limit, f"changes{of}"), wanted[:limit])
    print_table(table, f"no changes{of} yet in checkpoint {job.checkpoint}")


def export(
    conf: Conf,
    out: Annotated[Path | None, typer.Option(help="A new file; by default the rules are printed.")] = None,
) -> None:
    """Write the rules, as a job reads them, as a rule file that can be applied elsewhere.

    Examples:
      buckets rules export --conf conf/kafka.yaml
      buckets rules export --conf conf/kafka.yaml --out rules-of-today.yaml
    """
    check_new_file(out)
    kept = rules_of(load_job(conf))
    if not kept.rules:
        message = f"there are no rules in {kept.name}; put some there with `buckets rules apply FILE --conf {conf}`"
        raise BucketsError(message)
    write_or_print(out, rules_text(kept.rules), f"{len(kept.rules)} rules of {kept.name} are in {out}")


def rollback(
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="A version of all rules, as `rules history` counts them.")
    ],
    conf: Conf,
    author: Author = None,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> None:
    """Give all rules the definitions that they had in an earlier version.

    This makes a new version, and the history is kept. Rules that the earlier
    version did not have are deleted.

    Examples:
      buckets rules rollback 3 --conf conf/kafka.yaml --dry-run
      buckets rules rollback 3 --conf conf/kafka.yaml --author ann
    """
    number = version_number(version)
    if number is None:
        message = f"{version!r} is not a version of the rules; write its number, as in 3"
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
    rules.publish(asked, revision.made)
    echo(f"{len(revision.made)} rules are changed in {rules.name}; the next batch makes a new version of them")


def snooze(
    conf: Conf,
    rule: Annotated[str | None, typer.Option(help="A rule; by default every rule that groups by the key.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="FIELD=VALUE,FIELD=VALUE or JSON; all keys of the rule by default.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="When it ends, by event time: ISO 8601, or from now, as in 24h.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="When it begins, in the same form; by default it has no beginning.")
    ] = None,
    author: Author = None,
    reason: Reason = "",
    list_: Annotated[bool, typer.Option("--list", help="List snoozes, in force and over; change nothing.")] = False,
    end: Annotated[bool, typer.Option("--end", help="End snoozes of the rule or the key, now or at --until.")] = False,
) -> None:
    """Hold back the alerts of a rule, or of one key, until a time; `held_alerts` keeps them.

    It is a change of the rule like any other, with author and reason, from the
    next batch on. Times are event times.

    Examples:
      buckets snooze --rule payer-24h --key payerId=p-17 --until 24h --reason "moves house" --conf conf/kafka.yaml
      buckets snooze --rule payer-24h --until 2027-01-02T06:00Z --reason "new year" --conf conf/kafka.yaml
      buckets snooze --key '{"payerId": "p,17"}' --until 7d --reason "test of the bank" --conf conf/kafka.yaml
      buckets snooze --list --conf conf/kafka.yaml
      buckets snooze --end --rule payer-24h --key payerId=p-17 --reason "has moved" --conf conf/kafka.yaml
    """
    if list_ and end:
        message = "--list shows snoozes and --end ends them; give one of the two"
        raise BucketsError(message)
    job, now = load_job(conf), datetime.now(UTC).replace(microsecond=0)
    if len(key or ()) > 1:
        message = "--key is given more than once; write FIELD=VALUE,FIELD=VALUE for one key, and a command for each"
        raise BucketsError(message)
    wanted = None if not key else key_of(key[0], job.event_schema.attributes)
    if list_:
        _list(job, rule, wanted, now)
        return
    if rule is None and wanted is None:
        message = "name a rule with --rule, a key with --key, or both; --list shows the snoozes there are"
        raise BucketsError(message)
    if not end and until is None:
        message = "--until: when is it over? Write a time, as in 2027-01-02T06:00Z, or how long from now, as in 24h"
        raise BucketsError(message)
    signed = author_and_reason(author, reason)
    of = _key_text(wanted)
    last = now if until is None else read_option("--until", until, lambda text: read_moment(text, now))
    if end:
        what = f"snoozes of {of} end at {_shown(last)}"
        _change(job, rule, wanted, signed, lambda kept: with_ended(kept, wanted, last), what)
        return
    asked = {
        "key": wanted,
        "from": None if start is None else read_option("--from", start, lambda text: read_moment(text, now)),
        "until": last,
    }
    new = new_snooze(asked | signed)
    what = f"alerts of {of} are held back until {_shown(last)}"
    _change(job, rule, wanted, signed, lambda kept: with_snooze(kept, new, now), what)


def _change(
    job: Job, rule_id: str | None, key: Key | None, signed: dict[str, Any], change_of: ChangeOf, what: str
) -> None:
    kept = rules_of(job)
    changed = rules_with_snoozes(kept, job.event_schema, rule_id, key, change_of)
    kept.change([RuleChange(change="put", rule=rule, **signed) for rule in changed])
    echo(f"{names(rule.rule_id for rule in changed)}: {what}, from the next batch on; written to {kept.name}")


def _list(job: Job, rule_id: str | None, key: Key | None, now: datetime) -> None:
    rules = rules_of(job)
    columns = ("Rule", "Key", "From (UTC)", "Until (UTC)", "Now", "Author", "Reason")
    table = TextTable(one_line(f"Snoozes of {rules.name}"), columns)
    for rule in rules.rules:
        for snooze in rule.snoozes if rule_id in (None, rule.rule_id) else ():
            if key is None or same_key(snooze.key, key):
                is_begun = snooze.start is None or snooze.start <= now
                state = "over" if snooze.until <= now else "in force" if is_begun else "to come"
                start = "" if snooze.start is None else _shown(snooze.start)
                cells = [rule.rule_id, _key_text(snooze.key), start, _shown(snooze.until), state]
                table.add_row(*map(Text, [*cells, snooze.author, snooze.reason]))
    print_table(table, f"no such snoozes in {rules.name}" if rule_id or key else f"no snoozes in {rules.name}")


def _key_text(key: Mapping[str, str | int | bool] | None) -> str:
    if key is None:
        return "all keys"
    return one_line(", ".join(f"{field} {write_json(value)}" for field, value in key.items()))


def _shown(moment: datetime) -> str:
    return time_text(moment_ms(moment))
