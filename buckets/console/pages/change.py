"""Changes of rules: the available actions, as plans, and the page that previews a change before it is made."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from buckets.changes.origin import JobRules
from buckets.changes.snoozing import (
    ChangeOf,
    Key,
    new_snooze,
    read_key,
    read_moment,
    rules_with_snoozes,
    with_ended,
    with_snooze,
)
from buckets.changes.typed_rule import read_rule
from buckets.changes.versions import expected_completion, read_version, trial_words
from buckets.config.settings import Role
from buckets.console.view import Asked, Onward, Site, View, address, seen_mark
from buckets.errors import BucketsError
from buckets.moment import moment_ms, time_text
from buckets.printable import counted, key_words
from buckets.rule_files.differences import difference
from buckets.rules.change import RuleChange, check_reason
from buckets.rules.revision import STEPS, promoted, rollback, stage, stage_meaning
from buckets.rules.rule import Rule, State, parse_share
from buckets.rules.rule_set import group_changes

_OWN_FIELDS = ("form_mark", "reason", "seen")
Fields = Mapping[str, str]


@dataclass(frozen=True)
class ChangePlan:
    """The requested changes."""

    title: str  # what the plan does
    asked: list[RuleChange]  # the changes
    notes: list[str] = field(default_factory=list)  # remarks to read before they are made
    back: str = "/rules"  # the page to show afterwards


@dataclass(frozen=True)
class Planning:
    """The inputs of a plan: the job, its rules, the fields of the form, author and reason."""

    site: Site
    rules: JobRules
    fields: Fields
    author: str
    reason: str

    @property
    def rule(self) -> Rule:
        """The rule that the form names."""
        return self.rules.rule(self.fields.get("id", ""))

    def change(self, **fields: object) -> RuleChange:
        """Return a change with author and reason."""
        return RuleChange.model_validate({**fields, "author": self.author, "reason": self.reason})

    def put(self, title: str, rules: list[Rule], notes: list[str]) -> ChangePlan:
        """Return a plan that puts rules, and then shows the page of the first."""
        page = address("/rule", id=rules[0].rule_id)
        return ChangePlan(title, [self.change(change="put", rule=rule) for rule in rules], notes, page)

    def windows(self, rule: Rule) -> str:
        """Say since when the windows of a rule are complete."""
        if not rule.is_in_force:
            return "It keeps nothing."
        return f"Its windows: {expected_completion(self.site.job, rule).words}."


Planner = Callable[[Planning], ChangePlan]


def preview(asked: Asked) -> View:
    """Show the effect of a change before it is made."""
    fields = _fields(asked)
    rules, plan = _planned(asked, fields, "")
    revision, made = rules.revise(plan.asked), []
    for change in revision.made:
        what = "new" if change.before is None else "gone" if change.after is None else "changed"
        words = difference(change.before, change.after)
        made.append({"rule_id": change.rule_id, "what": what, "difference": words})
    return View(
        "change.html",
        plan=plan,
        fields=fields,
        seen=_mark(rules),
        place=rules.name,
        made=made,
        groups=group_changes(rules.rule_set, revision.rule_set),
    )


def make(asked: Asked) -> Onward:
    """Make a change that was previewed."""
    reason = asked.given("reason")
    check_reason(reason)
    rules, plan = _planned(asked, _fields(asked), reason)
    if asked.given("seen") != _mark(rules):
        message = "somebody has changed the rules since; review the change again, then confirm it"
        raise BucketsError(message)
    made = len(rules.change(plan.asked).made)
    done = f"{counted(made, 'rule')} changed, from the next batch on" if made else "Nothing had to be changed"
    return Onward(plan.back, done)


def _planned(asked: Asked, fields: dict[str, str], reason: str) -> tuple[JobRules, ChangePlan]:
    planner, role = PLANS.get(fields.get("what", ""), (None, None))
    if planner is None or role is None:
        message = f"what: there is no change {fields.get('what', '')!r}; go on from the page of a rule"
        raise BucketsError(message)
    if not asked.person.may(role):
        message = f"{asked.person.name} may not make this change: it needs the role {role}"
        raise BucketsError(message)
    rules = asked.site.rules()
    return rules, planner(Planning(asked.site, rules, fields, asked.person.name, reason))


def _fields(asked: Asked) -> dict[str, str]:
    given = {name: values[0] for name, values in asked.form.items() if name not in _OWN_FIELDS}
    return {name: value.strip() if name != "text" else value for name, value in {**asked.query, **given}.items()}


def _mark(rules: JobRules) -> str:
    return seen_mark("\n".join(rule.model_dump_json(by_alias=True) for rule in rules.rules))


def _promote(planning: Planning) -> ChangePlan:
    before, fields = planning.rule, planning.fields
    wanted = next((step for step in STEPS if step == fields.get("to", "")), None)
    try:
        after = promoted(before, wanted, parse_share(fields["rollout"]) if fields.get("rollout") else None)
    except ValueError as error:
        message = f"rule {before.rule_id!r} {error}"
        raise BucketsError(message) from None
    notes = [f"What it means: {stage_meaning(after)}.", planning.windows(after)]
    notes += [f"Its trial: {trial_words(planning.site.job, before)}."] if before.state == "SHADOW" else []
    return planning.put(f"{before.rule_id}: {stage(before)} now, {stage(after)} from the next batch on", [after], notes)


def _state(state: State) -> Planner:
    def plan(planning: Planning) -> ChangePlan:
        before = planning.rule
        after = before.model_copy(update={"state": state})
        note = "Its events are still kept, so that it can resume at once, but it is not evaluated."
        note = note if state == "PAUSE" else f"What it means: {stage_meaning(after)}."
        return ChangePlan(
            f"{before.rule_id}: {before.state} now, {state} from the next batch on",
            [planning.change(change="state", rule_id=before.rule_id, state=state)],
            [note, planning.windows(after)],
            address("/rule", id=before.rule_id),
        )

    return plan


def _roll_back(planning: Planning) -> ChangePlan:
    text, job = planning.fields.get("version", ""), planning.site.job
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        message = f"version: {text!r} is not a version of the rules; take one of their history"
        raise BucketsError(message)
    then, signed = read_version(job, int(text)), {"author": planning.author, "reason": planning.reason}
    asked = rollback(planning.rules.rules, then.rules, job.event_schema, **signed)
    notes = ["This makes a new version; the history is kept."]
    return ChangePlan(f"All rules as they were in version {int(text)}", asked, notes)


def _snooze(planning: Planning) -> ChangePlan:
    now, rule = _now(), planning.rule
    try:
        until, key = read_moment(planning.fields.get("until", ""), now), _key(planning)
    except ValueError as error:
        raise BucketsError(str(error)) from None
    reason = planning.reason or "not said yet"
    new = new_snooze({"key": key, "until": until, "author": planning.author, "reason": reason})
    of = "all its keys" if key is None else key_words(key)
    what = f"Alerts for {of} are not raised but kept in held_alerts, from the next batch on."
    notes = [f"{what} The end is an event time."]
    title = f"{rule.rule_id}: snooze {of} until {time_text(moment_ms(until))} UTC"
    return planning.put(title, _changed(planning, key, lambda kept: with_snooze(kept, new, now)), notes)


def _end_snooze(planning: Planning) -> ChangePlan:
    now, rule = _now(), planning.rule
    try:
        key = _key(planning)
    except ValueError as error:
        raise BucketsError(str(error)) from None
    of = "all its keys" if key is None else key_words(key)
    changed = _changed(planning, key, lambda kept: with_ended(kept, key, now))
    return planning.put(f"{rule.rule_id}: end the snooze of {of} now", changed, [])


def _draft(planning: Planning) -> ChangePlan:
    rule = planning.rules.draft(read_rule(planning.fields.get("text", ""), planning.site.job).rules[0])
    notes = [f"What it means: {stage_meaning(rule)}.", rule.sentence()]
    return planning.put(f"{rule.rule_id}: save as a draft", [rule], notes)


def _apply(planning: Planning) -> ChangePlan:
    rule = read_rule(planning.fields.get("text", ""), planning.site.job).rules[0]
    title = f"{rule.rule_id}: {stage(rule)} as it is written"
    return planning.put(title, [rule], [rule.sentence(), planning.windows(rule)])


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
"""By the word in URLs, the function that plans an action, and the role that it needs."""


def actions(rule: Rule) -> list[tuple[str, str]]:
    """Return the actions available for a rule in its state, as words for URLs and for people."""
    if rule.state == "PAUSE":
        return [("resume", "Resume"), ("trial", "Put on trial")]
    found = []
    with contextlib.suppress(ValueError):
        found.append(("promote", f"Promote to {stage(promoted(rule))}"))
    found += [("pause", "Pause")] if rule.state in ("ACTIVE", "SHADOW") else []
    return found + ([("trial", "Put on trial")] if rule.state == "ACTIVE" else [])


def _changed(planning: Planning, key: Key | None, change_of: ChangeOf) -> list[Rule]:
    schema = planning.site.job.event_schema
    return rules_with_snoozes(planning.rules, schema, planning.rule.rule_id, key, change_of)


def _key(planning: Planning) -> Key | None:
    text = planning.fields.get("key", "")
    return read_key(text, planning.site.job.event_schema.attributes) if text else None


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
