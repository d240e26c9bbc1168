"""A rule as it was when it scored an event, and since when its windows are complete."""

from collections.abc import Sequence

from buckets.history.explain.explanation import RuleThen
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import Target
from buckets.moment import exact_time_text
from buckets.rules.rule import Rule
from buckets.rules.warmth import Warm, rules_warmth


def rule_then(past: Past, rule: Rule, target: Target) -> RuleThen:
    """The rule as it was, and who made it so."""
    cut = past.cuts[target.batch_id]
    last = past.versions.latest_change(rule.rule_id, cut.ruleset_version)
    made, change = (None, None) if last is None else last
    return RuleThen(
        rule_id=rule.rule_id,
        version=rule.version,
        state=rule.state,
        sentence=rule.sentence(),
        written=rule.model_dump(by_alias=True, mode="json"),
        ruleset_version=cut.ruleset_version,
        author="" if change is None else change.author,
        reason="" if change is None else change.reason,
        made_ms=None if made is None else made.made_ms,
        lists={name: version for name, version in cut.lists.items() if name in rule.lists},
    )


def warmth_of(past: Past, rule: Rule, target: Target) -> str:
    """Since when the windows of a rule are complete, seen from an event; empty of a rule over alerts."""
    if rule.on == "alerts":
        return ""
    warmth = rules_warmth(past.rule_set(target.batch_id), (), 0).get(rule.rule_id)
    if warmth is None or not warmth.warm:
        return "the rule keeps nothing"
    return _warm_words(warmth.warm, target.time_ms)


def _warm_words(warm: Sequence[Warm], time_ms: int) -> str:
    for each in warm:
        begun = each.from_ms is None or each.from_ms <= time_ms
        if begun and (each.until_ms is None or time_ms < each.until_ms):
            return (
                "complete since the first event"
                if each.from_ms is None
                else f"complete from {exact_time_text(each.from_ms)} on"
            )
    ahead = next((each.from_ms for each in warm if each.from_ms is not None and each.from_ms > time_ms), None)
    return "not complete" if ahead is None else f"not complete: only from {exact_time_text(ahead)} on"
