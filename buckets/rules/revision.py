"""Applies changes to a rule set: returns the next rule set, and a record of each change.

A rule comes into force in steps: DRAFT, SHADOW, ACTIVE for a share of keys, then for all. Rules can also roll back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from buckets.events.schema import EventSchema
from buckets.rules.change import Kind, RuleChange, needs_put
from buckets.rules.completeness import Stretches
from buckets.rules.feature import schema_on
from buckets.rules.filter import canonical_filter
from buckets.rules.flink_message import check_against_schema
from buckets.rules.group import Group
from buckets.rules.rule import LARGEST_VERSION, WHOLE_SHARE, Rule, State, share_text
from buckets.rules.rule_set import RuleSet, next_rule_set
from buckets.validation import field_name


@dataclass(frozen=True)
class Refusal:
    """A refused change."""

    origin: str  # where it was read
    reason: str  # why it was refused
    raw: str  # the message, file or row


@dataclass(frozen=True)
class Change:
    """A change that was made, as history keeps it."""

    # what was done: `put`, `state`, `delete`, `clear_state`, `clear_all_state`; `backfill` where the history of a rule
    # began to be filled in, `backfilled` where it was complete
    change: Kind | Literal["backfill", "backfilled"]
    rule_id: str | None  # the rule; None where all timelines were cleared
    rule_version: int | None  # its version after the change, or its last one
    before: Rule | None  # the rule as it was, None if it is new
    after: Rule | None  # the rule as it is, None if it is gone
    author: str  # who asked for it
    reason: str  # why
    time: int | None  # when it was asked for, in ms since the epoch, if known
    origin: str  # where it was read


@dataclass
class Revision:
    """The result of changing a rule set."""

    rule_set: RuleSet  # the new rule set; the old one if nothing has changed
    made: list[Change] = field(default_factory=list)  # the changes that were made, in order
    refused: list[Refusal] = field(default_factory=list)  # those that were refused
    export: bool = False  # whether an export of the rules was asked for


NOTHING_GONE: Mapping[str, int] = MappingProxyType({})


def deleted(made: Iterable[Change]) -> dict[str, int]:
    """Return the last version of each deleted rule."""
    return {
        change.rule_id: change.rule_version
        for change in made
        if change.rule_id is not None and change.rule_version is not None and change.after is None
    }


def revise(
    before: RuleSet,
    asked: Iterable[RuleChange],
    schema: EventSchema,
    arrived: Stretches,
    lateness_ms: int,
    gone: Mapping[str, int] = NOTHING_GONE,
    fault: Callable[[Rule], str | None] = lambda rule: None,
) -> Revision:
    """Make changes to a rule set, in order; a change that cannot be made is refused and changes nothing.

    A change without effect is skipped: the same rule put again, a state that the rule has, the deletion of a missing
    rule. So a message may be repeated, and a topic may be read again.

    Args:
        before: the rule set in force.
        asked: the changes that are asked for.
        schema: the event schema, which knows the fields that rules may name.
        arrived: the event times that have arrived.
        lateness_ms: the allowed lateness.
        gone: the last version of each rule that was deleted; if a rule comes back, its version goes on from there.
        fault: what is wrong with a rule under the settings of the job; None if nothing is.
    """
    draft = _Draft(before, schema, gone, fault)
    revision = Revision(before)
    for change in asked:
        if change.change == "export":
            revision.export = True
            continue
        try:
            revision.made += draft.make(change)
        except ValueError as error:
            revision.refused.append(Refusal(change.origin, str(error), change.to_json()))
    if revision.made:
        rules = draft.rules.values()
        revision.rule_set = next_rule_set(before, rules, arrived, lateness_ms, draft.is_cleared)
    return revision


class _Draft:
    def __init__(
        self,
        before: RuleSet,
        schema: EventSchema,
        gone: Mapping[str, int],
        fault: Callable[[Rule], str | None],
    ) -> None:
        self.rules = {rule.rule_id: rule for rule in before.rules}
        self._identities = before.identities
        self._fault = fault
        self._gone = dict(gone)
        self._schema = schema
        self._cleared: set[str] = set()
        self._all_cleared = False

    def is_cleared(self, group: Group) -> bool:
        """Return whether the timelines of a group restart."""
        return self._all_cleared or group.group_id in self._cleared

    def make(self, change: RuleChange) -> list[Change]:
        """Apply a change; ValueError if it cannot be made."""
        makers: dict[str, Callable[[RuleChange], list[Change]]] = {
            "put": self._put,
            "state": self._set_state,
            "delete": lambda change: self._remove(change, change.rule_id) if change.rule_id in self.rules else [],
            "clear_state": self._clear,
            "clear_all_state": self._clear_all,
            "delete_all": lambda change: [
                made for rule_id in list(self.rules) for made in self._remove(change, rule_id)
            ],
        }
        return makers[change.change](change)

    def _put(self, change: RuleChange) -> list[Change]:
        rule = change.rule
        assert rule is not None
        if rule.state == "DELETE":
            return self._remove(change, rule.rule_id) if rule.rule_id in self.rules else []
        fault = check_against_schema(rule, self._schema)
        if fault is not None:
            message = f"{field_name(fault[0])}: {fault[1]}"
            raise ValueError(message)
        of_settings = self._fault(rule)
        if of_settings is not None:
            raise ValueError(of_settings)
        rule = in_one_form(rule, self._schema)
        there = self.rules.get(rule.rule_id)
        if there is not None and not needs_put(in_one_form(there, self._schema), rule):
            return []
        return [self._replace(change, rule)]

    def _set_state(self, change: RuleChange) -> list[Change]:
        rule, state = self._there(change), change.state
        return [] if rule.state == state else [self._replace(change, rule.model_copy(update={"state": state}))]

    def _replace(self, change: RuleChange, rule: Rule) -> Change:
        """Put a rule in place of the one with its id, if any, past or present, and with a higher version."""
        there = self.rules.get(rule.rule_id)
        last = there.version if there is not None else self._gone.get(rule.rule_id, 0)
        if rule.version <= last:
            rule = rule.model_copy(update={"version": last + 1})
        if rule.version > LARGEST_VERSION:
            message = f"rule.version: {rule.version} is more than {LARGEST_VERSION}; put the rule under another rule_id"
            raise ValueError(message)
        self.rules[rule.rule_id] = rule
        # A whole rule may have been put to change its state.
        kind: Kind = "put"
        if there is not None and there.state != rule.state:
            same = there.model_copy(update={"state": rule.state, "version": rule.version})
            kind = "state" if same == rule else "put"
        return _made(change, there, rule, kind)

    def _remove(self, change: RuleChange, rule_id: str) -> list[Change]:
        gone = self.rules.pop(rule_id)
        self._gone[rule_id] = gone.version
        return [_made(change, gone, None, kind="delete")]

    def _clear(self, change: RuleChange) -> list[Change]:
        rule = self._there(change)
        if rule.state == "DRAFT":
            message = f"rule {rule.rule_id!r} is a DRAFT, which keeps nothing that could be cleared"
            raise ValueError(message)
        self._cleared.update(self._identities(rule))
        return [_made(change, rule, rule)]

    def _clear_all(self, change: RuleChange) -> list[Change]:
        self._all_cleared = True
        return [_made(change, None, None)]

    def _there(self, change: RuleChange) -> Rule:
        rule = self.rules.get(change.rule_id or "")
        if rule is None:
            message = f"there is no rule {change.rule_id!r}; rules in force: {names(self.rules)}"
            raise ValueError(message)
        return rule


def in_one_form(rule: Rule, schema: EventSchema) -> Rule:
    """Return a rule in its form in force: one form of filters and groups, however they are written.

    `100`, `"100.00"` and `1e2` are one amount. A rule that does not fit the event schema is returned unchanged.
    """
    features = dict(rule.features)
    try:
        for name, feature in rule.features.items():
            if feature.where is not None:
                where = canonical_filter(feature.where, schema_on(feature.on or rule.on, schema))
                features[name] = feature.model_copy(update={"where": where})
        where = canonical_filter(rule.where, schema_on(rule.on, schema))
        return rule.model_copy(update={"where": where, "features": features})
    except ValueError:  # of another event schema
        return rule


def names(rule_ids: Iterable[str]) -> str:
    """Name the first ten rules, and how many more there are."""
    ordered = sorted(rule_ids)
    more = f" and {len(ordered) - 10} more" if len(ordered) > 10 else ""
    return f"{', '.join(ordered[:10]) or 'none'}{more}"


def _made(change: RuleChange, before: Rule | None, after: Rule | None, kind: Kind | None = None) -> Change:
    rule = after or before
    rule_id, version = (None, None) if rule is None else (rule.rule_id, rule.version)
    asked = (change.author, change.reason, change.time, change.origin)
    return Change(kind or change.change, rule_id, version, before, after, *asked)


STEPS: Final[tuple[State, ...]] = ("DRAFT", "SHADOW", "ACTIVE")  # The states of a release, in their order
MEANINGS: Final[dict[str, str]] = {
    "DRAFT": "it is saved but not in force: nothing is stored or evaluated for it",
    "SHADOW": "it is evaluated for every event, and its alerts go to shadow_alerts only",
    "ACTIVE": "it is evaluated for every event, and alerts",
}


def stage(rule: Rule) -> str:
    """Return the stage of a rule's release: its state, and the share of keys unless it is all."""
    is_part = rule.state == "ACTIVE" and rule.rollout != WHOLE_SHARE
    return f"ACTIVE with rollout {share_text(rule.rollout)}" if is_part else rule.state


def stage_meaning(rule: Rule) -> str:
    """Return the meaning of a rule's stage."""
    is_part = rule.state == "ACTIVE" and rule.rollout != WHOLE_SHARE
    of_keys = f" for {share_text(rule.rollout)} of keys, always the same ones" if is_part else ""
    return f"{MEANINGS[rule.state]}{of_keys}"


def promoted(rule: Rule, to: State | None = None, rollout: int | None = None) -> Rule:
    """Return a rule after its next step, or after all steps up to a state; ValueError if there is none.

    `rollout` is the share of keys for its alerts, in hundredths of a per cent; None for the share that the rule names,
    or for all keys if it alerts already.
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
    """Return the changes, with author and reason, that restore the definitions of an earlier version.

    Versions of rules are never reused: a restored rule gets the number after its last one.
    """
    there = {rule.rule_id: rule for rule in now}
    wanted = {rule.rule_id: rule for rule in then}
    changes = [RuleChange(change="delete", rule_id=rule_id, **said) for rule_id in there if rule_id not in wanted]
    for rule_id, rule in wanted.items():
        old = there.get(rule_id)
        if old is None or not same_definition(rule, old, schema):
            back = rule.model_copy(update={"version": 1 if old is None else old.version})
            if old is not None and in_one_form(old, schema).where == in_one_form(rule, schema).where:
                back = back.model_copy(update={"where": old.where})  # as written by people
            changes.append(RuleChange(change="put", rule=back, **said))
    return changes


def same_definition(one: Rule, other: Rule, schema: EventSchema) -> bool:
    """Return whether two rules are equal except for their versions and the spelling of filters."""
    return in_one_form(one.model_copy(update={"version": other.version}), schema) == in_one_form(other, schema)
