"""From when on the windows of a rule are, or will be, complete: the `warm` of evaluations.

All windows of a rule, in all of its groups, must be complete:

    history of a group     ·············[───────────────────
    windows of an event        [──────)·    incomplete before since + reach
                                     [──────)   complete from there on

The restart of a key after an eviction is not considered here: only evaluations know about its first windows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from buckets.duration import DAY_MS, MINUTE_MS, rounded_duration
from buckets.moment import minute_text
from buckets.rules.completeness import ALWAYS_MS, Completeness, Stretches, at
from buckets.rules.group import Group
from buckets.rules.role import asks_alerts
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

_STREAM_AHEAD_MS = DAY_MS
"""An event time this far in the future is a wild date, and does not show how far the stream is."""


class Warm(NamedTuple):
    """Event times, in ms, for which all windows of a rule are complete: from the first until before the second.

    None as the first: from the first event on; None as the second: for ever.
    """

    from_ms: int | None
    until_ms: int | None


@dataclass(frozen=True)
class Warmth:
    """Since when a rule is complete, and how far its job is.

    Attributes:
        rule_id: the rule.
        warm: when its windows are complete, in ascending order; empty of a rule that keeps nothing.
        latest_ms: how far the stream of events is; None before the first event.
    """

    rule_id: str
    warm: tuple[Warm, ...]
    latest_ms: int | None

    @property
    def current(self) -> Warm | None:
        """The stretch in which the windows are complete now; None if they are not."""
        return next((each for each in self.warm if self._is_now(each)), None)

    @property
    def complete_from_ms(self) -> int | None:
        """The event time from which it will be complete; None if it is already, or keeps nothing."""
        if self.current is not None or self.latest_ms is None:
            return None
        return next((each.from_ms for each in self.warm if _start(each) > self.latest_ms), None)

    def _is_now(self, each: Warm) -> bool:
        if self.latest_ms is None:
            return each.from_ms is None
        return _start(each) <= self.latest_ms and (each.until_ms is None or self.latest_ms < each.until_ms)

    def sentence(self) -> str:
        """Say in a few words since when the rule is complete, or when it will be."""
        if not self.warm:
            return "keeps nothing yet"
        now = self.current
        if now is not None:
            return "complete" if now.from_ms is None else f"complete since {_minute(now.from_ms)}"
        ahead = self.complete_from_ms
        if ahead is None or self.latest_ms is None:
            return "not complete"
        return f"complete from {_minute(ahead)} (in event time), {rounded_duration(ahead - self.latest_ms)} to go"


def rules_warmth(rule_set: RuleSet, arrived: Stretches, now_ms: int) -> dict[str, Warmth]:
    """Return by id when each rule of a rule set is complete, given the event times that have arrived.

    Event times more than a day after now do not show the progress of the stream.
    """
    reads: dict[str, list[_Read]] = {rule.rule_id: [] for rule in rule_set.rules}
    asked = (group for group in rule_set.alert_groups if asks_alerts(group.fields))
    for group in (*rule_set.groups, *asked):
        for rule in group.rules:
            reads[rule.rule_id] += _reads(group, rule)
    until_ms = latest_ms(arrived, now_ms)
    alone = {rule.rule_id for rule in rule_set.evaluated if rule.is_in_force and not rule.features}
    warm = {rule_id: _all_complete(each) if each else () for rule_id, each in reads.items()}
    warm |= dict.fromkeys(alone, (Warm(None, None),))
    return {rule_id: Warmth(rule_id, of_rule, until_ms) for rule_id, of_rule in warm.items()}


def latest_ms(arrived: Stretches, now_ms: int) -> int | None:
    """Return the latest event time of a stream, ignoring wild dates; None before the first event."""
    times_ms = [stretch.last_ms for stretch in arrived]
    return max([time_ms for time_ms in times_ms if time_ms <= now_ms + _STREAM_AHEAD_MS] or times_ms, default=None)


_Read = tuple[Completeness, int]
"""Since when an input of a rule is complete, and how far its window reaches back, in ms."""


def _reads(group: Group, rule: Rule) -> Iterator[_Read]:
    here = [each for each in rule.named_features() if frozenset(each.fields) == frozenset(group.fields)]
    for _, part in (found for each in here for found in each.parts()):
        yield group.completeness(*(track.name for track in part.tracks)), part.window.reach_ms


def _all_complete(reads: list[_Read]) -> tuple[Warm, ...]:
    """Return when all reads are complete.

    Cost: O(reads · steps), with at most eight of each.
    """
    froms_ms = sorted({since.from_ms for complete, _ in reads for since in complete})
    found: list[Warm] = []
    for from_ms, next_ms in zip(froms_ms, [*froms_ms[1:], None], strict=True):
        starts_ms = [from_ms]
        for complete, reach_ms in reads:
            since_ms = at(complete, from_ms)
            starts_ms.append(ALWAYS_MS if since_ms == ALWAYS_MS else since_ms + reach_ms)
        start_ms = max(starts_ms)
        if next_ms is None or start_ms < next_ms:
            if found and found[-1].until_ms == start_ms:
                found[-1] = Warm(found[-1].from_ms, next_ms)
            else:
                found.append(Warm(None if start_ms == ALWAYS_MS else start_ms, next_ms))
    return tuple(found)


def _start(warm: Warm) -> int:
    return ALWAYS_MS if warm.from_ms is None else warm.from_ms


def _minute(time_ms: int) -> str:
    """Return a time for people, rounded up to a whole minute, so that it is true from then on."""
    return minute_text(-(-time_ms // MINUTE_MS) * MINUTE_MS)
