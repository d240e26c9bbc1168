"""The command `buckets rules promote`: the next step of a rule's release, and what is known of the rule before it."""

from typing import Annotated

import typer

from buckets.changes.completion import expected_completion, read_completions
from buckets.changes.versions import trial_words
from buckets.cli.console import echo
from buckets.cli.options import Author, Reason, author_and_reason, read_option
from buckets.cli.rules.request import Conf, RuleId, rules_of
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.rules.change import RuleChange
from buckets.rules.policy import parse_share
from buckets.rules.release import STEPS, promoted, stage, stage_meaning
from buckets.rules.rule import State

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
