"""Policies that are over, or say nothing."""

from collections.abc import Iterator

from buckets.lint.subject import Code, Finding, Subject
from buckets.moment import minute_text, moment_ms
from buckets.rules.rule import WHOLE_SHARE, Rule

OVER = Code(
    "B304",
    "warning",
    "a rule that is no longer in effect",
    "has been over since {since} and costs its state still; delete the rule, or move `until`",
)
OLD_SNOOZE = Code("B305", "note", "a snooze that is over", "{which} over; leave out what is over")
WHOLE = Code(
    "B306",
    "note",
    "a rollout to all keys that is written",
    "100% of all keys is what a rule without `rollout` has; leave it out",
)


def find(subject: Subject) -> Iterator[Finding]:
    """Look at the policy of each rule."""
    for rule in subject.rules:
        yield from _of_rule(rule, subject)


def _of_rule(rule: Rule, subject: Subject) -> Iterator[Finding]:
    until = None if rule.effective is None else rule.effective.until
    if until is not None and moment_ms(until) <= subject.now_ms:
        yield OVER.at(rule, ("effective", "until"), since=minute_text(moment_ms(until)))
    over = sum(moment_ms(snooze.until) <= subject.now_ms for snooze in rule.snoozes)
    if over:
        which = "a snooze is" if over == 1 else f"{over} snoozes are"
        yield OLD_SNOOZE.at(rule, ("snoozes",), which=which)
    if rule.rollout == WHOLE_SHARE and "rollout" in subject.written.get(rule.rule_id, ()):
        yield WHOLE.at(rule, ("rollout",))
