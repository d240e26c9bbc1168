"""Drafts of rules: a rule as it was typed, saved under an id that no rule in force has."""

from buckets.changes.origin import JobRules
from buckets.changes.typed_rule import TypedRule
from buckets.errors import BucketsError
from buckets.rules.rule import Rule


def draft_of(typed: TypedRule, rules: JobRules) -> Rule:
    """Return a rule as a draft; BucketsError if a rule that is more than a draft has its id."""
    rule = typed.rule.model_copy(update={"state": "DRAFT"})
    known = next((each for each in rules.rules if each.rule_id == rule.rule_id), None)
    if known is not None and known.state != "DRAFT":
        message = (
            f"rule {rule.rule_id!r} is {known.state}, and a draft in its place would take it out of force; give the "
            "draft a rule_id of its own"
        )
        raise BucketsError(message)
    return rule
