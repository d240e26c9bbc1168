"""What can be done to rules, each as a plan: the changes that it asks for, and what to say before they are made."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from buckets.changes.drafts import draft_of
from buckets.changes.origin import JobRules
from buckets.changes.snoozing import Key, new_snooze, read_key, read_moment, rules_with_snoozes, with_ended, with_snooze
from buckets.changes.typed_rule import read_rule
from buckets.changes.versions import expected_completion, read_version, trial_words
from buckets.config.settings import Role
from buckets.console.view import Site, address
from buckets.errors import BucketsError
from buckets.moment import moment_ms, time_text
from buckets.printable import counted, key_words
from buckets.rules.change import RuleChange
from buckets.rules.release import STEPS, promoted, rollback, stage, stage_meaning
from buckets.rules.rule import Rule, State, parse_share


@dataclass(frozen=True)
class Signed:
    """Who asks for a change, and why."""

    author: str
    reason: str


@dataclass(frozen=True)
class ChangePlan:
    """Changes that are asked for."""

    title: str  # what is to be done
    asked: list[RuleChange]  # the changes
    notes: list[str] = field(default_factory=list)  # what else there is to know before they are made
    back: str = "/rules"  # the page that is shown when they are


Fields = Mapping[str, str]
Planner = Callable[[Site, JobRules, Fields, Signed], ChangePlan]


def _promote(site: Site, rules: JobRules, fields: Fields, signed: Signed) -> ChangePlan:
    """Take a rule to its next step, or to the one that is named."""
    before = rules.rule(fields.get("id", ""))
    wanted = next((step for step in STEPS if step == fields.get("to", "")), None)
    try:
        share = parse_share(fields["rollout"]) if fields.get("rollout") else None
        after = promoted(before, wanted, share)
    except ValueError as error:
        message = f"rule {before.rule_id!r} {error}"
        raise BucketsError(message) from None
    notes = [f"What it means: {stage_meaning(after)}.", _windows(site, after)]
    notes += [f"Its trial: {trial_words(site.job, before)}."] if before.state == "SHADOW" else []
    title = f"{before.rule_id}: {stage(before)} now, {stage(after)} from the next batch on"
    return ChangePlan(title, [RuleChange(change="put", rule=after, **vars(signed))], notes, _page_of(before))


def _state(state: State) -> Planner:
    """Return what gives a rule another state."""

    def plan(site: Site, rules: JobRules, fields: Fields, signed: Signed) -> ChangePlan:
        before = rules.rule(fields.get("id", ""))
        after = before.model_copy(update={"state": state})
        notes = {
            "PAUSE": "Its events are still kept, so that it can resume at once, but it is not evaluated.",
            "SHADOW": f"What it means: {stage_meaning(after) if state != 'PAUSE' else ''}.",
            "ACTIVE": f"What it means: {stage_meaning(after) if state != 'PAUSE' else ''}.",
        }
        title = f"{before.rule_id}: {before.state} now, {state} from the next batch on"
        change = RuleChange(change="state", rule_id=before.rule_id, state=state, **vars(signed))
        return ChangePlan(title, [change], [notes[state], _windows(site, after)], _page_of(before))

    return plan


def _roll_back(site: Site, rules: JobRules, fields: Fields, signed: Signed) -> ChangePlan:
    """Give all rules the definitions of an earlier version."""
    text = fields.get("version", "")
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        message = f"version: {text!r} is no version of the rules; take one of their history"
        raise BucketsError(message)
    then = read_version(site.job, int(text))
    asked = rollback(rules.rules, then.rules, site.job.event_schema, **vars(signed))
    notes = ["It is a new version: numbers go on, and nothing of the history is lost."]
    return ChangePlan(f"All rules as they were in version {int(text)}", asked, notes)


def _snooze(site: Site, rules: JobRules, fields: Fields, signed: Signed) -> ChangePlan:
    """Hold back the alerts of a rule, or of one key of it, until a time."""
    now, rule = _now(), rules.rule(fields.get("id", ""))
    try:
        until = read_moment(fields.get("until", ""), now)
        key = _key(site, fields)
    except ValueError as error:
        raise BucketsError(str(error)) from None
    new = new_snooze({"key": key, "until": until, "author": signed.author, "reason": signed.reason or "not said yet"})
    changed = rules_with_snoozes(
        rules, site.job.event_schema, rule.rule_id, key, lambda kept: with_snooze(kept, new, now)
    )
    of = "all its keys" if key is None else key_words(key)
    notes = [f"Alerts of {of} are not raised; held_alerts keeps them. It counts event times, from the next batch on."]
    title = f"{rule.rule_id}: snooze {of} until {time_text(moment_ms(until))} UTC"
    return ChangePlan(title, _put(changed, signed), notes, _page_of(rule))


def _end_snooze(site: Site, rules: JobRules, fields: Fields, signed: Signed) -> ChangePlan:
    """End the snoozes of a rule, or of one key of it, now."""
    now, rule = _now(), rules.rule(fields.get("id", ""))
    try:
        key = _key(site, fields)
    except ValueError as error:
        raise BucketsError(str(error)) from None
    changed = rules_with_snoozes(
        rules, site.job.event_schema, rule.rule_id, key, lambda kept: with_ended(kept, key, now)
    )
    of = "all its keys" if key is None else key_words(key)
    return ChangePlan(f"{rule.rule_id}: end the snooze of {of} now", _put(changed, signed), [], _page_of(rule))


def _draft(site: Site, rules: JobRules, fields: Fields, signed: Signed) -> ChangePlan:
    """Save what is typed as a draft, under an id that nothing in force has."""
    rule = draft_of(read_rule(fields.get("text", ""), site.job), rules)
    notes = [f"What it means: {stage_meaning(rule)}.", rule.sentence()]
    return ChangePlan(f"{rule.rule_id}: save as a draft", _put([rule], signed), notes, _page_of(rule))


def _apply(site: Site, rules: JobRules, fields: Fields, signed: Signed) -> ChangePlan:
    """Take what is typed, in place of what the rule says now."""
    rule = read_rule(fields.get("text", ""), site.job).rule
    notes = [rule.sentence(), _windows(site, rule)]
    return ChangePlan(f"{rule.rule_id}: {stage(rule)} as it is written", _put([rule], signed), notes, _page_of(rule))


PLANS: Mapping[str, tuple[Planner, Role]] = {
    "promote": (_promote, "admin"),
    "pause": (_state("PAUSE"), "admin"),
    "resume": (_state("ACTIVE"), "admin"),
    "trial": (_state("SHADOW"), "admin"),
    "rollback": (_roll_back, "admin"),
    "apply": (_apply, "admin"),
    "draft": (_draft, "analyst"),
    "snooze": (_snooze, "analyst"),
    "end-snooze": (_end_snooze, "analyst"),
}
"""By its word in addresses, how each is planned, and which role may do it."""


def actions(rule: Rule) -> list[tuple[str, str]]:
    """Return what can be done with a rule as it stands, as words for addresses and for people."""
    if rule.state == "PAUSE":
        return [("resume", "Resume"), ("trial", "Put on trial")]
    found = []
    with contextlib.suppress(ValueError):
        found.append(("promote", f"Promote to {stage(promoted(rule))}"))
    if rule.state == "ACTIVE":
        found += [("pause", "Pause"), ("trial", "Put on trial")]
    if rule.state == "SHADOW":
        found.append(("pause", "Pause"))
    return found


def _windows(site: Site, rule: Rule) -> str:
    return f"Its windows: {expected_completion(site.job, rule).words}." if rule.is_in_force else "It keeps nothing."


def _put(changed: list[Rule], signed: Signed) -> list[RuleChange]:
    return [RuleChange(change="put", rule=rule, **vars(signed)) for rule in changed]


def _key(site: Site, fields: Fields) -> Key | None:
    text = fields.get("key", "")
    return read_key(text, site.job.event_schema.attributes) if text else None


def _page_of(rule: Rule) -> str:
    return address("/rule", id=rule.rule_id)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def changed_words(number: int) -> str:
    """Say how many rules have changed, and from when on."""
    return f"{counted(number, 'rule')} changed, from the next batch on"
