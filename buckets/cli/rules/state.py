"""The commands of `buckets rules` that change the state of a rule, or tell the running job to forget something."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from buckets.changes.origin import JobRules
from buckets.cli.console import echo
from buckets.cli.options import Author, Reason, author_and_reason
from buckets.cli.rules.request import Conf, RuleId, rules_of
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.rules.change import Kind, RuleChange
from buckets.rules.revision import names
from buckets.rules.rule import State
from buckets.rules.rule_set import first_rule_set

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
        rules = first_rule_set(kept.rules)
        groups = (*rules.groups, *rules.alert_groups)
        shared = names({other.rule_id for group in groups if rule in group.rules for other in group.rules})
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
    """Ask before something that cannot be taken back, and send it.

    Raises:
        BucketsError: the answer is no, or the rules are kept where no message can be sent.
    """
    if rules.takes_control and not yes and not typer.confirm(f"{what}; this cannot be taken back. Go on?"):
        message = "not confirmed; nothing has been sent"
        raise BucketsError(message)
    rules.send(change)
    echo(f"the job is told: {what}; sent to {rules.name}")
