"""The steps in which a rule comes into force, and the way back to an earlier version of the rules.

DRAFT ──► SHADOW ──► ACTIVE with a rollout ──► ACTIVE for all keys
"""

from collections.abc import Iterable
from typing import Any, Final

from buckets.events.schema import EventSchema
from buckets.rules.change import RuleChange
from buckets.rules.revision import in_one_form
from buckets.rules.rule import WHOLE_SHARE, Rule, State, share_text

STEPS: Final[tuple[State, ...]] = ("DRAFT", "SHADOW", "ACTIVE")  # The states of a release, in their order
MEANINGS: Final[dict[str, str]] = {
    "DRAFT": "it is known, and not in force: nothing is kept or evaluated for it",
    "SHADOW": "it is evaluated for every event, and its alerts go to shadow_alerts only",
    "ACTIVE": "it is evaluated for every event, and alerts",
}


def stage(rule: Rule) -> str:
    """Return how far a rule is released: its state, and the share of keys where that is not all."""
    is_part = rule.state == "ACTIVE" and rule.rollout != WHOLE_SHARE
    return f"ACTIVE with rollout {share_text(rule.rollout)}" if is_part else rule.state


def stage_meaning(rule: Rule) -> str:
    """Return what the stage of a rule means."""
    is_part = rule.state == "ACTIVE" and rule.rollout != WHOLE_SHARE
    of_keys = f" for {share_text(rule.rollout)} of keys, always the same ones" if is_part else ""
    return f"{MEANINGS[rule.state]}{of_keys}"


def promoted(rule: Rule, to: State | None = None, rollout: int | None = None) -> Rule:
    """Return a rule after its next step, or after all steps up to a state; ValueError says why there is no such step.

    `rollout` is the share of keys in which it alerts then, in hundredths of a per cent; None for the share that it
    names, or all keys where it alerts already.
    """
    if rule.state not in STEPS:
        message = f"is {rule.state}; a release has the steps DRAFT, SHADOW, ACTIVE: `buckets rules resume` it first"
        raise ValueError(message)
    if rule.state == "ACTIVE" and rule.rollout == WHOLE_SHARE:
        message = "is ACTIVE for all keys already, which is the last step"
        raise ValueError(message)
    at = STEPS.index(rule.state)
    wanted = to or STEPS[min(at + 1, len(STEPS) - 1)]
    if STEPS.index(wanted) < at or (wanted == rule.state and wanted != "ACTIVE"):
        message = f"is {stage(rule)} already; promote goes forward, and `buckets rules apply` back to an earlier state"
        raise ValueError(message)
    if wanted != "ACTIVE":
        if rollout is not None:
            message = f"goes to {wanted}, where no share of keys counts; --rollout goes with the step to ACTIVE"
            raise ValueError(message)
        return rule.model_copy(update={"state": wanted})
    if rule.state != "ACTIVE":
        return rule.model_copy(update={"state": wanted, "rollout": rule.rollout if rollout is None else rollout})
    share = WHOLE_SHARE if rollout is None else rollout
    if share <= rule.rollout:
        message = f"is {stage(rule)}, and {share_text(share)} is not more; name a larger share, or none for all keys"
        raise ValueError(message)
    return rule.model_copy(update={"rollout": share})


def rollback(now: Iterable[Rule], then: Iterable[Rule], schema: EventSchema, **said: Any) -> list[RuleChange]:
    """Return the changes, said by an author for a reason, that give rules the definitions of an earlier version.

    Versions of rules are never used again: a rule that changes back gets the number after its last one.
    """
    there = {rule.rule_id: rule for rule in now}
    wanted = {rule.rule_id: rule for rule in then}
    changes = [RuleChange(change="delete", rule_id=rule_id, **said) for rule_id in there if rule_id not in wanted]
    for rule_id, rule in wanted.items():
        old = there.get(rule_id)
        if old is None or not same_definition(rule, old, schema):
            back = rule.model_copy(update={"version": 1 if old is None else old.version})
            if old is not None and in_one_form(old, schema).where == in_one_form(rule, schema).where:
                back = back.model_copy(update={"where": old.where})  # as people have written it
            changes.append(RuleChange(change="put", rule=back, **said))
    return changes


def same_definition(one: Rule, other: Rule, schema: EventSchema) -> bool:
    """Return whether two rules say the same, but for their versions and the way in which filters are written."""
    return in_one_form(one.model_copy(update={"version": other.version}), schema) == in_one_form(other, schema)
