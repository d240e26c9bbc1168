"""The policy of a rule in English: when it stays quiet, for whom it counts, and what its alerts say besides a value."""

from collections.abc import Iterator

from buckets.moment import brief_time_text, moment_ms
from buckets.printable import capitalised, one_line
from buckets.rules.policy import WHOLE_SHARE, Effective, share_text
from buckets.rules.rule import POLICY_FIELDS, Rule


def policy_sentence(rule: Rule) -> str:
    """Return the policy of a rule as sentences, first how grave it is; empty where it has none."""
    return " ".join(f"{capitalised(sentence)}." for sentence in _sentences(rule))


def _sentences(rule: Rule) -> Iterator[str]:
    marks = [f"severity {rule.severity}"] if rule.severity else []
    marks += [f"score {rule.score:,}"] if rule.score else []
    marks += [f"{'tag' if len(rule.tags) == 1 else 'tags'} {', '.join(rule.tags)}"] if rule.tags else []
    if marks:
        yield one_line(", ".join(marks))
    if rule.on == "alerts":
        yield "it counts alerts, not events"
    if rule.effective is not None:
        yield f"in effect {_between(rule.effective)}, by the time of events"
    if rule.rollout != WHOLE_SHARE:
        yield f"alerts for {share_text(rule.rollout)} of keys"
    for policy in sorted(rule.policies, key=lambda policy: POLICY_FIELDS.index(policy.field)):
        yield from policy.words(rule.group_by)


def _between(effective: Effective) -> str:
    parts = [("from", effective.start), ("until", effective.until)]
    return " ".join(f"{word} {brief_time_text(moment_ms(moment))}" for word, moment in parts if moment is not None)
