"""The page between asking for a change of rules and making it: what it does, and a reason."""

from buckets.changes.origin import JobRules
from buckets.console.pages.plans import PLANS, ChangePlan, Signed, changed_words
from buckets.console.view import Asked, Onward, View, seen_mark
from buckets.errors import BucketsError
from buckets.rule_files.differences import difference
from buckets.rules.change import check_reason
from buckets.rules.revision import Change
from buckets.rules.rule_set import group_changes

_OWN_FIELDS = ("form_mark", "reason", "seen")


def preview(asked: Asked) -> View:
    """Show what a change does, before it is made."""
    fields = _fields(asked)
    rules, plan = _planned(asked, fields, "")
    revision = rules.revise(plan.asked)
    return View(
        "change.html",
        {
            "plan": plan,
            "fields": fields,
            "seen": _mark(rules),
            "place": rules.name,
            "made": [
                {"rule_id": change.rule_id, "what": _what(change),
                 "difference": difference(change.before, change.after)}
                for change in revision.made
            ],
            "groups": group_changes(rules.rule_set, revision.rule_set),
        },
    )  # fmt: skip


def make(asked: Asked) -> Onward:
    """Make a change that has been shown.

    Raises:
        BucketsError: it has no reason, the rules are no longer those that were shown, or it cannot be made.
    """
    reason = asked.given("reason")
    check_reason(reason)
    rules, plan = _planned(asked, _fields(asked), reason)
    if asked.given("seen") != _mark(rules):
        message = "somebody has changed the rules since you looked; look at what it does now, and make it then"
        raise BucketsError(message)
    revision = rules.change(plan.asked)
    return Onward(plan.back, changed_words(len(revision.made)) if revision.made else "Nothing had to be changed")


def _planned(asked: Asked, fields: dict[str, str], reason: str) -> tuple[JobRules, ChangePlan]:
    """Return the rules, and what is to be done to them."""
    planner, role = PLANS.get(fields.get("what", ""), (None, None))
    if planner is None or role is None:
        message = f"what: there is no change {fields.get('what', '')!r}; go on from the page of a rule"
        raise BucketsError(message)
    if not asked.person.may(role):
        message = f"{asked.person.name} may only look, or not change this: it needs the role {role}"
        raise BucketsError(message)
    rules = asked.site.rules()
    return rules, planner(asked.site, rules, fields, Signed(asked.person.name, reason))


def _fields(asked: Asked) -> dict[str, str]:
    """Return the fields of a change, from the address or the form."""
    given = {name: values[0] for name, values in asked.form.items() if name not in _OWN_FIELDS}
    return {name: value.strip() if name != "text" else value for name, value in {**asked.query, **given}.items()}


def _mark(rules: JobRules) -> str:
    """Return what says whether rules are those that somebody has seen."""
    text = "\n".join(rule.model_dump_json(by_alias=True) for rule in rules.rules)
    return seen_mark(text)


def _what(change: Change) -> str:
    return "new" if change.before is None else "gone" if change.after is None else "changed"
