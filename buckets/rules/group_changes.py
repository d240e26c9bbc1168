"""What a change of the rules does to the state: groups that begin, go or start again, and horizons that move."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from buckets.duration import format_duration
from buckets.rules.group import COUNT_TRACK, Group
from buckets.rules.rule_set import RuleSet

Effect = Literal["begins", "goes", "starts again", "grows", "shrinks", "keeps more", "keeps less"]


@dataclass(frozen=True)
class GroupChange:
    """What becomes of a group.

    Attributes:
        group_id: the group.
        name: the group in words.
        effect: what happens to it.
        words: the effect in English.
    """

    group_id: str
    name: str
    effect: Effect
    words: str


def group_changes(before: RuleSet, after: RuleSet) -> list[GroupChange]:
    """Return what becomes of the groups of a rule set, those that are there before first."""
    old = {group.group_id: group for group in before.groups}
    new = {group.group_id: group for group in after.groups}
    return [
        GroupChange(identity, (old.get(identity) or new[identity]).name, effect, words)
        for identity in {**old, **new}
        for effect, words in _effects(old.get(identity), new.get(identity))
    ]


def _effects(old: Group | None, new: Group | None) -> Iterator[tuple[Effect, str]]:
    if old is None:
        assert new is not None
        yield "begins", f"begins empty, and reaches back {format_duration(new.longest_window_ms)} once it is complete"
        return
    if new is None:
        yield "goes", f"goes, with {format_duration(old.longest_window_ms)} of events that it keeps for each key"
        return
    if old.generation != new.generation:
        yield "starts again", "starts again: it has been away or was cleared in between, and begins empty"
        return
    before, after = (format_duration(group.longest_window_ms) for group in (old, new))
    if new.longest_window_ms > old.longest_window_ms:
        yield "grows", f"reaches back {after}, not {before}: what is older than {before} is missing until then"
    if new.longest_window_ms < old.longest_window_ms:
        yield "shrinks", f"reaches back {after}, not {before}: older events are evicted"
    more, less = _tracks(new, old), _tracks(old, new)
    if more:
        yield "keeps more", f"also keeps {more}, which begins empty"
    if less:
        yield "keeps less", f"keeps no {less} any more"


def _tracks(of: Group, without: Group) -> str:
    """Return what a group keeps of each event, and another does not."""
    there = set(without.live_tracks)
    return ", ".join(track for track in of.live_tracks if track not in there and track != COUNT_TRACK)
