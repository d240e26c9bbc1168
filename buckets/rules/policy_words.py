"""The policy of a rule in English: when it stays quiet, for whom it counts, and what its alerts say besides a value."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from buckets.duration import format_duration
from buckets.printable import one_line
from buckets.rules.policy import WHOLE_SHARE, Effective, Snooze, share_text
from buckets.rules.rule import Rule

MOST_SNOOZES_TOLD = 3
"""So many snoozes are told one by one; of the others there is only the number."""


def policy_sentence(rule: Rule) -> str:
    """The policy of a rule as sentences, of which the first says how grave it is; empty where it has none."""
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in _sentences(rule))


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
    if rule.cooldown is not None:
        per = f" per {_and(rule.group_by)}" if rule.group_by else ""
        yield f"at most one alert{per} in {format_duration(rule.cooldown)}"
    if rule.reset_on_alert:
        yield "counts from the start again after an alert"
    if rule.require_warm:
        yield "no alert before its windows are complete"
    yield from _snoozed(rule.snoozes)


def _between(effective: Effective) -> str:
    parts = [("from", effective.start), ("until", effective.until)]
    return " ".join(f"{word} {moment_words(moment)}" for word, moment in parts if moment is not None)


def _snoozed(snoozes: Sequence[Snooze]) -> Iterator[str]:
    for snooze in snoozes[:MOST_SNOOZES_TOLD]:
        keys = ", ".join(f"{field} {value}" for field, value in (snooze.key or {}).items()) or "all keys"
        start = f"from {moment_words(snooze.start)} " if snooze.start is not None else ""
        yield one_line(f"snoozed for {keys} {start}until {moment_words(snooze.until)} ({snooze.reason})")
    more = len(snoozes) - MOST_SNOOZES_TOLD
    if more > 0:
        yield f"{more:,} more {'snooze' if more == 1 else 'snoozes'}"


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)


def moment_words(moment: datetime) -> str:
    """A moment as people read it: in UTC, with seconds where there are some."""
    in_utc = moment.astimezone(UTC)
    return f"{in_utc:%Y-%m-%d %H:%M:%S}" if in_utc.second else f"{in_utc:%Y-%m-%d %H:%M}"
