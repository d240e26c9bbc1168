"""Policies that are over, or say nothing."""

from collections.abc import Iterator

from buckets.lint.finding import Code, Finding
from buckets.lint.subject import Subject
from buckets.moment import moment_ms
from buckets.rules.policy import WHOLE_SHARE
from buckets.rules.rule import Rule

OVER = Code("B304", "warning", "a rule that is no longer in effect")
OLD_SNOOZE = Code("B305", "note", "a snooze that is over")
WHOLE = Code("B306", "note", "a rollout to all keys that is written")
CODES = (OVER, OLD_SNOOZE, WHOLE)


def find(subject: Subject) -> Iterator[Finding]:
    """Look at the policy of each rule."""
    for rule in subject.rules:
        yield from _of_rule(rule, subject)


def _of_rule(rule: Rule, subject: Subject) -> Iterator[Finding]:
    until = None if rule.effective is None else rule.effective.until
    if until is not None and moment_ms(until) <= subject.now_ms:
        message = (
            f"has been over since {until:%Y-%m-%d %H:%M} and costs its state still; delete the rule, or move `until`"
        )
        yield Finding(OVER, rule.rule_id, ("effective", "until"), message)
    over = sum(moment_ms(snooze.until) <= subject.now_ms for snooze in rule.snoozes)
    if over:
        which = "a snooze is" if over == 1 else f"{over} snoozes are"
        yield Finding(OLD_SNOOZE, rule.rule_id, ("snoozes",), f"{which} over; leave out what is over")
    if rule.rollout == WHOLE_SHARE and "rollout" in subject.written.get(rule.rule_id, ()):
        message = "100% of all keys is what a rule without `rollout` has; leave it out"
        yield Finding(WHOLE, rule.rule_id, ("rollout",), message)
